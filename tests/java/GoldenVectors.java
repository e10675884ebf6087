import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ConsumerProtocolAssignmentJsonConverter;
import org.apache.kafka.common.message.ConsumerProtocolSubscriptionJsonConverter;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.connect.runtime.distributed.ConnectProtocol;
import org.apache.kafka.connect.runtime.distributed.ExtendedAssignment;
import org.apache.kafka.connect.runtime.distributed.ExtendedWorkerState;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeConnectProtocol;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Writes what Kafka's own classes write: bytes in hex, and beside them the same value as Kafka's JSON.
 *
 * <p>One argument: a folder. One file per family, one vector a line, the same at every run.
 */
public final class GoldenVectors {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
    private static final int PER_VERSION = 5;
    private static final String[] WORDS =
        {"", "a", "orders", "clicks.eu-west_1", "член", "\uD83E\uDD80 crab", "nul\u0000", "x".repeat(130)};

    private GoldenVectors() { }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        write(folder.resolve("consumer_protocol.json"), consumerProtocol());
        write(folder.resolve("consumer_protocol_reads.json"), consumerProtocolReads());
        write(folder.resolve("sticky_user_data.json"), stickyUserData());
        write(folder.resolve("connect.json"), connect());
        write(folder.resolve("offsets_records.json"), offsetsRecords());
    }

    private static void write(Path file, List<ObjectNode> vectors) throws IOException {
        List<String> lines = new ArrayList<>();
        for (ObjectNode vector : vectors)
            lines.add(vector.toString());
        Files.writeString(file, "[\n" + String.join(",\n", lines) + "\n]\n", StandardCharsets.UTF_8);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    // Consumer protocol

    private static List<ObjectNode> consumerProtocol() {
        List<ObjectNode> vectors = new ArrayList<>();
        Random random = new Random(415);
        for (short version = 0; version <= 3; version++)
            for (int i = 0; i < 8; i++) {
                Subscription subscription = new Subscription(topics(random, i), userData(random, i),
                    partitions(random, i), random.nextInt(4) - 1 + i * 1000,
                    i % 3 == 0 ? Optional.empty() : Optional.of("rack-" + i));
                ByteBuffer bytes = ConsumerProtocol.serializeSubscription(subscription, version);
                JsonNode json = ConsumerProtocolSubscriptionJsonConverter.write(
                    ConsumerProtocol.deserializeConsumerProtocolSubscription(bytes.duplicate()), version);
                ObjectNode given = JSON.objectNode();
                given.set("topics", strings(subscription.topics()));
                given.set("owned", pairs(subscription.ownedPartitions()));
                vectors.add(vector("subscription", version, hex(bytes), json).set("given", given));
            }
        for (short version = 0; version <= 3; version++)
            for (int i = 0; i < 5; i++) {
                List<TopicPartition> partitions = partitions(random, i);
                ByteBuffer bytes = ConsumerProtocol.serializeAssignment(
                    new Assignment(partitions, userData(random, i)), version);
                JsonNode json = ConsumerProtocolAssignmentJsonConverter.write(
                    ConsumerProtocol.deserializeConsumerProtocolAssignment(bytes.duplicate()), version);
                ObjectNode given = JSON.objectNode();
                given.set("partitions", pairs(partitions));
                vectors.add(vector("assignment", version, hex(bytes), json).set("given", given));
            }
        return vectors;
    }

    /** What Kafka's readers make of damaged bytes, and of versions that they do not know. */
    private static List<ObjectNode> consumerProtocolReads() {
        List<ObjectNode> vectors = new ArrayList<>();
        Random random = new Random(429);
        for (int i = 0; i < 160; i++) {
            boolean isSubscription = i % 4 != 0;
            short version = (short) random.nextInt(4);
            List<TopicPartition> partitions = partitions(random, 2);
            ByteBuffer intact = isSubscription
                ? ConsumerProtocol.serializeSubscription(new Subscription(topics(random, 2), userData(random, i),
                    partitions, 7, Optional.of("rack")), version)
                : ConsumerProtocol.serializeAssignment(new Assignment(partitions, userData(random, i)), version);
            byte[] damaged = damaged(intact, random, i);
            ObjectNode node = JSON.objectNode();
            node.put("schema", isSubscription ? "subscription" : "assignment");
            node.put("hex", HexFormat.of().formatHex(damaged));
            node.set("json", reading(isSubscription, ByteBuffer.wrap(damaged)));
            vectors.add(node);
        }
        return vectors;
    }

    private static byte[] damaged(ByteBuffer intact, Random random, int i) {
        byte[] bytes = new byte[intact.remaining()];
        intact.get(bytes);
        switch (i % 5) {
            case 0 -> bytes = Arrays.copyOf(bytes, random.nextInt(bytes.length));
            case 1 -> bytes = Arrays.copyOf(bytes, bytes.length + random.nextInt(5));
            case 2 -> bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
            case 3 -> bytes[0] = (byte) random.nextInt();
            default -> bytes[2 + random.nextInt(bytes.length - 2)] = (byte) (random.nextBoolean() ? -1 : 0);
        }
        return bytes;
    }

    private static JsonNode reading(boolean isSubscription, ByteBuffer bytes) {
        try {
            short version = (short) Math.min(3, bytes.duplicate().getShort());
            return isSubscription
                ? ConsumerProtocolSubscriptionJsonConverter.write(
                    ConsumerProtocol.deserializeConsumerProtocolSubscription(bytes), version)
                : ConsumerProtocolAssignmentJsonConverter.write(
                    ConsumerProtocol.deserializeConsumerProtocolAssignment(bytes), version);
        } catch (RuntimeException error) {
            return JSON.nullNode();
        }
    }

    private static ObjectNode vector(String schema, int version, String hex, JsonNode json) {
        ObjectNode node = JSON.objectNode();
        node.put("schema", schema).put("version", version).put("hex", hex);
        node.set("json", json);
        return node;
    }

    private static List<String> topics(Random random, int n) {
        List<String> names = new ArrayList<>();
        for (int i = 0; i < n; i++)
            names.add("topic-" + random.nextInt(50));
        return names;
    }

    private static ByteBuffer userData(Random random, int i) {
        if (i % 3 == 0)
            return null;
        byte[] bytes = new byte[i % 3 == 1 ? 0 : 9];
        random.nextBytes(bytes);
        return ByteBuffer.wrap(bytes);
    }

    private static List<TopicPartition> partitions(Random random, int n) {
        Set<String> seen = new TreeSet<>();
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < 3 * n; i++) {
            TopicPartition partition = new TopicPartition("topic-" + random.nextInt(4), random.nextInt(300));
            if (seen.add(partition.toString()))
                all.add(partition);
        }
        return all;
    }

    private static ArrayNode strings(List<String> values) {
        ArrayNode array = JSON.arrayNode();
        values.forEach(array::add);
        return array;
    }

    private static ArrayNode pairs(List<TopicPartition> partitions) {
        ArrayNode array = JSON.arrayNode();
        for (TopicPartition partition : partitions)
            array.add(JSON.arrayNode().add(partition.topic()).add(partition.partition()));
        return array;
    }

    // User data of the sticky assignors, from the assignors themselves

    private static List<ObjectNode> stickyUserData() {
        List<ObjectNode> vectors = new ArrayList<>();
        Random random = new Random(341);
        for (int i = 0; i < 6; i++) {
            List<TopicPartition> partitions = partitions(random, i);
            int generation = i * 7 - 1;
            vectors.add(userDataOf("sticky-user-data", new StickyAssignor(), partitions, generation));
            vectors.add(userDataOf("cooperative-sticky-user-data", new CooperativeStickyAssignor(), partitions,
                generation));
        }
        return vectors;
    }

    @SuppressWarnings("removal") // the interface that replaces it has no public class
    private static ObjectNode userDataOf(String schema, ConsumerPartitionAssignor assignor,
                                         List<TopicPartition> partitions, int generation) {
        assignor.onAssignment(new Assignment(partitions), new ConsumerGroupMetadata("group", generation, "member",
            Optional.empty()));
        ByteBuffer bytes = assignor.subscriptionUserData(Set.of("topic-1"));
        ObjectNode json = JSON.objectNode().put("generation", generation);
        json.set("partitions", pairs(partitions));
        return vector(schema, 1, bytes == null ? "null" : hex(bytes), json);
    }

    // Connect

    private static List<ObjectNode> connect() {
        List<ObjectNode> vectors = new ArrayList<>();
        Random random = new Random(507);
        for (int i = 0; i < 5; i++) {
            String url = "http://worker-" + i + ":8083/";
            long offset = random.nextInt(1000) - 1;
            List<String> connectors = i == 0 ? List.of() : List.of("source", "sink-" + i);
            List<ConnectorTaskId> tasks = new ArrayList<>();
            for (int task = 0; task < i; task++)
                tasks.add(new ConnectorTaskId(task % 2 == 0 ? "source" : "other", task));
            short error = (short) (i % 2);
            ConnectProtocol.Assignment eager =
                new ConnectProtocol.Assignment(error, "leader-" + i, url, offset, connectors, tasks);
            vectors.add(vector("connect-metadata", 0,
                hex(ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState(url, offset))),
                metadata(url, offset, null)));
            vectors.add(vector("connect-assignment", 0, hex(ConnectProtocol.serializeAssignment(eager)),
                assignment(eager, null, null, 0)));
            for (short version = 1; version <= 2; version++) {
                ExtendedAssignment given = new ExtendedAssignment(version, error, "leader-" + i, url, offset,
                    connectors, tasks, i == 2 ? List.of("gone") : List.of(),
                    i == 2 ? List.of(new ConnectorTaskId("gone", 3)) : List.of(), 1000 * i);
                ByteBuffer bytes = IncrementalCooperativeConnectProtocol.serializeAssignment(given, version == 2);
                vectors.add(vector("connect-assignment", version, hex(bytes),
                    assignment(given, given.revokedConnectors(), given.revokedTasks(), given.delay())));
                ExtendedAssignment current = i == 1 ? ExtendedAssignment.empty() : given;
                vectors.add(vector("connect-metadata", version, hex(IncrementalCooperativeConnectProtocol
                    .serializeMetadata(new ExtendedWorkerState(url, offset, current), version == 2)),
                    metadata(url, offset, i == 1 ? null : hex(bytes))));
            }
        }
        return vectors;
    }

    private static ObjectNode metadata(String url, long offset, String allocation) {
        return JSON.objectNode().put("url", url).put("config_offset", offset).put("allocation", allocation);
    }

    private static ObjectNode assignment(ConnectProtocol.Assignment given, Iterable<String> revokedConnectors,
                                         Iterable<ConnectorTaskId> revokedTasks, int delay) {
        ObjectNode json = JSON.objectNode().put("error", given.error()).put("leader", given.leader())
            .put("leader_url", given.leaderUrl()).put("config_offset", given.offset()).put("delay_ms", delay);
        json.set("assignment", tasks(given.connectors(), given.tasks()));
        json.set("revoked", revokedConnectors == null ? JSON.nullNode() : tasks(revokedConnectors, revokedTasks));
        return json;
    }

    private static ArrayNode tasks(Iterable<String> connectors, Iterable<ConnectorTaskId> tasks) {
        ArrayNode array = JSON.arrayNode();
        for (String connector : connectors)
            array.add(JSON.arrayNode().add(connector).add(-1));
        for (ConnectorTaskId task : tasks)
            array.add(JSON.arrayNode().add(task.connector()).add(task.task()));
        return array;
    }

    // Records of the offsets topic: every type in every version, filled by reflection

    private static List<ObjectNode> offsetsRecords() throws Exception {
        List<ObjectNode> vectors = new ArrayList<>();
        CoordinatorRecordType[] types = CoordinatorRecordType.values();
        Arrays.sort(types, Comparator.comparingInt(CoordinatorRecordType::id));
        for (CoordinatorRecordType type : types) {
            ApiMessage key = type.newRecordKey();
            fill(key, (short) 0, new Random(type.id()), true);
            vectors.add(record(type, key, null, (short) 0));
            for (short version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(); version++)
                for (int i = 0; i < PER_VERSION; i++) {
                    Random random = new Random(type.id() * 1000L + version * 100L + i);
                    ApiMessage value = type.newRecordValue();
                    if (i > 0)
                        fill(value, version, random, i == 1);
                    if (i == 4)
                        addUnknownTag(value, version);
                    ApiMessage otherKey = type.newRecordKey();
                    fill(otherKey, (short) 0, random, false);
                    vectors.add(record(type, otherKey, value, version));
                }
        }
        return vectors;
    }

    private static ObjectNode record(CoordinatorRecordType type, ApiMessage key, ApiMessage value, short version) {
        ObjectNode node = JSON.objectNode();
        node.put("type", type.id()).put("name", type.toString());
        node.put("key_hex", HexFormat.of().formatHex(MessageUtil.toCoordinatorTypePrefixedBytes(key)));
        node.set("key", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key));
        if (value == null) {
            node.putNull("version").putNull("value_hex").putNull("value");
            return node;
        }
        node.put("version", version);
        node.put("value_hex", HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes(version, value)));
        node.set("value", CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, version));
        node.put("unknown_tags", value.unknownTaggedFields().size());
        return node;
    }

    private static void addUnknownTag(Message message, short version) {
        message.unknownTaggedFields().add(new RawTaggedField(7000, new byte[] {1, 2, 3}));
        if (!isWritable(message, version))
            message.unknownTaggedFields().clear();
    }

    /** Sets every field that this version can carry; {@code full}: no nulls and no empty lists. */
    private static void fill(Message message, short version, Random random, boolean full) throws Exception {
        Method[] methods = message.getClass().getDeclaredMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method setter : methods) {
            if (!setter.getName().startsWith("set") || setter.getParameterCount() != 1 || setter.isBridge())
                continue;
            Object before = getter(message, setter).invoke(message);
            Object value = value(setter.getGenericParameterTypes()[0], version, random, full);
            try {
                setter.invoke(message, value);
            } catch (InvocationTargetException outOfRange) {
                setter.invoke(message, 7);
            }
            if (!isWritable(message, version))
                setter.invoke(message, before);
        }
    }

    private static Method getter(Message message, Method setter) throws NoSuchMethodException {
        String name = setter.getName().substring(3);
        return message.getClass().getMethod(Character.toLowerCase(name.charAt(0)) + name.substring(1));
    }

    private static boolean isWritable(Message message, short version) {
        try {
            MessageUtil.toVersionPrefixedBytes(version, message);
            return true;
        } catch (RuntimeException error) {
            return false;
        }
    }

    private static Object value(Type type, short version, Random random, boolean full) throws Exception {
        if (type instanceof ParameterizedType list) {
            Type element = list.getActualTypeArguments()[0];
            List<Object> values = new ArrayList<>();
            for (int n = full ? 2 : random.nextInt(4); n > 0; n--)
                values.add(value(element, version, random, true));
            return values;
        }
        if (type == String.class)
            return !full && random.nextInt(4) == 0 ? null : WORDS[random.nextInt(WORDS.length)];
        if (type == int.class || type == Integer.class)
            return random.nextInt(3) == 0 ? random.nextInt() : random.nextInt(100);
        if (type == long.class)
            return random.nextInt(3) == 0 ? random.nextLong() : 1_700_000_000_000L + random.nextInt();
        if (type == short.class || type == Short.class)
            return (short) random.nextInt();
        if (type == byte.class)
            return (byte) random.nextInt(5);
        if (type == boolean.class)
            return random.nextBoolean();
        if (type == Uuid.class)
            return new Uuid(random.nextLong(), random.nextLong());
        if (type == byte[].class) {
            byte[] bytes = new byte[random.nextInt(12)];
            random.nextBytes(bytes);
            return bytes;
        }
        Message struct = (Message) ((Class<?>) type).getDeclaredConstructor().newInstance();
        fill(struct, version, random, full);
        return struct;
    }
}
