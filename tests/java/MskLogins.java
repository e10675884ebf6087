import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.Provider;
import java.security.Security;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.sasl.SaslException;
import javax.security.sasl.SaslServer;
import javax.security.sasl.SaslServerFactory;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.signer.Aws4Signer;
import software.amazon.awssdk.auth.signer.params.Aws4PresignerParams;
import software.amazon.awssdk.http.SdkHttpFullRequest;
import software.amazon.awssdk.http.SdkHttpMethod;
import software.amazon.awssdk.regions.Region;

/**
 * Gives a broker the logins of Amazon MSK: AWS_MSK_IAM, and OAUTHBEARER with a signed URL as token.
 *
 * <p>The login's request is signed once more by AWS's own SDK with the key of the JAAS options
 * (accessKey, secretKey, region), for the time that the login names; both signatures must be equal.
 */
public final class MskLogins {
    private static final DateTimeFormatter TIME =
        DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);

    private MskLogins() { }

    /** Returns the signature's fault, or null; keys of the request are in lower case. */
    static String faultOf(Map<String, String> request, Map<String, ?> options) {
        String accessKey = String.valueOf(options.get("accessKey"));
        String region = String.valueOf(options.get("region"));
        Instant at = Instant.from(TIME.parse(request.get("x-amz-date")));
        long seconds = Long.parseLong(request.get("x-amz-expires"));
        Instant now = Instant.now();
        if (at.isAfter(now.plusSeconds(300)) || at.plusSeconds(seconds).isBefore(now)) {
            return "Signature expired";
        }
        if (!request.get("x-amz-credential").startsWith(accessKey + "/")) {
            return "The security token included in the request is invalid";
        }
        if (!"kafka-cluster:Connect".equals(request.get("action"))) {
            return "Access denied";
        }
        SdkHttpFullRequest unsigned = SdkHttpFullRequest.builder()
            .method(SdkHttpMethod.GET).protocol("https").host(request.get("host")).encodedPath("/")
            .appendRawQueryParameter("Action", "kafka-cluster:Connect").build();
        Aws4PresignerParams params = Aws4PresignerParams.builder()
            .awsCredentials(AwsBasicCredentials.create(
                accessKey, String.valueOf(options.get("secretKey"))))
            .expirationTime(at.plusSeconds(seconds))
            .signingName("kafka-cluster").signingRegion(Region.of(region))
            .signingClockOverride(Clock.fixed(at, ZoneOffset.UTC)).build();
        String signature = Aws4Signer.create().presign(unsigned, params)
            .firstMatchingRawQueryParameter("X-Amz-Signature").orElseThrow();
        return signature.equals(request.get("x-amz-signature")) ? null : "Signature does not match";
    }

    /** Keeps the JAAS options of a listener's mechanism. */
    private abstract static class WithOptions implements AuthenticateCallbackHandler {
        Map<String, ?> options = Map.of();

        @Override
        public void configure(
                Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            options = entries.get(0).getOptions();
        }

        @Override
        public void close() { }
    }

    /** Validates a token of OAUTHBEARER: a signed URL, in Base64. */
    public static final class OfToken extends WithOptions {
        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback one : callbacks) {
                if (!(one instanceof OAuthBearerValidatorCallback callback)) {
                    throw new UnsupportedCallbackException(one);
                }
                Map<String, String> request = requestOf(callback.tokenValue());
                String fault = faultOf(request, options);
                if (fault == null) {
                    callback.token(new Signed(callback.tokenValue(), request));
                } else {
                    callback.error("invalid_token", null, null);
                }
            }
        }

        private static Map<String, String> requestOf(String token) {
            URI url = URI.create(
                new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8));
            Map<String, String> found = new HashMap<>(Map.of("host", url.getHost()));
            for (String pair : url.getRawQuery().split("&")) {
                String[] parts = pair.split("=", 2);
                String value = URLDecoder.decode(parts[1], StandardCharsets.UTF_8);
                found.put(parts[0].toLowerCase(java.util.Locale.ROOT), value);
            }
            return found;
        }
    }

    private record Signed(String value, Map<String, String> request) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            Instant at = Instant.from(TIME.parse(request.get("x-amz-date")));
            return at.toEpochMilli() + 1000 * Long.parseLong(request.get("x-amz-expires"));
        }

        @Override
        public String principalName() {
            return request.get("x-amz-credential").split("/")[0];
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }

    /** Hands the JAAS options to the server of AWS_MSK_IAM, which loading this class registers. */
    public static final class OfIam extends WithOptions {
        static {
            Security.addProvider(new Servers());
        }

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            throw new UnsupportedCallbackException(callbacks[0]);
        }
    }

    /** Java's provider of the mechanism's server. */
    public static final class Servers extends Provider {
        private static final long serialVersionUID = 1L;

        public Servers() {
            super("MskLogins", "1.0", "AWS_MSK_IAM");
            put("SaslServerFactory.AWS_MSK_IAM", Factory.class.getName());
        }
    }

    /** Makes servers of AWS_MSK_IAM. */
    public static final class Factory implements SaslServerFactory {
        @Override
        public SaslServer createSaslServer(
                String mechanism, String protocol, String host, Map<String, ?> props,
                CallbackHandler handler) {
            return new IamServer(((OfIam) handler).options);
        }

        @Override
        public String[] getMechanismNames(Map<String, ?> props) {
            return new String[] {"AWS_MSK_IAM"};
        }
    }

    private static final class IamServer implements SaslServer {
        private final Map<String, ?> options;
        private String user;

        IamServer(Map<String, ?> options) {
            this.options = options;
        }

        @Override
        public byte[] evaluateResponse(byte[] response) throws SaslException {
            try {
                Map<String, String> request = new HashMap<>();
                new ObjectMapper().readTree(response).fields().forEachRemaining(
                    field -> request.put(field.getKey(), field.getValue().asText()));
                String fault = faultOf(request, options);
                if (fault != null) {
                    throw new SaslAuthenticationException(fault);
                }
                user = request.get("x-amz-credential").split("/")[0];
                return "{\"version\":\"2020_10_22\",\"request-id\":\"1\"}"
                    .getBytes(StandardCharsets.UTF_8);
            } catch (java.io.IOException error) {
                throw new SaslException("not a login of AWS_MSK_IAM", error);
            }
        }

        @Override
        public boolean isComplete() {
            return user != null;
        }

        @Override
        public String getAuthorizationID() {
            return user;
        }

        @Override
        public String getMechanismName() {
            return "AWS_MSK_IAM";
        }

        @Override
        public byte[] unwrap(byte[] incoming, int offset, int length) {
            throw new IllegalStateException("no security layer");
        }

        @Override
        public byte[] wrap(byte[] outgoing, int offset, int length) {
            throw new IllegalStateException("no security layer");
        }

        @Override
        public Object getNegotiatedProperty(String name) {
            return null;
        }

        @Override
        public void dispose() { }
    }
}
