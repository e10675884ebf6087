import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A Java member of a live group. Arguments: TOPIC, then settings as KEY=VALUE. SIGTERM closes it. */
public final class GroupMember {
    private GroupMember() { }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
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
        try {
            consumer.subscribe(List.of(arguments[0]));
            while (true) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (WakeupException stop) {
            consumer.close();
        } finally {
            closed.countDown();
        }
    }
}
