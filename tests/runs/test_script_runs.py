"""`streamtopology run job.py`: scripts of PySpark as they are, and as Spark runs them itself."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.waiting import eventually

from streamtopology.jobs import failpoints

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")
EXECUTORS = "fast:1:1,slow:1:0.5"

PREAMBLE = """
import json, os, sys
from pyspark.sql import Row, SparkSession, functions as F
from pyspark.sql.streaming import StatefulProcessor, StreamingQueryListener
from shouting import shout

class Visits(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.pages = handle.getListState("pages", "page string, ms bigint")

    def handleInputRows(self, key, rows, timerValues):
        new = [(row.page, row.ms) for row in rows]
        self.pages.appendList(new)
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(max(ms for _, ms in self.pages.get()) + 30_000)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        pages = sorted(self.pages.get(), key=lambda page: (page[1], page[0]))
        self.pages.clear()
        yield Row(user=key[0], pages=len(pages), landing=shout(pages[0][0]))

    def close(self):
        pass

class Counter(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues):
        n = sum(1 for _ in rows) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        yield Row(user=key[0], n=n)

    def close(self):
        pass

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (SparkSession.builder.appName("job").config("spark.sql.session.timeZone", "UTC")
         .config("spark.sql.shuffle.partitions", "2").config("spark.sql.streaming.stateStore.providerClass", STORE)
         .getOrCreate())

def said(**what):
    print("SAID " + json.dumps(what), flush=True)

def events():
    return (spark.readStream.schema("user bigint, page string, ms bigint, at timestamp")
            .option("maxFilesPerTrigger", 1).parquet("data").where(F.col("user").isNotNull()))

def counts():
    return events().groupBy("user").transformWithState(
        statefulProcessor=Counter(), outputStructType="user bigint, n bigint", outputMode="Update", timeMode="None")
"""


class Job:
    """A folder with a script, the module beside it, and data of some users' visits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        (folder / "shouting.py").write_text("def shout(text):\n    return text.upper()\n")
        draw = random.Random(7)
        for number in range(4):
            begin = 1_700_000_000_000 + 60_000 * number
            ms = sorted(draw.randrange(begin - 5_000, begin + 10_000) for _ in range(500))
            table = {
                "user": pa.array([25 * number + min(draw.randrange(40), draw.randrange(40)) or None for _ in ms], pa.int64()),
                "page": [draw.choice("aäbc") for _ in ms],
                "ms": ms,
                "at": pa.array([each * 1000 for each in ms], pa.timestamp("us", "UTC")),
            }
            pq.write_table(pa.table(table), folder / "data" / f"{number}.parquet")

    def write(self, script: str) -> None:
        (self.folder / "job.py").write_text(f"{PREAMBLE}\n{script}")

    def command(self, *arguments: str) -> list[str]:
        return [str(STREAMTOPOLOGY), "run", "job.py", "--executors", EXECUTORS, *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script as a topology."""
        return self._run(self.command(*arguments), environment)

    def run_by_spark(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the script as plain Python, by a local Spark."""
        conf = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
        environment = {"PYSPARK_SUBMIT_ARGS": conf, "PYSPARK_PYTHON": sys.executable}
        ended = self._run([sys.executable, "job.py", *arguments], environment)
        assert ended.returncode == 0, ended.stderr[-2000:]
        return ended

    def _run(self, command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        inherited = {**os.environ, **environment}
        return subprocess.run(command, cwd=self.folder, env=inherited, capture_output=True, text=True, check=False)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def said(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the script has said, all calls of `said` together."""
    lines = [line.removeprefix("SAID ") for line in ended.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, ended.stdout[-1500:] + ended.stderr[-1500:]
    return {name: value for line in lines for name, value in json.loads(line).items()}


BY_BATCH = """
visits = (events().withColumn("page", F.concat("page", F.lit("!"))).withWatermark("at", "10 seconds")
          .groupBy("user").transformWithState(statefulProcessor=Visits(), outputMode="Update", timeMode="EventTime",
                                              outputStructType="user bigint, pages bigint, landing string"))

def write(frame, number):
    frame.withColumn("batch", F.lit(number)).coalesce(1).write.mode("overwrite").parquet(f"{sys.argv[1]}/batch={number}")

query = (visits.withColumn("many", F.col("pages") * 100).where("pages > 1").writeStream.outputMode("update")
         .option("checkpointLocation", sys.argv[1] + "-checkpoint").foreachBatch(write).trigger(availableNow=True).start())
query.awaitTermination()
"""


def emitted(folder: Path) -> Counter[str]:
    """The rows of all batches, each with its batch."""
    files = sorted(folder.glob("batch=*/*.parquet"))
    return Counter(str(row) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def test_a_killed_script_emits_what_spark_emits_batch_by_batch(job: Job) -> None:
    job.write(BY_BATCH)
    died = f"commit.written:2@{job.folder}/died"
    ended = [job.run("ours", **{failpoints.VARIABLE: died}), job.run("ours")]
    assert [each.returncode for each in ended] == [-signal.SIGKILL, 0], ended[-1].stderr[-2000:]
    job.run_by_spark("sparks")
    assert len(emitted(job.folder / "sparks")) > 20
    assert emitted(job.folder / "ours") == emitted(job.folder / "sparks")


STARTED = """
timed = events().withColumn("price", (F.col("ms") % 1000 / 100).cast("decimal(10,2)")).withWatermark("at", "10 seconds")

def started(name, frame, mode):
    def write(rows, number):
        place = f"{sys.argv[1]}/{name}/batch={number}"
        rows.withColumn("batch", F.lit(number)).coalesce(1).write.mode("overwrite").parquet(place)
    query = (frame.writeStream.outputMode(mode).option("checkpointLocation", f"{sys.argv[1]}/checkpoint-{name}")
             .foreachBatch(write).trigger(availableNow=True).start())
    query.awaitTermination()
"""
AGGREGATES = """
visits = timed.groupBy(F.window("at", "20 seconds"), "user").agg(
    F.count("*").alias("n"), F.sum("ms").alias("total"), F.avg("price"), F.max("page").alias("last"),
    (F.max("ms") - F.min("ms")).alias("span"))
started("appended", visits.where("n > 1").select("window.start", "user", "n", "total", "avg(price)", "last", "span"), "append")
even = F.count(F.when(F.col("user") % 2 == 0, 1)).alias("even")
started("updated", timed.groupBy(F.window("at", "30 seconds", "10 seconds"), F.upper("page").alias("shouted")).agg(
    F.sum("price").alias("paid"), even, F.sum("price") / F.count("*")), "update")
started("by_window", timed.groupBy(F.window("at", "1 minute")).count(), "append")
started("whole", events().groupBy("user").agg(F.count("page").alias("pages"), F.min("at").alias("first")), "complete")
started("top", events().groupBy("user").count().orderBy(F.desc("count"), "user").limit(5).select("user", "count"), "complete")
started("running", events().groupBy("user", "page").count(), "update")
shouted = F.udf(lambda page: page.upper())
pages = (timed.where(shouted("page") != "C").select("at", "user", "page", "price", (F.col("ms") % 10_000).alias("x"))
         .where("user % 5 <> 0").groupBy(F.window("at", "20 seconds"), "user"))
started("spread", pages.agg(
    F.round(F.stddev("x"), 3), F.round(F.var_pop("price"), 6), F.sort_array(F.collect_list("page")).alias("pages"),
    F.array_sort(F.collect_set("page")), F.size(F.collect_list(F.struct("page", "x"))), F.count_if(F.col("page") == "a"),
    F.bool_or(F.col("page") == "b"), F.first("user"), F.last(F.lit(None).cast("int")),
    F.approx_count_distinct("page")), "append")
order = F.struct("ms", "page")
odd = (F.col("user") % 2).cast("double").alias("odd")
best = timed.groupBy(F.window("at", "20 seconds"), F.struct("page", odd).alias("of"))
started("best", best.agg(
    F.max_by("user", F.struct("ms", "user")), F.min_by("price", "ms") / 2, F.max(order).alias("newest"), F.min(order)["ms"],
    F.max_by(F.when(F.col("ms") % 2 == 0, "even"), F.when(F.col("ms") % 3 == 0, F.col("ms"))).alias("rare")), "append")
lists = timed.groupBy(F.array("page", F.lit(None)).alias("pages"))
started("lists", lists.agg(F.max(F.struct(F.struct("page"), "ms"))), "update")
sessions = timed.groupBy("user", F.session_window("at", "1 second"), F.struct(F.col("page") == "a").alias("of"))
started("sessions", sessions.agg(F.count("*").alias("n"), F.max("page"), F.sum("price")).where("n > 1"), "append")
pause = F.when(F.col("page") == "a", "2 seconds").when(F.col("page") == "b", "-1 seconds").otherwise("500 milliseconds")
pauses = timed.groupBy(F.session_window(F.expr("at"), pause).alias("pause"), (F.col("user") % 5).alias("fifth"))
started("pauses", pauses.agg(F.min("ms"), F.first("page")).select("pause.end", "fifth", "pause", "min(ms)"), "append")
started("of_once", timed.dropDuplicates(["user", "at"]).where("page <> 'b'").groupBy(
    F.session_window("at", F.concat(F.col("user") % 2, F.lit(" seconds"))), "user").count(), "append")
"""
NAMES = ("appended", "updated", "by_window", "whole", "top", "running", "spread", "best", "lists", "sessions", "pauses",
         "of_once")  # fmt: skip
JOINS = """
seen = (events().where("page <> 'b'").withWatermark("at", "10 seconds")
        .select(F.col("user").alias("seer"), F.col("at").alias("seen"), F.col("ms").alias("then"), "page"))
pairs = (timed.where("page = 'b'").join(seen, F.expr(
    "user = seer and seen between at - interval 3 seconds and at + interval '8' second and ms % 2 = then % 2")))
started("paired", pairs.where("user < 60").select("at", "seen", "ms", "then", "user", seen["page"], "price"), "append")
twice = events().select(F.col("user").alias("seer"), F.col("at").alias("again"), F.col("ms").alias("later"))
twice = twice.withWatermark("again", "1 minute").where("later % 3 = 0")
some = timed.withColumn("of", F.when(F.col("user") % 4 > 0, F.col("user"))).where("page <> 'c'").withColumnRenamed("at", "mine")
wanted = events().select(F.when(F.col("user") % 5 > 0, F.col("user")).alias("by"), F.col("at").alias("theirs"), "ms")
wanted = wanted.withWatermark("theirs", "20 seconds")
near = F.expr("of = by and theirs >= mine - interval 1 second and theirs < mine + interval 400 milliseconds")
shown = [some["user"], "of", "by", "mine", "theirs", wanted["ms"].alias("then"), "price"]
started("left", some.join(wanted, near & (wanted["ms"] % 3 == 0), "leftOuter").select(*shown), "append")
started("right", some.where("user % 3 = 0").join(wanted, near, "right").select(*shown).where("then % 2 = 0"), "append")
started("full", some.where("user % 2 = 0").join(wanted.where("by % 7 = 2"), near, "full").select(*shown), "append")
told = near & (wanted["ms"] % 3 > 0) & (some["user"] % 2 == 0)
started("semi", some.join(wanted, told, "leftSemi").select("user", "of", "mine", "price"), "append")
started("same", timed.join(twice, (F.col("user") == F.col("seer")) & (F.col("at") == F.col("again"))), "append")
read = events().select(F.col("user").alias("reader"), F.col("page").alias("it"), "ms").where("ms % 5 = 0")
untimed = F.expr("reader = user and it <=> page") & (F.abs(read["ms"] - F.col("at").cast("double") * 1000) < 9000)
started("untimed", events().drop("ms").join(read, untimed), "append")
"""
PAIRS = ("paired", "same", "semi", "left", "right", "full", "untimed")

DUPLICATES = """
timed = events().withWatermark("at", "10 seconds")
visited = timed.select("at", F.array("page", F.lower("page")).alias("pages"),
                       F.struct("page", (F.col("ms") % 3).cast("double").alias("x")).alias("of"))
named = spark.createDataFrame([(n, f"u{n}", n % 4) for n in range(60)], "user bigint, name string, ms bigint")

def started(name, frame, mode="append"):
    def write(rows, number):
        place = f"{sys.argv[1]}/{name}/batch={number}"
        rows.withColumn("batch", F.lit(number)).coalesce(1).write.mode("overwrite").parquet(place)
    query = (frame.writeStream.outputMode(mode).option("checkpointLocation", f"{sys.argv[1]}/checkpoint-{name}")
             .foreachBatch(write).trigger(availableNow=True).start())
    query.awaitTermination()

started("users", events().dropDuplicates(["user"]).select("user", "page", "ms"))
started("behind", timed.dropDuplicates(["user", "page"]).where("page <> 'a'"), "update")
started("times", timed.select("user", "at").distinct())
started("within", timed.dropDuplicatesWithinWatermark(["user"]))
visits = events()
joined = visits.join(named, "user").withWatermark("at", "10 seconds")
started("two_names", joined.dropDuplicatesWithinWatermark(["name"]).select(
    "user", "name", visits["ms"].alias("one"), named["ms"].alias("other")))
started("nested", visited.dropDuplicates(["pages", "of"]))
events().createOrReplaceTempView("visits")
started("sql", spark.sql("SELECT DISTINCT page, user % 5 AS fifth FROM visits"), "update")
odd = events().select("user", "user", F.lit(None).alias("column_0"), F.expr("map(page, ms)").alias("m"),
                      F.col("ms").cast("decimal(20,3)").alias("a b.`c"), F.col("page").cast("binary").alias("raw"),
                      F.expr("at::timestamp_ntz").alias("ntz"), F.expr("interval '1' hour * (user % 3)").alias("span"),
                      F.expr("array(struct(at, cast(user as int) as u))").alias("deep"), F.expr("date(at)").alias("day"))
started("odd", odd.dropDuplicates(["a b.`c", "raw", "deep", "span"]).drop("user"))
"""
FREE_OF_DUPLICATES = ("users", "behind", "times", "within", "two_names", "nested", "sql", "odd")

CHAINED = """
timed = events().withColumn("at", F.date_trunc("second", "at")).withWatermark("at", "10 seconds")

def started(name, frame, mode):
    def write(rows, number):
        place = f"{sys.argv[1]}/{name}/batch={number}"
        rows.withColumn("batch", F.lit(number)).coalesce(1).write.mode("overwrite").parquet(place)
    query = (frame.writeStream.outputMode(mode).option("checkpointLocation", f"{sys.argv[1]}/checkpoint-{name}")
             .foreachBatch(write).trigger(availableNow=True).start())
    query.awaitTermination()

once = timed.dropDuplicates(["user", "at"])
window = F.window("at", "20 seconds")
visits = once.groupBy(window, "user").agg(F.count("*").alias("n"), F.sum("ms"), F.max("page"))
started("windows", visits.where("n > 1"), "append")
started("users", once.groupBy(window).agg(F.min("user")).select("window.start", "min(user)"), "update")
parts = timed.dropDuplicatesWithinWatermark(["user", "page"]).where("ms % 3 <> 0").withColumn("part", F.expr("6 div (ms % 3)"))
parts = parts.where("part <> 6 or page <> 'a'").withColumnRenamed("page", "seen").groupBy(F.upper("seen").alias("shouted"))
started("guarded", parts.agg(F.sum("part"), F.sum(F.expr("2 div (ms % 3)"))), "update")
started("whole", events().dropDuplicates(["user", "page"]).groupBy("page").count().orderBy("page"), "complete")
shouted = F.udf(lambda page: page.upper())
pages = timed.select("at", F.struct("page", F.col("user") % 5).alias("of"), "ms").dropDuplicates(["at", "of"])
started("nested", pages.select("*", shouted("of.page").alias("page")).where("page <> 'C'").groupBy("at", "page").agg(
    F.count("*"), F.min("ms")), "append")
once.createOrReplaceTempView("once")
minutes = spark.sql("SELECT page, window.end AS until, count(*) AS n FROM once GROUP BY page, window(at, '1 minute')")
started("sql", minutes, "append")
started("pairs", spark.sql("SELECT DISTINCT page, user % 3 AS third FROM once WHERE ms % 2 = 0"), "update")
minute = F.date_trunc("minute", "at").alias("minute")
started("distinct", timed.select("user", "at").distinct().groupBy(minute).count(), "complete")
"""
CHAINS = ("windows", "users", "guarded", "whole", "nested", "sql", "pairs", "distinct")


GROUPS = """
def followed(key, frames, state):
    import pandas as pd
    if state.hasTimedOut:
        yield pd.DataFrame({"user": [key[0]], "pages": [state.get[0]], "landing": [state.get[1]]})
        state.remove()
        return
    pages, landing = state.getOption or (0, None)
    newest = state.getCurrentWatermarkMs()
    for frame in frames:
        pages += len(frame)
        landing = min(filter(None, [landing, frame["page"].min()]))
        newest = max(newest, int(frame["ms"].max()))
    state.update((pages, landing))
    state.setTimeoutTimestamp(newest + 30_000)

followed_users = events().withWatermark("at", "10 seconds").groupBy("user").applyInPandasWithState(
    followed, "user bigint, pages bigint, landing string", "pages bigint, landing string", "update", "EventTimeTimeout")

def write(frame, number):
    frame.withColumn("batch", F.lit(number)).coalesce(1).write.mode("overwrite").parquet(f"{sys.argv[1]}/batch={number}")

query = (followed_users.writeStream.outputMode("update").option("checkpointLocation", sys.argv[1] + "-checkpoint")
         .foreachBatch(write).trigger(availableNow=True).start())
query.awaitTermination()
"""


def test_functions_with_a_group_state_emit_what_spark_emits_batch_by_batch(job: Job) -> None:
    job.write(GROUPS)
    ended = job.run("ours", "--strict")
    assert ended.returncode == 0, ended.stderr[-2000:]
    job.run_by_spark("sparks")
    assert len(emitted(job.folder / "sparks")) > 20
    assert emitted(job.folder / "ours") == emitted(job.folder / "sparks")


HOURS = """
def hours(key, frames, state):
    for frame in frames:
        yield frame[["user", "at"]].assign(hour=frame["at"].dt.hour)

class Hours(Counter):
    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            yield Row(user=key[0], at=row.at, hour=row.at.hour)

def started(name, frame, mode):
    def write(rows, number):
        rows.withColumn("batch", F.lit(number)).coalesce(1).write.parquet(f"{sys.argv[1]}/{name}/batch={number}")
    query = frame.writeStream.outputMode(mode).foreachBatch(write).trigger(availableNow=True).start()
    query.awaitTermination()

seen = "user bigint, at timestamp, hour int"
started("rows", events().groupBy("user").transformWithState(Hours(), seen, "Append", "None"), "append")
started("frames", events().groupBy("user").applyInPandasWithState(hours, seen, "n int", "append", "NoTimeout"), "append")
started("days", events().groupBy(F.hour("at").alias("hour"), F.date_trunc("day", "at").alias("day")).count(), "update")
"""


def test_a_script_that_names_no_time_zone_has_the_machines_as_on_spark(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    (job.folder / "job.py").write_text(PREAMBLE.replace('.config("spark.sql.session.timeZone", "UTC")', "") + HOURS)
    ended = job.run("ours", "--strict")
    assert ended.returncode == 0, ended.stderr[-2000:]
    job.run_by_spark("sparks")
    for query in ("rows", "frames", "days"):
        assert emitted(job.folder / "sparks" / query)
        assert emitted(job.folder / "ours" / query) == emitted(job.folder / "sparks" / query), query


INITIAL = """
class Resumed(Counter):
    def handleInitialState(self, key, initialState, timerValues):
        self.count.update((initialState.before,))

class ResumedFrames(Resumed):
    def handleInitialState(self, key, initialState, timerValues):
        self.count.update((int(initialState["before"].iloc[0]),))

    def handleInputRows(self, key, rows, timerValues):
        import pandas as pd
        n = sum(map(len, rows)) + (self.count.get()[0] if self.count.exists() else 0)
        self.count.update((n,))
        yield pd.DataFrame({"user": [key[0]], "n": [n]})

before = spark.range(20, 90).selectExpr("id AS who", "id * 1000 AS before").groupBy("who")
output = dict(outputStructType="user bigint, n bigint", outputMode="Update", timeMode="None", initialState=before)
started("resumed", events().groupBy("user").transformWithState(Resumed(), **output), "update")
started("frames", events().groupBy("user").transformWithStateInPandas(ResumedFrames(), **output), "update")
"""


ONCE = """
def followed(key, frames, state):
    import pandas as pd
    pages = (state.getOption or (0,))[0] + sum(map(len, frames))
    state.update((pages,))
    yield pd.DataFrame({"user": [key[0]], "pages": [pages]})

names = spark.sparkContext.broadcast({"a": "first", "c": "third" * 100_000})

def named(key, frames, state):
    import pandas as pd
    found = sorted({names.value.get(page, page)[:5] for frame in frames for page in frame["page"]})
    yield pd.DataFrame({"user": [key[0]], "names": [" ".join(found)]})

class Seen(Counter):
    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            text = f"{row.price} {row.day} {row.of['page']} {row.of['ms']} {bytes(row.raw)}"
            yield Row(user=key[0], text=text, n=sum(row.many), at=row.at)

once = timed.dropDuplicatesWithinWatermark(["user", "page"])
twice = F.concat(F.udf(lambda page: page * 2)("page"), (6 / (F.col("ms") % 3)).cast("string"))
shouted = once.where("ms % 3 <> 0").withColumn("page", twice)
started("sessions", shouted.groupBy("user").transformWithState(
    Visits(), "user bigint, pages bigint, landing string", "Append", "EventTime"), "append")
odd = timed.dropDuplicates(["user", "at"]).select(
    "user", "at", "price", F.to_date("at").alias("day"), F.struct("page", "ms").alias("of"),
    F.array("ms", "user").alias("many"), F.encode("page", "utf-8").alias("raw"))
started("odd", odd.groupBy("user").transformWithState(
    Seen(), "user bigint, text string, n bigint, at timestamp", "Append", "None"), "append")
started("named", events().groupBy("user").applyInPandasWithState(
    named, "user bigint, names string", "n int", "append", "NoTimeout"), "append")
started("frames", timed.dropDuplicates(["user", "page"]).groupBy("user").applyInPandasWithState(
    followed, "user bigint, pages bigint", "pages bigint", "append", "NoTimeout"), "append")
"""


STATIC = """
names = [(n if n % 7 else None, f"u{n % 9}") for n in range(90)] + [(n, "twice") for n in range(30)]
spark.createDataFrame(names, "user bigint, name string").write.mode("overwrite").parquet(f"{sys.argv[1]}-names")
names = spark.read.parquet(f"{sys.argv[1]}-names")
started("inner", events().join(names, "user").groupBy("name").agg(F.count("*"), F.sum("ms")), "update")
named = events().join(F.broadcast(names), "user", "left").withWatermark("at", "10 seconds")
started("left", named.groupBy(F.window("at", "20 seconds"), "name").count(), "append")
started("above", events().groupBy("user").count().join(names, "user", "left").withColumnRenamed("name", "who"), "update")
started("whole", events().join(names.where("name <> 'twice'"), "user").groupBy("name").count(), "complete")
"""


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (AGGREGATES, NAMES),
        (JOINS, PAIRS),
        (INITIAL, ("resumed", "frames")),
        (ONCE, ("sessions", "odd", "frames", "named")),
        (STATIC, ("inner", "left", "above", "whole")),
    ],
    ids=["aggregates", "joins", "initial", "once", "static"],
)
def test_queries_of_a_script_equal_sparks_batch_by_batch(script: str, names: Sequence[str], job: Job) -> None:
    job.write(STARTED + script)
    ended = job.run("ours", "--strict")
    assert ended.returncode == 0, ended.stderr[-2000:]
    job.run_by_spark("sparks")
    for name in names:
        sparks = emitted(job.folder / "sparks" / name)
        assert len(sparks) >= 3, name
        ours = emitted(job.folder / "ours" / name)
        if name in ("whole", "top"):  # the end of the input is a batch here, and its rows come once more
            ours = Counter({row: count for row, count in ours.items() if not row.endswith("'batch': 4}")})
        assert ours == sparks, name


def test_a_script_without_duplicates_equals_sparks_batch_by_batch(job: Job) -> None:
    """Of any columns, of odd and of equal names."""
    job.write(DUPLICATES)
    ended = job.run("ours", "--strict")
    assert ended.returncode == 0, ended.stderr[-2000:]
    job.run_by_spark("sparks")
    for name in FREE_OF_DUPLICATES:
        sparks = emitted(job.folder / "sparks" / name)
        assert len(sparks) >= 3, name
        assert emitted(job.folder / "ours" / name) == sparks, name


def test_aggregates_of_rows_without_duplicates_equal_sparks_batch_by_batch(job: Job) -> None:
    """The driver is killed once, and in the next run the Python of an executor."""
    job.write(CHAINED)
    killed = job.run("ours", "--strict", **{failpoints.VARIABLE: f"commit.written:2@{job.folder}/driver-died"})
    ended = job.run("ours", "--strict", **{failpoints.VARIABLE: f"state.written:5@{job.folder}/executor-died"})
    assert [killed.returncode, ended.returncode] == [-signal.SIGKILL, 0], killed.stderr[-2000:] + ended.stderr[-2000:]
    assert (job.folder / "executor-died").exists()
    job.run_by_spark("sparks")
    for name in CHAINS:
        sparks = emitted(job.folder / "sparks" / name)
        assert len(sparks) >= 3, name
        ours = emitted(job.folder / "ours" / name)
        if name in ("whole", "distinct"):  # the end of the input is a batch here, and its rows come once more
            batches = {row.rpartition("'batch'")[2] for row in sparks}
            ours = Counter({row: count for row, count in ours.items() if row.rpartition("'batch'")[2] in batches})
        assert ours == sparks, name


@pytest.mark.smoke
def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = [str(STREAMTOPOLOGY), "run", "examples/sessions_job.py", "--executors", "large:1:0.5,small:1:0.25", "--strict"]
    command += ["--report", "build/report"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.rstrip().endswith(" sessions of more than one trade")
    written = [json.loads(line) for file in (tmp_path / "build/sessions-job").glob("*.json") for line in file.open()]
    assert len(written) == int(ended.stdout.split()[-7])
    assert all(row["seconds"] > 0 for row in written)
    report = tmp_path / "build/report/sessions-job"
    assert json.loads((report / "report.json").read_text())["rows"] == sum(
        len(file.read_text().splitlines()) - 1 for file in (ROOT / "examples/data/trades").glob("*.csv")
    )
    assert (report / "run.png").stat().st_size > 10_000


FILES = """
class Heard(StreamingQueryListener):
    def __init__(self):
        self.events = []
    def onQueryStarted(self, event):
        self.events.append(["started", event.name])
    def onQueryProgress(self, event):
        self.events.append(["progress", event.progress.batchId, json.loads(event.progress.json)["numInputRows"]])
    def onQueryIdle(self, event):
        pass
    def onQueryTerminated(self, event):
        self.events.append(["terminated", event.exception])

heard = Heard()
spark.streams.addListener(heard)
for part in ("first", "again"):
    query = (counts().withColumn("odd", F.col("user") % 2).writeStream.format("parquet").partitionBy("odd")
             .option("checkpointLocation", "checkpoint").queryName("to_files").trigger(availableNow=True).start("out"))
    said(**{part + " active": [each.name for each in spark.streams.active]})
    query.awaitTermination()
    said(**{part: spark.read.parquet("out").groupBy("odd").count().count(), part + " rows": spark.read.parquet("out").count()})
said(active=len(spark.streams.active), heard=heard.events, last=query.lastProgress["batchId"])

def broken_function(key, frames, state):
    import no_such_module

windows = events().withWatermark("at", "10 seconds").groupBy(F.window("at", "1 minute")).count()
query = windows.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start()
query.awaitTermination()
(state,) = query.lastProgress["stateOperators"]
said(marks=[progress["eventTime"]["watermark"] for progress in query.recentProgress], windows=state["numRowsTotal"])
said(printed=json.loads(str(query.lastProgress)), state=json.loads(state.prettyJson))
try:
    frame = events().groupBy("user").applyInPandasWithState(broken_function, "n long", "n long", "update", "NoTimeout")
    frame.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start().awaitTermination()
except Exception as error:
    said(no_module=str(error))

query = counts().writeStream.format("memory").queryName("latest").outputMode("update").start()
query.processAllAvailable()
newest = spark.sql("select user, max(n) n from latest group by user").groupBy().sum("n").first()[0]
said(memory=newest, running=query.isActive)
try:
    counts().writeStream.format("noop").queryName("latest").outputMode("update").start()
except Exception as error:
    said(taken=f"{type(error).__name__}: {error}")
query.stop()
said(stopped=query.isActive, failure=query.exception())

def broken(frame, number):
    raise ValueError(f"no batch {number}")

twice = []
for part in ("first", "again"):
    query = (counts().writeStream.option("checkpointLocation", "of function").outputMode("update")
             .foreachBatch(lambda frame, number: twice.append((number, frame.count()))).trigger(availableNow=True).start())
    query.awaitTermination()
said(twice=twice)

spark.streams.resetTerminated()
query = counts().writeStream.foreachBatch(broken).outputMode("update").trigger(availableNow=True).start()
try:
    spark.streams.awaitAnyTermination()
except Exception as error:
    said(kind=type(error).__name__, text=str(error), same=str(query.exception()) == str(error))
spark.stop()
spark.sparkContext.stop()
sys.exit(3)
"""


def test_queries_answer_as_sparks_do(job: Job) -> None:
    job.write(FILES)
    ended = job.run("--strict")
    assert ended.returncode == 3, ended.stderr[-2000:]
    answers = said(ended)
    rows = [table for file in (job.folder / "data").glob("*.parquet") for table in [pq.read_table(file)]]
    users = Counter(user for table in rows for user in table["user"].to_pylist() if user is not None)
    of_batches = sum(len({user for user in table["user"].to_pylist() if user is not None}) for table in rows)
    assert answers["first active"] == answers["again active"] == ["to_files"]
    assert (answers["first"], answers["first rows"], answers["again rows"]) == (2, of_batches, of_batches)
    assert answers["active"] == 0
    assert answers["heard"][:2] == [["started", "to_files"], ["progress", 0, 500 - rows_without_user(job, 0)]]
    assert ["terminated", None] in answers["heard"]
    assert answers["marks"][0] == "1970-01-01T00:00:00.000Z"
    assert answers["marks"][1:4] == [
        f"{newest(job, number) - timedelta(seconds=10):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for number in range(3)
    ]
    assert answers["printed"]["stateOperators"] == [answers["state"]]
    assert answers["state"]["numRowsTotal"] == answers["windows"] > 0
    assert "No module named 'no_such_module'" in answers["no_module"]
    assert (answers["memory"], answers["running"]) == (sum(users.values()), True)
    taken = "Cannot start query with name latest as a query with that name is already active in this SparkSession"
    assert answers["taken"] == f"IllegalArgumentException: {taken}"
    assert (answers["stopped"], answers["failure"]) == (False, None)
    numbers = [number for number, _ in answers["twice"]]
    assert numbers == sorted({*numbers}), "a run that has ended well does not give its last batch again"
    assert answers["kind"] == "StreamingQueryException"
    assert "ValueError: no batch 0 (job.py, line " in answers["text"]
    assert answers["same"]


AT_ONE_PLACE = """
seen = []

def begun(name, function):
    return (counts().writeStream.outputMode("update").option("checkpointLocation", "checkpoint").queryName(name)
            .foreachBatch(function).start())

def stopping(frame, number):
    frame.sparkSession.conf.set("spark.sql.session.timeZone", "Asia/Seoul")
    seen.append(number)
    if number == 1:
        for query in spark.streams.active:
            query.stop()

begun("stopping", stopping).awaitTermination()
former = begun("renamed", lambda frame, number: seen.append(number))
former.processAllAvailable()
latter = begun("at once", lambda frame, number: seen.append(number))
said(seen=seen, active=[query.name for query in spark.streams.active], former=former.isActive)
latter.stop()
try:
    events().select("user").writeStream.format("noop").option("checkpointLocation", "checkpoint").start()
except Exception as error:
    said(by_spark=str(error))
spark.sparkContext.parallelize([(1,)]).toDF(["one"]).createOrReplaceTempView("ones")
said(ones=spark.table("ones").count(), is_active=SparkSession.getActiveSession() is spark)

other = spark.newSession()
other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
users = other.readStream.schema("user bigint").parquet("data").groupBy("user").count().select(F.current_timezone())
users.writeStream.format("memory").queryName("zones").outputMode("update").trigger(availableNow=True).start().awaitTermination()
said(zones=[spark.conf.get("spark.sql.session.timeZone"), *{zone for (zone,) in other.table("zones").collect()}])
"""


def test_a_query_goes_on_from_its_checkpoint_whatever_its_name(job: Job) -> None:
    """Even if another still runs there, which stops; and a function may stop the query that calls it. Spark cannot go on.

    The batches of a query are in a session of their own, with the settings of the one that started it.
    """
    job.write(AT_ONE_PLACE)
    ended = job.run()
    assert ended.returncode == 0, ended.stderr[-2000:]
    answers = said(ended)
    assert "it keeps no state. Spark would run this query itself, and start over" in answers.pop("by_spark")
    assert answers.pop("zones") == ["UTC", "Asia/Tokyo"]
    assert answers == {"seen": [0, 1, 2, 3], "active": ["at once"], "former": False, "ones": 1, "is_active": True}


def newest(job: Job, number: int) -> datetime:
    table = pq.read_table(job.folder / "data" / f"{number}.parquet")
    return max(at for at, user in zip(table["at"].to_pylist(), table["user"].to_pylist(), strict=True) if user is not None)


def rows_without_user(job: Job, number: int) -> int:
    return pq.read_table(job.folder / "data" / f"{number}.parquet")["user"].null_count


UNCUT = """
def named(what, frame, **options):
    writer = frame.writeStream.format("noop").outputMode(options.pop("mode", "append"))
    try:
        query = writer.trigger(**options or {"availableNow": True}).start()
        query.awaitTermination()
        said(**{what: "ran"})
    except Exception as error:
        said(**{what: str(error)})

timed = events().withWatermark("at", "10 seconds")
visits = dict(statefulProcessor=Visits(), outputMode="Update", timeMode="EventTime",
              outputStructType="user bigint, pages bigint, landing string")
named("stateless", events().select("user"))
named("aggregate", events().groupBy("user").agg(F.mode("page")), mode="update")
named("listed", events().groupBy("user").agg(F.max(F.array("page"))), mode="update")
named("sliding", timed.dropDuplicates(["user", "at"]).groupBy(F.window("at", "1 minute", "20 seconds")).count())
named("marked", events().dropDuplicates(["user", "at"]).withWatermark("at", "1 second").groupBy("at").count())
named("sessions", timed.groupBy(F.session_window("at", "1 minute"), "user").count(), mode="complete")
named("limited", counts().limit(3))
named("filtered", timed.where("page <> 'a' and at > '2020-01-01'").groupBy("user").transformWithState(**visits))
named("continuous", counts(), continuous="1 second")
named("once", counts(), once=True, mode="update")
named("static join", counts().join(spark.range(50).withColumnRenamed("id", "user"), "user"))
nested = events().select("page", F.struct("user").alias("of")).groupBy("of.user")
named("keyed", nested.transformWithState(Counter(), "user bigint, n bigint", "Update", "None"))
broadcast = spark.sparkContext.broadcast(os.urandom(1_000_000))

class Broadcasting(Counter):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(user=key[0], n=len(broadcast.value))

named("broadcast", events().groupBy("user").transformWithState(
    statefulProcessor=Broadcasting(), outputStructType="user bigint, n bigint", outputMode="Update", timeMode="None"))
spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
other = events().selectExpr("user as who", "at as then").withWatermark("then", "5 seconds")
named("latest", timed.join(other, F.expr("user = who AND then BETWEEN at AND at + INTERVAL 1 SECOND")))
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
named("awake", counts(), mode="update")
raise KeyError("the end")
"""


def test_a_query_that_cannot_be_cut_is_refused_by_name(job: Job) -> None:
    job.write(UNCUT)
    ended = job.run("--strict")
    assert ended.returncode == 1
    assert ended.stderr.rstrip().endswith("KeyError: 'the end'")
    answers = said(ended)
    line = next(n for n, text in enumerate((job.folder / "job.py").read_text().splitlines(), 1) if "start()" in text)
    assert answers["stateless"].startswith(f"job.py, line {line}: it keeps no state. --strict refuses")
    parts = {
        "aggregate": "mode(...) is not taken over yet",
        "listed": "max(array(page)) of list<element: string>; allowed: a number",
        "sliding": "Expand stands between dropDuplicates and the operator on it: a window that slides",
        "marked": "EventTimeWatermark stands between dropDuplicates and the operator on it: call withWatermark before",
        "sessions": "session_window is taken over in the mode append, not in complete",
        "limited": "limit stands on transformWithState",
        "filtered": "Filter stands between withWatermark and its stateful operator",
        "continuous": "its trigger is not one of batches",
        "once": "its trigger is once, for which Spark reads all in one batch",
        "keyed": "grouped by user, which is none of their columns",
        "broadcast": "broadcast variables, are 1.0 MB; 1 MB is taken over",
        "latest": "spark.sql.streaming.multipleWatermarkPolicy is max",
        "awake": "spark.sql.streaming.noDataMicroBatches.enabled is false",
    }
    for what, part in parts.items():
        assert part in answers[what], what
    assert answers["static join"] == "ran"


def test_what_cannot_be_cut_runs_by_spark_and_says_so(job: Job) -> None:
    job.write("""
SparkSession.builder.config("spark.jars.packages", "org.example:late:1").getOrCreate()
pages = events().groupBy("user").agg(F.mode("page"))
query = (pages.writeStream.format("memory").queryName("plain").outputMode("complete")
         .trigger(availableNow=True).start())
query.awaitTermination()
said(users=spark.table("plain").count(), active=len(spark.streams.active))
""")
    ended = job.run()
    assert ended.returncode == 0, ended.stderr[-2000:]
    late = next(line for line in ended.stderr.splitlines() if "too late" in line)
    assert late.startswith("streamtopology: job.py, line ")
    assert late.endswith("say it on the command line: --conf spark.jars.packages=org.example:late:1")
    assert "mode(...) is not taken over yet; so Spark runs" in ended.stderr
    assert said(ended)["users"] > 20
    assert said(ended)["active"] == 0


def test_executors_start_where_a_script_asks_for_its_session(job: Job) -> None:
    """With its settings and jars; a second context is the first one."""
    (job.folder / "some.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    (job.folder / "job.py").write_text("""
import json
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, functions as F
print("SAID " + json.dumps({"before": SparkContext._active_spark_context is None}), flush=True)
conf = SparkConf().set("spark.jars", "some.jar").set("spark.example.mine", "5").set("spark.sql.session.timeZone", "Asia/Tokyo")
context = SparkContext("local[1]", "mine", conf=conf)
spark = SparkSession(context)
counts = spark.readStream.schema("user bigint").parquet("data").groupBy("user").count()
counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start().awaitTermination()
said = {"same": SparkContext.getOrCreate() is context, "jars": context.getConf().get("spark.jars"),
        "mine": SparkSession.builder.getOrCreate().conf.get("spark.example.mine"),
        "zone": spark.conf.get("spark.sql.session.timeZone")}
context.stop()
print("SAID " + json.dumps(said), flush=True)
""")
    ended = job.run("--strict")
    assert ended.returncode == 0, ended.stderr[-2000:]
    answers = said(ended)
    assert (answers["before"], answers["same"], answers["mine"]) == (True, True, "5")
    assert answers["zone"] == "Asia/Tokyo"
    assert answers["jars"].endswith("some.jar")


def test_sinks_modes_and_queries_left_to_spark_do_as_on_spark(job: Job) -> None:
    job.write("""
counted = events().groupBy(F.col("user") % 3).count()
query = (counted.writeStream.format("memory").queryName("thirds").outputMode("complete").trigger(availableNow=True).start())
said(at_once=len(spark.table("thirds").columns))
query.awaitTermination()
said(thirds=spark.table("thirds").count(), counted=spark.table("thirds").groupBy().sum("count").first()[0])
try:
    counted.writeStream.format("json").outputMode("update").option("checkpointLocation", "refused").start("refused-rows")
except Exception as error:
    said(refused=error.getCondition())
windows = events().withWatermark("at", "1 second").select(F.window("at", "1 minute").alias("minute")).groupBy("minute").count()
windows.writeStream.format("noop").option("checkpointLocation", "windows").trigger(availableNow=True).start().awaitTermination()

spark.conf.set("spark.sql.streaming.checkpointLocation", "checkpoints")
for run in ("first", "second"):
    seen = []
    (counted.writeStream.outputMode("update").foreachBatch(lambda frame, number: seen.extend(frame.collect()))
     .trigger(availableNow=True).start().awaitTermination())
    said(**{run: len(seen)})

spark.streams.resetTerminated()
kept = events().select("user").writeStream.trigger(availableNow=True)
kept.toTable("kept", format="parquet", path="kept", checkpointLocation="checkpoint")
said(ended=spark.streams.awaitAnyTermination(120), kept=spark.table("kept").count())

class Filing:
    def open(self, partition, batch):
        self.place, self.rows = f"{folder}/{batch}-{partition}.jsonl", []
        return True

    def process(self, row):
        self.rows.append(json.dumps(row.asDict()))

    def close(self, error):
        open(self.place, "w").write("\\n".join(self.rows))

os.mkdir(folder := f"{os.getcwd()}/filed")
counts().writeStream.outputMode("update").foreach(Filing()).trigger(availableNow=True).start().awaitTermination()

def broken(frame, number):
    raise ValueError(f"no batch {number}")

spark.streams.resetTerminated()
events().select("user").writeStream.foreachBatch(broken).trigger(availableNow=True).start()
spark.streams.awaitAnyTermination()
""")
    ended = job.run()
    assert ended.returncode == 1
    assert "ValueError: no batch 0" in ended.stderr
    answers, rows = said(ended), 4 * 500 - sum(rows_without_user(job, number) for number in range(4))
    assert (answers["at_once"], answers["thirds"], answers["counted"]) == (2, 3, rows)
    assert answers["refused"] == "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE"
    assert "the column of its watermark is not among the rows that it groups" in ended.stderr
    assert answers["first"] == answers["second"] > 0
    assert (answers["ended"], answers["kept"]) == (True, rows)
    filed = [json.loads(line) for file in (job.folder / "filed").iterdir() for line in file.read_text().splitlines()]
    assert Counter(row["user"] for row in filed).total() == sum(
        len(pq.read_table(file)["user"].drop_null().unique()) for file in (job.folder / "data").iterdir()
    )


TABLES = """
spark.sql(f"create table {sys.argv[1]}_made (user bigint, n bigint, odd bigint) using json partitioned by (odd)")
odd = counts().withColumn("odd", F.col("user") % 2)
for run in ("first", "again"):
    for table, format, by in (("new", None, "odd"), ("made", "json", None)):
        writer = odd.writeStream.option("checkpointLocation", f"checkpoints/{sys.argv[1]}/{table}").trigger(availableNow=True)
        writer.toTable(f"{sys.argv[1]}_{table}", format=format, partitionBy=by).awaitTermination()
        rows = spark.table(f"{sys.argv[1]}_{table}")
        said(**{f"{table} {run}": sorted(map(str, rows.groupBy("odd").agg(F.count("*"), F.sum("n"), F.max("user")).collect()))})
said(places=sorted(name for name in os.listdir(f"spark-warehouse/{sys.argv[1]}_new") if "SUCCESS" not in name))
try:
    odd.writeStream.option("checkpointLocation", "none").toTable(f"{sys.argv[1]}_new", format="orc")
except Exception as error:
    said(refused=type(error).__name__)
"""


def test_tables_get_what_they_get_by_spark(job: Job) -> None:
    job.write(TABLES)
    ours = job.run("ours", "--strict")
    assert ours.returncode == 0, ours.stderr[-2000:]
    sparks = said(job.run_by_spark("sparks"))
    assert said(ours) == sparks
    assert len(sparks["new first"]) == len(sparks["made again"]) == 2
    assert sparks["refused"] == "AnalysisException"


def test_sigterm_ends_a_script_after_its_batch(job: Job) -> None:
    job.write("""
query = (counts().writeStream.format("parquet").outputMode("append").option("checkpointLocation", "checkpoint").start("out"))
query.processAllAvailable()
said(pid=os.getpid())
query.awaitTermination()
""")
    with subprocess.Popen(job.command(), cwd=job.folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if line.startswith("SAID "))
        os.kill(json.loads(line.removeprefix("SAID "))["pid"], signal.SIGTERM)
        running.stdout.read()
        assert running.wait() == 128 + signal.SIGTERM
    eventually(lambda: not list((job.folder / "build/streamtopology/cluster").glob("*/driver-tmp")))
