import java.util.Arrays;
import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Java's client of any release from 0.9 to 3.9, compiled against that one.
 *
 * produce BOOTSTRAP TOPIC COUNT CODEC: records key-N, value-N, partitions by key. consume BOOTSTRAP TOPIC COUNT GROUP:
 * prints partition, offset, key and value of COUNT records, then commits. share BOOTSTRAP TOPIC SECONDS GROUP: prints
 * what it is assigned, whenever that changes, and each record, for so long.
 */
public class OldClient {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[1]);
        if (args[0].equals("produce")) {
            produce(properties, args[2], Integer.parseInt(args[3]), args[4]);
        } else {
            consume(properties, args[0].equals("share"), args[2], Integer.parseInt(args[3]), args[4]);
        }
    }

    static void produce(Properties properties, String topic, int count, String codec) throws Exception {
        properties.put("compression.type", codec);
        properties.put("acks", "all");
        properties.put("linger.ms", "20");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        java.util.List<java.util.concurrent.Future<?>> sent = new java.util.ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, "key-" + i, codec + "-value-" + i)));
        }
        for (java.util.concurrent.Future<?> each : sent) {
            each.get();
        }
        producer.close();
        System.out.println("done");
    }

    static void consume(Properties properties, boolean share, String topic, int limit, String group) {
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("session.timeout.ms", "10000");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(Arrays.asList(topic));
        long end = System.currentTimeMillis() + (share ? limit * 1000L : 60000L);
        int count = 0;
        java.util.Set<?> assigned = Collections.emptySet();
        while (System.currentTimeMillis() < end && (share || count < limit)) {
            for (ConsumerRecord<String, String> record : consumer.poll(200)) {
                System.out.println(
                    "record " + record.partition() + " " + record.offset() + " " + record.key() + " " + record.value());
                count++;
            }
            if (!consumer.assignment().equals(assigned)) {
                assigned = new java.util.HashSet<>(consumer.assignment());
                System.out.println("assigned " + assigned.size());
            }
            consumer.commitSync();
            System.out.flush();
        }
        consumer.close();
        System.out.println("done");
    }
}
