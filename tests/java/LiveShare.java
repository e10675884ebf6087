import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a share group (KIP-932). It accepts every record but the last one of each batch, which it gives
 * back to be delivered again, so the acknowledged records have gaps.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP NAME. SIGTERM closes it in order.
 */
public final class LiveShare {
    private LiveShare() { }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", arguments[3]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "40");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings);
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
            consumer.subscribe(List.of(arguments[1]));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                int left = records.count();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    left--;
                    consumer.acknowledge(record, left == 0 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
                Thread.sleep(200);
            }
        } catch (WakeupException stop) {
            consumer.close();
        } finally {
            closed.countDown();
        }
    }
}
