import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command line tools, one question after the other: a line [CLASS, ARGUMENT, ...] of JSON
 * is answered by a line [CODE, STDOUT, STDERR].
 */
public final class LiveTools {
    private static int code;

    private LiveTools() { }

    /** What a tool throws instead of ending this JVM. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static void end(int status, String message) {
        code = status;
        throw new Ended();
    }

    public static void main(String[] nothing) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // Scala keeps the streams that it finds at first, so these two stay.
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(LiveTools::end);
        Exit.setHaltProcedure(LiveTools::end);
        ObjectMapper json = new ObjectMapper();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = json.readValue(line, String[].class);
            code = 0;
            out.reset();
            err.reset();
            try {
                Object arguments = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Ended)) {
                    code = 1;
                    thrown.getCause().printStackTrace();
                }
            }
            String[] said = {out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8)};
            answers.println(json.writeValueAsString(new Object[] {code, said[0], said[1]}));
        }
    }
}
