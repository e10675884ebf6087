import java.util.Arrays;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Kafka's error codes, one a line: code, name, whether its exception is retriable. After them, for
 * each argument "package.Class[$Inner] method", whether the class declares the method.
 */
public class ErrorCodes {
    public static void main(String[] arguments) throws Exception {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + " " + error.name() + " " + retriable);
        }
        for (String argument : arguments) {
            String[] parts = argument.split(" ");
            boolean found = Arrays.stream(Class.forName(parts[0]).getDeclaredMethods())
                .anyMatch(method -> method.getName().equals(parts[1]));
            System.out.println(argument + " " + found);
        }
    }
}
