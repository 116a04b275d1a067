import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.Scanner;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** For each line of standard input, a certificate in Base64 and rules in Base64: the subject's name as Java writes it,
 * and the principal's by Kafka's class, or `none`. */
public class Names {
    public static void main(String[] arguments) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            byte[] encoded = Base64.getDecoder().decode(words[0]);
            String rules = new String(Base64.getDecoder().decode(words[1]), StandardCharsets.UTF_8);
            X509Certificate certificate =
                (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(encoded));
            String name = certificate.getSubjectX500Principal().getName();
            String principal;
            try {
                principal = SslPrincipalMapper.fromRules(rules).getName(name);
            } catch (Exception error) {
                principal = "none";
            }
            System.out.println(encode(name) + " " + encode(principal));
        }
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
