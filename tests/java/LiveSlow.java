import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer that works on each batch for some time, and leaves in order on SIGTERM.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP NAME WORK_MS [KEY=VALUE...]. Without {@code enable.auto.commit} it commits after
 * each batch.
 */
public final class LiveSlow {
    private LiveSlow() { }

    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        long workMs = Long.parseLong(arguments[4]);
        boolean commits = settings.get("enable.auto.commit").equals("false");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            main.interrupt();
            try {
                main.join();
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                if (consumer.poll(Duration.ofMillis(500)).isEmpty()) {
                    continue;
                }
                System.out.println("reads");
                Thread.sleep(workMs);
                if (commits) {
                    try {
                        consumer.commitSync();
                    } catch (CommitFailedException evicted) {
                        System.out.println(evicted.getMessage());
                    }
                }
            }
        } catch (WakeupException | InterruptedException | org.apache.kafka.common.errors.InterruptException stop) {
            Thread.interrupted();
        } finally {
            consumer.close();
        }
    }
}
