import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer that stalls while its process and its heartbeats go on: in a batch that comes 2 s after its first one or
 * later, or when it is asked to give partitions up.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP NAME work|revoke [KEY=VALUE...]
 */
public final class LiveStalled {
    private static final long LATER_MS = 2_000;

    private LiveStalled() { }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("client.id", arguments[3]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        boolean inRevoke = arguments[4].equals("revoke");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(arguments[1]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                if (inRevoke && !partitions.isEmpty()) {
                    stall();
                }
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
        });
        long firstMs = Long.MAX_VALUE;
        while (true) {
            if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                firstMs = Math.min(firstMs, System.currentTimeMillis());
                if (!inRevoke && System.currentTimeMillis() - firstMs > LATER_MS) {
                    stall();
                }
            }
        }
    }

    private static void stall() {
        System.out.println("stalls");
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException stop) {
            throw new IllegalStateException(stop);
        }
    }
}
