import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One Java member of a live group, with the journal of the Python ones: a line of JSON per event.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP NAME JOURNAL ASSIGNORS, the last one classes of
 * org.apache.kafka.clients.consumer joined by commas. SIGTERM closes it.
 */
public final class LiveMember {
    private LiveMember() { }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String name = arguments[3];
        PrintStream journal = new PrintStream(Files.newOutputStream(Path.of(arguments[4])), true, StandardCharsets.UTF_8);
        StringBuilder classes = new StringBuilder();
        for (String one : arguments[5].split(",")) {
            classes.append(classes.length() == 0 ? "" : ",").append("org.apache.kafka.clients.consumer.").append(one);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", name);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("partition.assignment.strategy", classes.toString());
        settings.put("auto.offset.reset", "earliest");
        settings.put("heartbeat.interval.ms", "300");
        settings.put("session.timeout.ms", "30000");

        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }));
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                write(journal, name, "assigned", partitions);
            }

            @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                write(journal, name, "revoked", partitions);
            }

            @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
                write(journal, name, "lost", partitions);
            }
        };
        try {
            consumer.subscribe(List.of(topic), listener);
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (TopicPartition one : records.partitions()) {
                    var some = records.records(one);
                    write(journal, name, "batch", List.of(one), some.get(0).offset(), some.get(some.size() - 1).offset());
                }
            }
        } catch (WakeupException stop) {
            consumer.close();
            write(journal, name, "end", List.of());
        } finally {
            closed.countDown();
        }
    }

    private static void write(PrintStream journal, String name, String event, Collection<TopicPartition> partitions) {
        write(journal, name, event, partitions, -1, -1);
    }

    private static void write(
            PrintStream journal, String name, String event, Collection<TopicPartition> partitions, long first, long last) {
        TreeSet<Integer> numbers = new TreeSet<>();
        for (TopicPartition one : partitions) {
            numbers.add(one.partition());
        }
        double seconds = System.currentTimeMillis() / 1000.0;
        synchronized (journal) {
            journal.printf(
                    "{\"time\": %.3f, \"member\": \"%s\", \"event\": \"%s\", \"partitions\": %s, \"first\": %d, \"last\": %d}%n",
                    seconds, name, event, numbers, first, last);
        }
    }
}
