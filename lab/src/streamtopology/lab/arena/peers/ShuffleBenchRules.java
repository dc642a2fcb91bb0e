package streamtopology.arena;

import com.dynatrace.research.shufflebench.matcher.MatcherService;
import com.dynatrace.research.shufflebench.matcher.RangeBasedMatchingRule;
import com.dynatrace.research.shufflebench.matcher.SimpleMatcherService;
import com.dynatrace.research.shufflebench.record.TimestampedRecord;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

/** ShuffleBench's own matcher with the rules of a file, made once in each JVM. */
final class ShuffleBenchRules {
  private static final ConcurrentHashMap<String, MatcherService<TimestampedRecord>> MADE = new ConcurrentHashMap<>();

  private ShuffleBenchRules() {}

  static MatcherService<TimestampedRecord> of(String file) {
    return MADE.computeIfAbsent(file, ShuffleBenchRules::read);
  }

  private static MatcherService<TimestampedRecord> read(String file) {
    SimpleMatcherService<TimestampedRecord> matcher = new SimpleMatcherService<>();
    try {
      List<String> rules = Files.readAllLines(Path.of(file));
      for (int number = 0; number < rules.size(); number++) {
        String[] rule = rules.get(number).split(",");
        matcher.addMatchingRule(
            "consumer_" + number, new RangeBasedMatchingRule(Long.parseLong(rule[0]), Double.parseDouble(rule[1])));
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return matcher;
  }
}
