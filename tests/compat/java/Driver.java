import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own Java client behind the line protocol of tests/compat/client.py. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> member;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0]);
        LinkedBlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread listener = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                for (String line = in.readLine(); line != null; line = in.readLine()) commands.put(line);
                commands.put("{\"op\":\"quit\"}");
            } catch (Exception error) {
                Runtime.getRuntime().halt(1);
            }
        });
        listener.setDaemon(true);
        listener.start();
        while (true) {
            if (driver.member != null && commands.isEmpty()) {
                driver.poll();
                continue;
            }
            JsonNode command = JSON.readTree(commands.take());
            String operation = command.get("op").asText();
            if (operation.equals("quit")) Runtime.getRuntime().halt(0);
            try {
                ObjectNode done = JSON.createObjectNode().put("event", "done");
                done.set("result", driver.serve(operation, command));
                emit(done);
            } catch (Exception error) {
                emit(JSON.createObjectNode().put("event", "error").put("text", operation + ": " + error));
            }
        }
    }

    private JsonNode serve(String operation, JsonNode command) throws Exception {
        switch (operation) {
            case "produce": return produce(command);
            case "read": return read(command);
            case "join": join(command); return null;
            case "commit": member.commitSync(Duration.ofSeconds(30)); return null;
            case "leave": member.close(); member = null; return null;
            default: throw new IllegalArgumentException(operation);
        }
    }

    private JsonNode produce(JsonNode command) throws Exception {
        String codec = command.get("codec").asText();
        boolean idempotent = command.path("idempotent").asBoolean(true);
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(codec + idempotent, ignored -> {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("compression.type", codec);
            settings.put("enable.idempotence", String.valueOf(idempotent));
            settings.put("acks", "all");
            settings.put("linger.ms", "5");
            settings.put("max.request.size", "2000000");
            return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        });
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode one : command.get("records")) {
            ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(command.get("topic").asText(),
                one.get("partition").asInt(), one.get("timestamp").asLong(), decode(one.get("key")), decode(one.get("value")));
            for (JsonNode header : one.get("headers")) made.headers().add(header.get(0).asText(), decode(header.get(1)));
            futures.add(producer.send(made));
        }
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> future : futures) offsets.add(future.get(40, TimeUnit.SECONDS).offset());
        return offsets;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        if (group != null) settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "100");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private JsonNode read(JsonNode command) {
        Map<Integer, Long> left = new HashMap<>();
        command.get("ends").fields().forEachRemaining(end -> left.put(Integer.valueOf(end.getKey()), end.getValue().asLong()));
        ArrayNode found = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(null, Map.of())) {
            List<TopicPartition> places = new ArrayList<>();
            for (int partition : left.keySet()) places.add(new TopicPartition(command.get("topic").asText(), partition));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
            while (!left.isEmpty()) {
                if (System.nanoTime() > deadline) throw new IllegalStateException("missing ends: " + left);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(line(record));
                    Long end = left.get(record.partition());
                    if (end != null && record.offset() + 1 >= end) left.remove(record.partition());
                }
            }
        }
        return found;
    }

    private void join(JsonNode command) {
        Map<String, String> more = new HashMap<>();
        if (command.has("protocol")) {
            // The consumer protocol leaves sessions, heartbeats and the assignor to the broker.
            more.put("group.protocol", command.get("protocol").asText());
        } else {
            more.put("session.timeout.ms", command.get("session_ms").asText());
            more.put("heartbeat.interval.ms", command.get("heartbeat_ms").asText());
            more.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        Set<TopicPartition> owned = new HashSet<>();
        member = consumer(command.get("group").asText(), more);
        member.subscribe(List.of(command.get("topic").asText()), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                owned.addAll(partitions);
                assigned(owned);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                owned.removeAll(partitions);
                assigned(owned);
            }
        });
    }

    private static void assigned(Collection<TopicPartition> partitions) {
        ObjectNode event = JSON.createObjectNode().put("event", "assigned");
        ArrayNode numbers = event.putArray("partitions");
        for (TopicPartition partition : partitions) numbers.add(partition.partition());
        emit(event);
    }

    private void poll() {
        try {
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(50))) {
                emit(line(record).put("event", "record"));
            }
        } catch (Exception error) {
            emit(JSON.createObjectNode().put("event", "error").put("text", "poll: " + error));
        }
    }

    private static ObjectNode line(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("partition", record.partition());
        line.put("offset", record.offset());
        line.put("key", encode(record.key()));
        line.put("value", encode(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) headers.addArray().add(header.key()).add(encode(header.value()));
        line.put("timestamp", record.timestamp());
        return line;
    }

    private static synchronized void emit(ObjectNode event) {
        byte[] text = (event + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(text, 0, text.length);
        System.out.flush();
    }

    private static String encode(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static byte[] decode(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
