import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Asks Kafka's own authorizer; see tests/security/acl/decisions.py for the lines that come in and go out. */
public class Decisions {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public int requestType() {
            return 0;
        }

        public int requestVersion() {
            return 9;
        }

        public String clientId() {
            return "decisions";
        }

        public int correlationId() {
            return 1;
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter out =
            new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        StringBuilder answers = new StringBuilder();
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "settings" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        "node.id", "1", "super.users", words[1], "allow.everyone.if.no.acl.found", words[2]));
                    Plugin.wrapInstance(authorizer, new Metrics(), "authorizer.class.name");
                    acls.clear();
                }
                case "acl" -> acls.put(new Uuid(7, acls.size() + 1), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(words[1])), words[2],
                    PatternType.fromCode(Byte.parseByte(words[3])), words[4], words[5],
                    AclOperation.fromCode(Byte.parseByte(words[6])),
                    AclPermissionType.fromCode(Byte.parseByte(words[7]))));
                case "acls end" -> {
                    authorizer.loadSnapshot(acls);
                    authorizer.completeInitialLoad();
                }
                case "may" -> answers.append(authorizer.authorize(context(words), List.of(new Action(
                        AclOperation.fromCode(Byte.parseByte(words[4])),
                        new ResourcePattern(
                            ResourceType.fromCode(Byte.parseByte(words[5])), words[6], PatternType.LITERAL),
                        1, false, false))).get(0) == AuthorizationResult.ALLOWED ? 'a' : 'd');
                case "any" -> answers.append(authorizer.authorizeByResourceType(context(words),
                        AclOperation.fromCode(Byte.parseByte(words[4])),
                        ResourceType.fromCode(Byte.parseByte(words[5]))) == AuthorizationResult.ALLOWED ? 'a' : 'd');
                case "end" -> {
                    out.println(answers);
                    answers.setLength(0);
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static Context context(String[] words) throws Exception {
        return new Context(new KafkaPrincipal(words[1], words[2]), InetAddress.getByName(words[3]));
    }
}
