import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Reads texts in base64, one a line, as Kafka reads sasl.jaas.config: prints module, flag and options, or "-". */
public final class Jaas {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            System.out.println(answer(text));
        }
    }

    private static String answer(String text) {
        List<String> words = new ArrayList<>();
        try {
            Map<String, Object> config = Collections.singletonMap("sasl.jaas.config", new Password(text));
            for (AppConfigurationEntry entry : JaasContext.loadClientContext(config).configurationEntries()) {
                words.add(coded(entry.getLoginModuleName()));
                words.add(entry.getControlFlag().toString().replaceAll(".*: ", ""));
                for (Map.Entry<String, ?> option : new TreeMap<>(entry.getOptions()).entrySet()) {
                    words.add(coded(option.getKey()) + "=" + coded((String) option.getValue()));
                }
            }
        } catch (RuntimeException error) {
            return "-";
        }
        return String.join(" ", words);
    }

    private static String coded(String text) {
        return Base64.getEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8)) + ".";
    }
}
