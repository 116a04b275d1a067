import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Numbers the records of each partition: bootstrap, topic, partitions, milliseconds of a tick, records of each partition in
 * a tick.  Says "acked partition number offset" or "failed partition number error", one line each.  SIGTERM: it waits for
 * what is under way.
 */
public class CountingProducer {
    private static final AtomicBoolean stopping = new AtomicBoolean();

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "5");
        settings.put("request.timeout.ms", "4000");
        settings.put("delivery.timeout.ms", String.valueOf(Integer.MAX_VALUE));
        settings.put("max.block.ms", String.valueOf(Integer.MAX_VALUE));
        settings.put("retry.backoff.ms", "50");
        settings.put("metadata.max.age.ms", "1000");
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]), tick = Integer.parseInt(args[3]), each = Integer.parseInt(args[4]);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                main.join(90_000);
            } catch (InterruptedException ignored) {
            }
        }));
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        for (int number = 0; !stopping.get(); number++) {
            for (int partition = 0; partition < partitions; partition++) {
                String place = partition + " " + number;
                producer.send(new ProducerRecord<>(topic, partition, null, String.valueOf(number)), (metadata, error) -> {
                    if (error == null) say("acked " + place + " " + metadata.offset());
                    else say("failed " + place + " " + error);
                });
            }
            if (number % each == each - 1) Thread.sleep(tick);
        }
        producer.flush();
        producer.close();
    }
}
