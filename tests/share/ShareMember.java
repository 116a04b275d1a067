import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

/**
 * A member of a share group that does what the lines of its input say, one answer line for each:
 * poll MS | accept N | release N | reject N | renew N (of the records polled last, those with value N) | commit | close
 */
public class ShareMember {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("share.acknowledgement.mode", args[3]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(List.of(args[2].split(",")));
        Map<String, ConsumerRecord<String, String>> polled = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        System.out.println("ready");
        while ((line = lines.readLine()) != null) {
            String[] words = line.split(" ");
            StringBuilder answer = new StringBuilder("ok");
            try {
                switch (words[0]) {
                    case "poll":
                        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(Long.parseLong(words[1])))) {
                            polled.put(record.value(), record);
                            answer.append(' ').append(record.value()).append(':').append(record.deliveryCount().get());
                        }
                        break;
                    case "commit":
                        consumer.commitSync(Duration.ofSeconds(20)).forEach((partition, error) -> {
                            if (error.isPresent()) answer.append(' ').append(partition.partition()).append(error.get());
                        });
                        break;
                    case "close":
                        consumer.close();
                        System.out.println("ok");
                        return;
                    default:
                        consumer.acknowledge(polled.get(words[1]), AcknowledgeType.valueOf(words[0].toUpperCase()));
                }
            } catch (Exception error) {
                answer.replace(0, 2, "error " + error);
            }
            System.out.println(answer);
        }
    }
}
