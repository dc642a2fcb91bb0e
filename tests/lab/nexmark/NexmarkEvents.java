import com.github.nexmark.flink.NexmarkConfiguration;
import com.github.nexmark.flink.generator.GeneratorConfig;
import com.github.nexmark.flink.generator.NexmarkGenerator;
import com.github.nexmark.flink.model.Event;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Prints events of nexmark's own generator, a line each, with tabs between the fields and times in milliseconds.
 * Has made the files beside it: their names, with the options, stand in tests/lab/test_nexmark_events.py. With Java 17:
 *
 * git clone https://github.com/nexmark/nexmark && cd nexmark && git checkout 6b3646c3baec701f1fa74baf938d235f742e5d3c
 * mvn compile && mvn -pl nexmark-flink dependency:build-classpath -Dmdep.outputFile=/tmp/classpath
 * java --add-opens java.base/java.util=ALL-UNNAMED -cp nexmark-flink/target/classes:$(cat /tmp/classpath) \
 *     NexmarkEvents.java EVENTS SEED [FIELD=VALUE of NexmarkConfiguration]... | gzip -n9 > NAME.tsv.gz
 *
 * Nexmark seeds none of its SplittableRandoms, so they get their seeds here, and its classes stay as they are:
 * - Java's own seed, of every new SplittableRandom(), begins as SEED: for StringsGenerator, then for BidGenerator;
 * - an event's is new SplittableRandom(base + event id), where base is the first long of new SplittableRandom(SEED).
 */
public class NexmarkEvents {
    static final long BASE_TIME = 1436918400000L;
    static final PrintStream out = new PrintStream(new BufferedOutputStream(System.out));

    public static void main(String[] args) throws Exception {
        long events = Long.parseLong(args[0]);
        long seed = Long.parseLong(args[1]);
        var configuration = new NexmarkConfiguration();
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=");
            Field field = NexmarkConfiguration.class.getField(pair[0]);
            field.set(configuration, field.getType() == int.class ? (Object) Integer.valueOf(pair[1]) : Long.valueOf(pair[1]));
        }
        ((AtomicLong) opened(SplittableRandom.class, "defaultGen").get(null)).set(seed);
        Class.forName("com.github.nexmark.flink.generator.model.StringsGenerator");
        Class.forName("com.github.nexmark.flink.generator.model.BidGenerator");
        long base = new SplittableRandom(seed).nextLong();
        // The two ones: as nexmark's NexmarkTableSourceFactory has them.
        var generator = new NexmarkGenerator(new GeneratorConfig(configuration, BASE_TIME, 1, events, -1, 1));
        Field random = opened(NexmarkGenerator.class, "random");
        while (generator.hasNext()) {
            long id = generator.getNextEventId();
            random.set(generator, new SplittableRandom(base + id));
            print(id, generator.next().event);
        }
        out.flush();
    }

    static Field opened(Class<?> of, String name) throws Exception {
        Field field = of.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    static void print(long id, Event event) {
        var p = event.newPerson;
        var a = event.newAuction;
        var b = event.bid;
        if (p != null)
            row("person", p.id, p.name, p.emailAddress, p.creditCard, p.city, p.state, p.dateTime.toEpochMilli(), p.extra, id);
        else if (a != null)
            row("auction", a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime.toEpochMilli(),
                a.expires.toEpochMilli(), a.seller, a.category, a.extra, id);
        else
            row("bid", b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime.toEpochMilli(), b.extra, id);
    }

    static void row(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields)
            line.append(line.length() > 0 ? "\t" : "").append(field);
        out.print(line.append('\n'));
    }
}
