import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/** A member of the soak in Java: bootstrap, topic, group, protocol (classic, consumer or share), then setting=value ... */
public class SoakMember {
    private static final AtomicBoolean stopping = new AtomicBoolean();
    private static final TreeSet<Integer> owned = new TreeSet<>();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        for (int index = 4; index < args.length; index++) {
            String[] words = args[index].split("=", 2);
            settings.put(words[0], words[1]);
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                main.join(20_000);
            } catch (InterruptedException ignored) {
            }
        }));
        if (args[3].equals("share")) share(settings, args[1]);
        else consume(settings, args[1]);
    }

    private static synchronized void say(String line) {
        System.out.println(System.nanoTime() + " " + line);
    }

    private static void sayOwned() {
        StringBuilder line = new StringBuilder("owns");
        for (int partition : owned) line.append(' ').append(partition);
        say(line.toString());
    }

    private static void sayGot(TopicPartition place, Iterable<? extends ConsumerRecord<byte[], byte[]>> records, String word) {
        long first = -1, last = -2;
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.offset() != last + 1) {
                if (first >= 0) say(word + " " + place.partition() + " " + first + " " + last);
                first = record.offset();
            }
            last = record.offset();
        }
        if (first >= 0) say(word + " " + place.partition() + " " + first + " " + last);
    }

    private static void consume(Properties settings, String topic) {
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                forget(partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                forget(partitions);
            }

            private void forget(Collection<TopicPartition> partitions) {
                places.keySet().removeAll(partitions);
                for (TopicPartition place : partitions) owned.remove(place.partition());
                sayOwned();
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                for (TopicPartition place : partitions) owned.add(place.partition());
                sayOwned();
            }
        });
        while (!stopping.get()) {
            try {
                var polled = consumer.poll(Duration.ofMillis(200));
                for (TopicPartition place : polled.partitions()) {
                    sayGot(place, polled.records(place), "got");
                    places.put(place, polled.nextOffsets().get(place));
                }
                if (places.isEmpty()) continue;
                Map<TopicPartition, OffsetAndMetadata> committed = Map.copyOf(places);
                places.clear();
                consumer.commitSync(committed, Duration.ofSeconds(10));
                committed.forEach((place, offset) -> say("committed " + place.partition() + " " + offset.offset()));
            } catch (Exception error) {
                say("failed " + error);
            }
        }
        consumer.close();
        owned.clear();
        sayOwned();
        say("left");
    }

    private static void share(Properties settings, String topic) {
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        say("owns");
        while (!stopping.get()) {
            try {
                var polled = consumer.poll(Duration.ofMillis(200));
                if (polled.isEmpty()) continue;
                for (TopicPartition place : polled.partitions()) sayGot(place, polled.records(place), "got");
                consumer.commitSync(Duration.ofSeconds(10)).forEach((place, error) -> {
                    TopicPartition partition = place.topicPartition();
                    if (error.isPresent()) say("failed " + partition.partition() + " " + error.get());
                    else sayGot(partition, polled.records(partition), "accepted");
                });
            } catch (Exception error) {
                say("failed " + error);
            }
        }
        consumer.close();
        say("left");
    }
}
