import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Numbers the orders of topic `orders` in topic `bills`, exactly once.  Arguments: the broker, then Flink's settings. */
public class FlinkOrders {
  static class Number extends RichMapFunction<String, String> {
    private transient ValueState<Long> count;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
    }

    @Override
    public String map(String order) throws Exception {
      long next = (count.value() == null ? 0 : count.value()) + 1;
      count.update(next);
      return next + " " + order;
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> settings =
        Arrays.stream(args).skip(1).map(word -> word.split("=", 2)).collect(Collectors.toMap(p -> p[0], p -> p[1]));
    StreamExecutionEnvironment flink =
        StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(settings));
    flink.setParallelism(1);
    KafkaSource<String> orders =
        KafkaSource.<String>builder()
            .setBootstrapServers(args[0])
            .setTopics("orders")
            .setGroupId("billing")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    KafkaSink<String> bills =
        KafkaSink.<String>builder()
            .setBootstrapServers(args[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("billing")
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(
                KafkaRecordSerializationSchema.<String>builder()
                    .setTopic("bills")
                    .setValueSerializationSchema(new SimpleStringSchema())
                    .build())
            .build();
    flink.fromSource(orders, WatermarkStrategy.noWatermarks(), "orders")
        .uid("orders")
        .keyBy(order -> "all")
        .map(new Number())
        .uid("number")
        .sinkTo(bills)
        .uid("bills");
    flink.execute("billing");
  }
}
