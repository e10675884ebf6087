import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * One process of a Kafka Streams application with two subtopologies: the second counts by a new key, so it reads a
 * repartition topic and has a store with a changelog.
 *
 * <p>Arguments: BOOTSTRAP TOPIC GROUP NAME FOLDER, then settings as NAME=VALUE. SIGTERM closes it in order, and its
 * member leaves the group; kill it for a crash.
 */
public final class LiveStreams {
    private LiveStreams() { }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[2]);
        settings.put("client.id", arguments[3]);
        settings.put("state.dir", arguments[4]);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("commit.interval.ms", "1000");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 5; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1])
            .map((key, value) -> KeyValue.pair(value, value))
            .groupByKey()
            .count(Materialized.as("counts"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(System.currentTimeMillis() + " " + now));
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(30));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
        Thread.currentThread().join();
    }
}
