import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own client assignors as a filter: one group a line in, one line of assignments out.
 *
 * <p>In (fields split by a tab, parts by the sign shown, "-" for none):
 * {@code ASSIGNOR, TOPIC:COUNT:RACKS;..., MEMBER:INSTANCE:RACK:GENERATION:TOPIC,...:TOPIC/PARTITION,...;...}
 * with RACKS = "a+b,a,,b", the racks of each partition.
 * Out: {@code MEMBER=TOPIC/PARTITION,...;...} in the order of Kafka's lists, members sorted, or {@code !message}.
 */
public final class AssignorOracle {
    private AssignorOracle() { }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(answer(line.split("\t", -1)));
            } catch (RuntimeException error) {
                out.println("!" + error.getClass().getSimpleName() + " " + error.getMessage());
            }
            if (!in.ready())  // whoever asks through a pipe waits for the answers so far
                out.flush();
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        ConsumerPartitionAssignor assignor = assignor(fields[0]);
        Map<String, Subscription> members = new LinkedHashMap<>();
        for (String text : split(fields[2], ";"))
            member(text.split(":", -1), fields[0].equals("sticky"), members);
        Map<String, Assignment> result =
            assignor.assign(cluster(fields[1]), new GroupSubscription(members)).groupAssignment();
        List<String> rows = new ArrayList<>();
        for (Map.Entry<String, Assignment> row : new TreeMap<>(result).entrySet()) {
            List<String> cells = new ArrayList<>();
            for (TopicPartition tp : row.getValue().partitions())
                cells.add(tp.topic() + "/" + tp.partition());
            rows.add(row.getKey() + "=" + String.join(",", cells));
        }
        return String.join(";", rows);
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static Cluster cluster(String text) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (String topic : split(text, ";")) {
            String[] parts = topic.split(":", -1);
            int count = Integer.parseInt(parts[1]);
            String[] racks = parts[2].equals("-") ? null : parts[2].split(",", -1);
            for (int p = 0; p < count; p++) {
                List<Node> replicas = new ArrayList<>();
                for (String rack : split(racks == null ? "" : racks[p], "\\+"))
                    replicas.add(nodes.computeIfAbsent(rack, r -> new Node(nodes.size(), "host", 9092, r)));
                if (replicas.isEmpty())
                    replicas.add(nodes.computeIfAbsent("", r -> new Node(nodes.size(), "host", 9092)));
                Node[] all = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(parts[0], p, all[0], all, all));
            }
        }
        return new Cluster("c", nodes.values(), infos, Collections.emptySet(), Collections.emptySet());
    }

    private static void member(String[] parts, boolean eager, Map<String, Subscription> members) {
        List<TopicPartition> owned = new ArrayList<>();
        for (String tp : split(parts[5], ",")) {
            int cut = tp.lastIndexOf('/');
            owned.add(new TopicPartition(tp.substring(0, cut), Integer.parseInt(tp.substring(cut + 1))));
        }
        int generation = Integer.parseInt(parts[3]);
        Optional<String> rack = parts[2].equals("-") ? Optional.empty() : Optional.of(parts[2]);
        Subscription subscription = new Subscription(
            split(parts[4], ","),
            eager ? (owned.isEmpty() ? null : stickyUserData(owned, generation)) : null,
            eager ? Collections.emptyList() : owned,
            generation,
            rack);
        if (!parts[1].equals("-"))
            subscription.setGroupInstanceId(Optional.of(parts[1]));
        members.put(parts[0], subscription);
    }

    /** Sticky user data, version 1: claims by topic, then the generation they are of. */
    private static ByteBuffer stickyUserData(List<TopicPartition> owned, int generation) {
        Map<String, List<Integer>> topics = new TreeMap<>();
        for (TopicPartition tp : owned)
            topics.computeIfAbsent(tp.topic(), t -> new ArrayList<>()).add(tp.partition());
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        buffer.putInt(topics.size());
        for (Map.Entry<String, List<Integer>> entry : topics.entrySet()) {
            byte[] name = entry.getKey().getBytes(StandardCharsets.UTF_8);
            buffer.putShort((short) name.length).put(name).putInt(entry.getValue().size());
            entry.getValue().forEach(buffer::putInt);
        }
        buffer.putInt(generation).flip();
        return buffer;
    }

    private static List<String> split(String text, String sign) {
        return text.isEmpty() ? Collections.emptyList() : Arrays.asList(text.split(sign, -1));
    }
}
