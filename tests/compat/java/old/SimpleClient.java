import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/**
 * The clients of Kafka 0.8.2.
 *
 * produce BOOTSTRAP TOPIC COUNT CODEC: by the old Scala producer. consume BOOTSTRAP TOPIC COUNT GROUP: by the simple
 * consumer, which finds leaders and ends itself; commits to GROUP and reads that back, in both versions of each.
 */
public class SimpleClient {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("produce")) {
            Properties properties = new Properties();
            properties.put("metadata.broker.list", args[1]);
            properties.put("serializer.class", "kafka.serializer.StringEncoder");
            properties.put("request.required.acks", "-1");
            properties.put("compression.codec", args[4]);
            Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
            List<KeyedMessage<String, String>> messages = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(args[3]); i++) {
                messages.add(new KeyedMessage<>(args[2], "key-" + i, args[4] + "-value-" + i));
            }
            producer.send(messages);
            producer.close();
        } else {
            String[] address = args[1].split(":");
            consume(address[0], Integer.parseInt(address[1]), args[2], Integer.parseInt(args[3]), args[4]);
        }
        System.out.println("done");
    }

    static void consume(String host, int port, String topic, int limit, String group) throws Exception {
        SimpleConsumer consumer = new SimpleConsumer(host, port, 10000, 65536, "simple");
        TopicMetadata metadata =
            consumer.send(new TopicMetadataRequest(Collections.singletonList(topic))).topicsMetadata().get(0);
        int count = 0;
        Map<TopicAndPartition, OffsetAndMetadata> reached = new HashMap<>();
        for (PartitionMetadata partition : metadata.partitionsMetadata()) {
            int id = partition.partitionId();
            long offset = bound(consumer, topic, id, -2);
            long end = bound(consumer, topic, id, -1);
            while (offset < end) {
                FetchResponse answer = consumer.fetch(new FetchRequestBuilder()
                    .clientId("simple").addFetch(topic, id, offset, 100000).maxWait(1000).minBytes(1).build());
                if (answer.hasError()) {
                    throw new RuntimeException("fetch: " + answer.errorCode(topic, id));
                }
                for (MessageAndOffset each : answer.messageSet(topic, id)) {
                    if (each.offset() < offset) {
                        continue;
                    }
                    Message message = each.message();
                    System.out.println("record " + id + " " + each.offset() + " " + text(message.key()) + " "
                        + text(message.payload()));
                    offset = each.nextOffset();
                    count++;
                }
            }
            reached.put(new TopicAndPartition(topic, id), new OffsetAndMetadata(offset, "note", -1L));
        }
        for (short version = 0; version < 2; version++) {
            Map<TopicAndPartition, ?> errors =
                consumer.commitOffsets(new OffsetCommitRequest(group + version, reached, 1, "simple", version)).errors();
            for (Object error : errors.values()) {
                if (((Number) error).intValue() != 0) {
                    throw new RuntimeException("commit v" + version + ": " + error);
                }
            }
            Map<TopicAndPartition, kafka.common.OffsetMetadataAndError> found = consumer.fetchOffsets(
                new OffsetFetchRequest(group + version, new ArrayList<>(reached.keySet()), version, 2, "simple")).offsets();
            for (TopicAndPartition each : reached.keySet()) {
                System.out.println("committed " + version + " " + each.partition() + " " + found.get(each).offset());
            }
        }
        consumer.close();
        if (count != limit) {
            throw new RuntimeException("found " + count);
        }
    }

    static long bound(SimpleConsumer consumer, String topic, int partition, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1));
        return consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "simple")).offsets(topic, partition)[0];
    }

    static String text(ByteBuffer data) {
        if (data == null) {
            return "null";
        }
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return new String(bytes);
    }
}
