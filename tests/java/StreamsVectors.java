import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

/**
 * Writes user data of Kafka Streams, in every version, with Kafka's own classes.
 *
 * <p>Argument: a folder; streams_user_data.json goes there, one vector a line.
 */
public final class StreamsVectors {
    private static final List<String> LINES = new ArrayList<>();

    private StreamsVectors() { }

    public static void main(String[] arguments) throws Exception {
        for (int version = 1; version <= 11; version++) {
            subscription(version, false);
            subscription(version, true);
            assignment(version, false);
            assignment(version, true);
        }
        Path file = Path.of(arguments[0]).resolve("streams_user_data.json");
        try (PrintStream out = new PrintStream(Files.newOutputStream(file), false, StandardCharsets.UTF_8)) {
            out.print("[\n" + String.join(",\n", LINES) + "\n]\n");
        }
    }

    private static void subscription(int version, boolean full) {
        Map<TaskId, Long> sums = new TreeMap<>();
        if (full) {
            sums.put(task(version, 0, 1), -2L);
            sums.put(task(version, 1, 3), 40L + version);
            sums.put(task(version, 1, 10), -2L);
        }
        Map<String, String> tags = full && version >= 11 ? Map.of("zone", "a") : Map.of();
        SubscriptionInfo info = new SubscriptionInfo(version, 11, new ProcessId(new UUID(7, version)),
            full ? "host:80" : null, sums, (byte) 3, 0, tags);
        StringBuilder read = new StringBuilder();
        sums.forEach((task, sum) -> read.append(read.length() == 0 ? "" : ",").append(one(task, sum)));
        line("streams-subscription", version, info.encode(),
            "{\"process_id\":\"" + new UUID(7, version) + "\",\"offset_sums\":[" + read + "]}");
    }

    private static void assignment(int version, boolean full) {
        List<TaskId> active = new ArrayList<>();
        Map<TaskId, Set<TopicPartition>> standby = new TreeMap<>();
        Map<HostInfo, Set<TopicPartition>> hosts = Map.of();
        TopicPartition one = new TopicPartition("orders", 1);
        if (full) {
            active.add(task(version, 0, 1));
            active.add(task(version, 0, 1));
            active.add(task(version, 2, 0));
            standby.put(task(version, 1, 3), Set.of(one));
            standby.put(task(version, 1, 4), Set.of());
            hosts = Map.of(new HostInfo("host", 80), Set.of(one));
        }
        AssignmentInfo info = new AssignmentInfo(version, 11, active, standby, hosts, hosts, full && version >= 4 ? 1 : 0);
        long next = full && version >= 7 ? 1_800_000_000_000L : Long.MAX_VALUE;
        info.setNextRebalanceTime(next);
        StringBuilder run = new StringBuilder();
        active.stream().distinct().forEach(task -> run.append(run.length() == 0 ? "" : ",").append(one(task, null)));
        StringBuilder stand = new StringBuilder();
        standby.keySet().forEach(task -> stand.append(stand.length() == 0 ? "" : ",").append(one(task, null)));
        line("streams-assignment", version, info.encode(), "{\"active\":[" + run + "],\"standby\":[" + stand
            + "],\"error\":" + info.errCode() + ",\"next_rebalance_ms\":" + next + "}");
    }

    /** A task, of a named topology where the version has such. */
    private static TaskId task(int version, int subtopology, int partition) {
        return version == 10 ? new TaskId(subtopology, partition, "named") : new TaskId(subtopology, partition);
    }

    private static String one(TaskId task, Long sum) {
        String name = task.topologyName() == null ? "" : task.topologyName() + "__";
        return "[\"" + name + task.subtopology() + "\"," + task.partition() + (sum == null ? "" : "," + sum) + "]";
    }

    private static void line(String schema, int version, ByteBuffer data, String json) {
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        LINES.add("{\"schema\":\"" + schema + "\",\"version\":" + version + ",\"hex\":\""
            + HexFormat.of().formatHex(bytes) + "\",\"json\":" + json + "}");
    }
}
