import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One Java member of the live group of {@code whatif.py}, with the diary of {@code bounce_member.py}.
 *
 * <p>Arguments: DIARY TOPIC RESTORE_SECONDS WORK_SECONDS, then settings of the consumer as NAME=VALUE.
 * State is rebuilt for a partition only when this process does not hold it already. It joins when
 * standard input has a line, or ends. SIGTERM closes it.
 */
public final class BounceMember implements ConsumerRebalanceListener {
    private final PrintStream diary;
    private final long restoreMs;
    private final Set<Integer> state = new HashSet<>();
    private final Set<Integer> givenUp = new HashSet<>();
    private volatile boolean over;

    private BounceMember(String path, double restoreSeconds) throws Exception {
        diary = new PrintStream(new FileOutputStream(path, true), true, StandardCharsets.UTF_8);
        restoreMs = Math.round(1000 * restoreSeconds);
    }

    public static void main(String[] arguments) throws Exception {
        BounceMember member = new BounceMember(arguments[0], Double.parseDouble(arguments[2]));
        member.consume(arguments[1], Math.round(1000 * Double.parseDouble(arguments[3])), arguments);
    }

    private void consume(String topic, long workMs, String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 4; i < arguments.length; i++) {
            int split = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, split), arguments[i].substring(split + 1));
        }
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            over = true;
            try {
                closed.await();
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            warmUp(consumer, topic);
            System.in.read();
            write("joins", "[]");
            consumer.subscribe(List.of(topic), this);
            while (!over) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                for (TopicPartition one : records.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> batch = records.records(one);
                    long first = batch.get(0).offset();
                    long last = batch.get(batch.size() - 1).offset();
                    write("read", one.partition() + ", " + first + ", " + last);
                }
                Thread.sleep(workMs);
            }
        }
        write("closed", "[]");
        closed.countDown();
    }

    /** Fetch once without the group, so that classes are loaded before the bounce. */
    private static void warmUp(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        TopicPartition one = new TopicPartition(topic, 0);
        consumer.assign(List.of(one));
        consumer.seekToEnd(List.of(one));
        for (int i = 0; i < 20; i++) {
            consumer.poll(Duration.ofMillis(50));
        }
        consumer.unsubscribe();
    }

    @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = numbers("assigned", partitions);
        Set<Integer> gained = new HashSet<>(numbers);
        gained.removeAll(state);
        sleep(restoreMs * gained.size());
        givenUp.removeAll(numbers);
        state.removeAll(givenUp);
        state.addAll(numbers);
        givenUp.clear();
    }

    @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        givenUp.addAll(numbers("revoked", partitions));
    }

    @Override public void onPartitionsLost(Collection<TopicPartition> partitions) {
        givenUp.addAll(numbers("lost", partitions));
    }

    private TreeSet<Integer> numbers(String event, Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = new TreeSet<>();
        for (TopicPartition one : partitions) {
            numbers.add(one.partition());
        }
        write(event, new ArrayList<>(numbers).toString());
        return numbers;
    }

    private synchronized void write(String event, String more) {
        diary.printf("[%.3f, \"%s\", %s]%n", System.currentTimeMillis() / 1000.0, event, more);
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
    }
}
