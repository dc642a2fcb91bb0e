package streamtopology.arena;

import com.dynatrace.research.shufflebench.consumer.AdvancedStateConsumer;
import com.dynatrace.research.shufflebench.consumer.ConsumerResult;
import com.dynatrace.research.shufflebench.consumer.State;
import com.dynatrace.research.shufflebench.record.TimestampedRecord;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.util.Collector;

/**
 * ShuffleBench on Flink 2.3, between tables: its FlinkShuffle is for Flink 1 and Kafka. Matcher and consumer are ShuffleBench's
 * own, the job's shape too; what is sent and kept are Flink's own types, which its serializers are faster with than Kryo.
 */
public final class FlinkShuffleBench {
  private static final TypeInformation<byte[]> BYTES = PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

  private static final TypeInformation<Tuple3<String, Long, byte[]>> RECORD = Types.TUPLE(Types.STRING, Types.LONG, BYTES);

  private FlinkShuffleBench() {}

  public static Table events(StreamTableEnvironment tables, String records, String rules, int rate, int bytes) {
    return tables.fromDataStream(
            tables
                .toDataStream(tables.from(records))
                .flatMap(
                    (row, out) -> {
                      long stamp = row.<Long>getFieldAs("stamp");
                      byte[] data = row.getFieldAs("data");
                      ShuffleBenchRules.of(rules)
                          .match(new TimestampedRecord(stamp, data))
                          .forEach(entry -> out.collect(Tuple3.of(entry.getKey(), stamp, data)));
                    },
                    RECORD)
                .keyBy(record -> record.f0, Types.STRING)
                .process(new Consumer(rate, bytes)))
        .as("consumer", "state");
  }

  private static final class Consumer
      extends KeyedProcessFunction<String, Tuple3<String, Long, byte[]>, Tuple2<String, byte[]>> {
    private final int rate;
    private final int bytes;
    private transient AdvancedStateConsumer consumer;
    private transient ValueState<byte[]> state;

    Consumer(int rate, int bytes) {
      this.rate = rate;
      this.bytes = bytes;
    }

    @Override
    public void open(OpenContext context) {
      consumer = new AdvancedStateConsumer("counter", rate, bytes);
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("state", BYTES));
    }

    @Override
    public void processElement(Tuple3<String, Long, byte[]> record, Context context, Collector<Tuple2<String, byte[]>> out)
        throws Exception {
      ConsumerResult result = consumer.accept(new TimestampedRecord(record.f1, record.f2), new State(state.value()));
      state.update(result.getState().getData());
      result.getEvent().ifPresent(event -> out.collect(Tuple2.of(record.f0, event.getData())));
    }
  }
}
