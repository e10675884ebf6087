import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * One leader turn of Kafka's Java client: decode every subscription, assign, encode every assignment.
 * usage: LeaderTurn ASSIGNOR SECONDS CASE OUTPUT; prints one JSON line, writes the assignments to OUTPUT.
 */
public class LeaderTurn {
    static final Node[] NODES = {new Node(0, "localhost", 9092)};
    static final List<PartitionInfo> PARTITIONS = new ArrayList<>();
    static final Map<String, byte[]> MESSAGES = new HashMap<>();
    static Map<String, ByteBuffer> last;

    public static void main(String[] arguments) throws Exception {
        read(arguments[2]);
        ConsumerPartitionAssignor assignor =
            arguments[0].equals("sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
        Cluster cluster = new Cluster("bench", Arrays.asList(NODES), PARTITIONS, Set.of(), Set.of());
        long used = cpu();
        double cold = turn(assignor, cluster), coldCpu = (cpu() - used) / 1e6;
        List<Double> times = new ArrayList<>(), cpus = new ArrayList<>();
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[1]) * 1e9);
        while (times.size() < 3 || System.nanoTime() < end) {
            if (!times.isEmpty() && cold > 20_000) break;
            used = cpu();
            times.add(turn(assignor, cluster));
            cpus.add((cpu() - used) / 1e6);
        }
        times.sort(null);
        double mean = cpus.stream().mapToDouble(d -> d).average().orElse(coldCpu);
        cpus.sort(null);
        System.out.printf(java.util.Locale.ROOT, "{\"cold_ms\":%.3f,\"cold_cpu_ms\":%.3f,\"min_ms\":%.3f,\"median_ms\":%.3f,\"min_cpu_ms\":%.3f,\"median_cpu_ms\":%.3f,\"mean_cpu_ms\":%.3f,\"turns\":%d}%n",
            cold, coldCpu, times.get(0), times.get(times.size() / 2), cpus.get(0), cpus.get(cpus.size() / 2), mean, times.size());
        write(arguments[3]);
    }

    /** Processor time of this process so far, compiler and collector included, in ns. */
    static long cpu() {
        var bean = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return bean.getProcessCpuTime();
    }

    static double turn(ConsumerPartitionAssignor assignor, Cluster cluster) {
        long begin = System.nanoTime();
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (Map.Entry<String, byte[]> one : MESSAGES.entrySet())
            subscriptions.put(one.getKey(), ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(one.getValue())));
        Map<String, Assignment> plan = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        Map<String, ByteBuffer> out = new HashMap<>();
        for (Map.Entry<String, Assignment> one : plan.entrySet())
            out.put(one.getKey(), ConsumerProtocol.serializeAssignment(one.getValue()));
        last = out;
        return (System.nanoTime() - begin) / 1e6;
    }

    static void read(String path) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(path), 1 << 20))) {
            for (int n = in.readInt(); n > 0; n--) {
                String topic = new String(in.readNBytes(in.readShort()), StandardCharsets.UTF_8);
                int count = in.readInt();
                for (int p = 0; p < count; p++)
                    PARTITIONS.add(new PartitionInfo(topic, p, NODES[0], NODES, NODES));
            }
            for (int n = in.readInt(); n > 0; n--) {
                String id = new String(in.readNBytes(in.readShort()), StandardCharsets.UTF_8);
                MESSAGES.put(id, in.readNBytes(in.readInt()));
            }
        }
    }

    static void write(String path) throws Exception {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(path)))) {
            out.writeInt(last.size());
            for (Map.Entry<String, ByteBuffer> one : last.entrySet()) {
                out.writeUTF(one.getKey());
                byte[] bytes = new byte[one.getValue().remaining()];
                one.getValue().duplicate().get(bytes);
                out.writeInt(bytes.length);
                out.write(bytes);
            }
        }
    }
}
