package streamtopology.arena;

import com.dynatrace.research.shufflebench.consumer.AdvancedStateConsumer;
import com.dynatrace.research.shufflebench.consumer.ConsumerResult;
import com.dynatrace.research.shufflebench.consumer.State;
import com.dynatrace.research.shufflebench.record.TimestampedRecord;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import scala.Tuple2;
import scala.Tuple3;

/**
 * ShuffleBench on Spark 4.3: the plan of its SparkStructuredStreamingShuffle, without Kafka and with Spark's own types in place
 * of Kryo's. Matcher and consumer are ShuffleBench's own.
 */
public final class SparkShuffleBench {
  private SparkShuffleBench() {}

  public static Dataset<Row> events(Dataset<Row> records, String rules, int rate, int bytes) {
    FlatMapFunction<Tuple2<Long, byte[]>, Tuple3<String, Long, byte[]>> match =
        record -> {
          List<Tuple3<String, Long, byte[]>> found = new ArrayList<>();
          ShuffleBenchRules.of(rules)
              .match(new TimestampedRecord(record._1(), record._2()))
              .forEach(entry -> found.add(new Tuple3<>(entry.getKey(), record._1(), record._2())));
          return found.iterator();
        };
    FlatMapGroupsWithStateFunction<String, Tuple3<String, Long, byte[]>, byte[], Tuple2<String, byte[]>> consume =
        (consumer, values, kept) -> {
          AdvancedStateConsumer of = new AdvancedStateConsumer("counter", rate, bytes);
          State state = new State(kept.exists() ? kept.get() : null);
          List<Tuple2<String, byte[]>> events = new ArrayList<>();
          while (values.hasNext()) {
            Tuple3<String, Long, byte[]> record = values.next();
            ConsumerResult result = of.accept(new TimestampedRecord(record._2(), record._3()), state);
            state = result.getState();
            result.getEvent().ifPresent(event -> events.add(new Tuple2<>(consumer, event.getData())));
          }
          kept.update(state.getData());
          return events.iterator();
        };
    return records
        .select("stamp", "data")
        .as(Encoders.tuple(Encoders.LONG(), Encoders.BINARY()))
        .flatMap(match, Encoders.tuple(Encoders.STRING(), Encoders.LONG(), Encoders.BINARY()))
        .groupByKey((MapFunction<Tuple3<String, Long, byte[]>, String>) record -> record._1(), Encoders.STRING())
        .flatMapGroupsWithState(
            consume,
            OutputMode.Update(),
            Encoders.BINARY(),
            Encoders.tuple(Encoders.STRING(), Encoders.BINARY()),
            GroupStateTimeout.NoTimeout())
        .toDF("consumer", "state");
  }
}
