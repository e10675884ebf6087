import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Constructs a consumer for each value of partition.assignment.strategy on stdin: "ok", or why not. */
public final class Configured {
    private Configured() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", "127.0.0.1:1");
            settings.put("group.id", "g");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("partition.assignment.strategy", line);
            try {
                new KafkaConsumer<byte[], byte[]>(settings).close(java.time.Duration.ZERO);
                System.out.println("ok");
            } catch (KafkaException error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println(cause.getMessage().lines().findFirst().orElse("?"));
            }
        }
    }
}
