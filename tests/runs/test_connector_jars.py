"""A connector's jar from Maven Central, named in `spec.sparkConf`: its format is read where Spark puts it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from confluent_kafka import Producer
from support.manifests import manifest

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.kafka import Broker

pytest_plugins = ("support.kafka",)
pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

# The newest that Maven Central has; it works with the Spark of this project.
AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
SCHEMA = {
    "type": "record", "name": "ride",
    "fields": [{"name": "city", "type": "string"}, {"name": "fare", "type": "double"}],
}  # fmt: skip


def run_to_its_end(folder: Path, jars: str) -> subprocess.CompletedProcess[str]:
    source = {
        "name": "rides",
        "format": "avro",
        "schema": "city STRING, fare DOUBLE",
        "options": {"path": str(folder / "rides")},
    }
    operator = {
        "name": "fares", "inputs": ["rides"], "grouping": {"key": "city"}, "run": "aggregate",
        "with": {"aggregates": {"n": "count()", "total": "sum(fare)"}},
    }  # fmt: skip
    sink = {"name": "out", "input": "fares", "format": "json", "options": {"path": str(folder / "out")}}
    given = manifest(
        "rides", [source], [operator], [sink], sparkConf={"spark.jars.packages": jars}, trigger={"availableNow": True}
    )
    (folder / "rides.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    command = [Path(sys.executable).with_name("streamtopology"), "run", "rides.yaml", "--work-dir", "work"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_rows_of_a_format_that_comes_as_a_jar(tmp_path: Path) -> None:
    rides = [("Lima", 2.5), ("Oslo", 4.0), ("Lima", 0.5)]
    write_avro(tmp_path / "rides" / "a.avro", rides)
    ended = run_to_its_end(tmp_path, AVRO)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert {row["city"]: (row["n"], row["total"]) for row in found} == {"Lima": (2, 3.0), "Oslo": (1, 4.0)}


def test_jar_that_does_not_exist_is_named(tmp_path: Path) -> None:
    write_avro(tmp_path / "rides" / "a.avro", [("Lima", 2.5)])
    ended = run_to_its_end(tmp_path, "org.example:nothing:1")
    assert ended.returncode == 2
    assert "Spark does not start with the jars of spec.sparkConf (spark.jars.packages: org.example:nothing:1)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_rows_that_a_writer_of_a_jar_takes(tmp_path: Path) -> None:
    """By JDBC into SQLite. The second run finds the first one's rows, and adds its own."""
    (tmp_path / "rides").mkdir()
    source = {"name": "rides", "format": "json", "schema": "city STRING, fare DOUBLE", "options": {"path": "rides"}}
    operator = {"name": "all", "inputs": ["rides"], "run": "filter", "with": {"where": "fare > 0"}}
    table = {"url": "${env:DATABASE}", "driver": "org.sqlite.JDBC", "dbtable": "rides"}
    options = {"writer": "jdbc", **table, "numPartitions": 1}
    sink = {"name": "out", "input": "all", "format": "spark", "options": options}
    conf = {"spark.jars.packages": "org.xerial:sqlite-jdbc:3.54.1.0"}
    given = manifest("rides", [source], [operator], [sink], sparkConf=conf, trigger={"availableNow": True})
    (tmp_path / "rides.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "rides.db")) as database:
        database.execute("CREATE TABLE rides (city TEXT, fare DOUBLE)")
    for number, cities in enumerate((("Lima", "Oslo"), ("Rome",))):
        lines = [json.dumps({"city": city, "fare": 1.5}) for city in cities]
        (tmp_path / "rides" / f"{number}.json").write_text("\n".join(lines), encoding="utf-8")
        command = [Path(sys.executable).with_name("streamtopology"), "run", "rides.yaml", "--work-dir", "work"]
        environment = {**os.environ, "DATABASE": f"jdbc:sqlite:{tmp_path}/rides.db"}
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    with closing(sqlite3.connect(tmp_path / "rides.db")) as database:
        found = database.execute("SELECT city, fare FROM rides ORDER BY city").fetchall()
    assert found == [("Lima", 1.5), ("Oslo", 1.5), ("Rome", 1.5)]


AFTER_AN_EARLY_START = """
import sys
from streamtopology.jobs.spark.session import create_session, start_driver_jvm
conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
start_driver_jvm(conf)
spark = create_session("pods", "local[1]", {**conf, "spark.jars.packages": sys.argv[1], "spark.hadoop.a.b": "c"})
rows = spark.read.format("avro").load(sys.argv[2]).count()
print(rows, spark.sparkContext._jsc.hadoopConfiguration().get("a.b"))
spark.stop()
"""


def test_jvm_that_was_started_before_the_topology_was_known_gets_the_jars(tmp_path: Path) -> None:
    """As in a pod, whose driver starts its JVM while it waits for the ConfigMap."""
    write_avro(tmp_path / "rides" / "a.avro", [("Lima", 2.5), ("Oslo", 4.0)])
    command = [sys.executable, "-c", AFTER_AN_EARLY_START, AVRO, str(tmp_path / "rides")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines()[-1:] == ["2 c"], ended.stdout + ended.stderr


def write_avro(file: Path, rides: list[tuple[str, float]]) -> None:
    """By the specification of Avro 1.12, Object Container Files: a header, and one block without compression."""
    header = {"avro.schema": json.dumps(SCHEMA).encode(), "avro.codec": b"null"}
    sync = os.urandom(16)
    rows = b"".join(_bytes(city.encode()) + struct.pack("<d", fare) for city, fare in rides)
    entries = b"".join(_bytes(name.encode()) + _bytes(value) for name, value in header.items())
    file.parent.mkdir()
    file.write_bytes(
        b"Obj\x01" + _long(len(header)) + entries + _long(0) + sync + _long(len(rides)) + _long(len(rows)) + rows + sync
    )


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _long(value: int) -> bytes:
    """Zig-zag, seven bits a byte, the lowest first."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


TOPICS_JOB = """
import json, sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.config("spark.jars.packages", sys.argv[1]).getOrCreate()
rows = spark.readStream.format("kafka").options(**json.loads(sys.argv[2])).load()
header = F.col("headers")[0]["value"].cast("string").alias("header")
counts = rows.groupBy("topic", header, "timestampType").agg(F.count("*").alias("n"))

def keep(batch, number):
    print("SAID " + json.dumps([list(row) for row in batch.collect()]), flush=True)

writer = counts.writeStream.foreachBatch(keep).outputMode("update").option("checkpointLocation", "checkpoint")
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
"""
STARTED_AT = next(number for number, line in enumerate(TOPICS_JOB.splitlines(), 1) if ".start()" in line)


@pytest.mark.timeout(600)
def test_script_reads_topics_by_sparks_connector_with_its_options(kafka_broker: Broker, tmp_path: Path) -> None:
    """As on Spark: of a pattern's topics what is of a time or later, then on from the commit, and new topics as a whole."""
    first = kafka_broker.topic(partitions=2)
    kafka_broker.create(second := f"{first}-2")
    begin = int(time.time() * 1000) - 3_600_000
    send_with_headers(kafka_broker, first, {begin: "too old", begin + 1_000: "of the time", begin + 2_000: "later"})
    send_with_headers(kafka_broker, second, {begin: "too old"})
    login = f'username="{kafka_broker.user}" password="{kafka_broker.password}"'
    options = {
        "kafka.bootstrap.servers": kafka_broker.secured,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};",
        "subscribePattern": f"{first}.*",
        "startingOffsets": "earliest",
        "startingTimestamp": str(begin + 1_000),
        "startingOffsetsByTimestampStrategy": "latest",
        "includeHeaders": "true",
        "minPartitions": "5",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
    }
    assert counts_said(tmp_path, options) == {(first, "of the time", 0): 1, (first, "later", 0): 1}
    kafka_broker.create(third := f"{first}-3")
    send_with_headers(kafka_broker, third, {begin: "too old"})
    send_with_headers(kafka_broker, first, {begin: "later"})
    slips = {"startingOffset": "latest", "endingTimestamp": "1"}  # Spark's own reader says nothing of them
    assert counts_said(tmp_path, options | slips, ignored=set(slips)) == {(third, "too old", 0): 1, (first, "later", 0): 2}


def send_with_headers(broker: Broker, topic: str, headers: dict[int, str]) -> None:
    """A message of each time, in milliseconds."""
    producer = Producer({"bootstrap.servers": broker.servers})
    for at, header in headers.items():
        producer.produce(topic, b"v", partition=0, timestamp=at, headers=[("h", header.encode())])
    assert producer.flush(30) == 0


def counts_said(folder: Path, options: dict[str, str], ignored: Collection[str] = ()) -> dict[tuple[str, str, int], int]:
    """The counts of a run of the script, which names the options that are `ignored`."""
    (folder / "job.py").write_text(TOPICS_JOB)
    streamtopology = Path(sys.executable).with_name("streamtopology")
    command = [streamtopology, "run", "job.py", "--strict", "--executors", "a:1:1,b:1:1", "--", KAFKA, json.dumps(options)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    sentence = f"job.py, line {STARTED_AT}: Spark's reader of Kafka has no option (\\w+) in a stream, and ignores it"
    named = re.findall(sentence, ended.stderr)
    assert sorted(named) == sorted(ignored), ended.stderr[-2000:]
    said = [json.loads(line.removeprefix("SAID ")) for line in ended.stdout.splitlines() if line.startswith("SAID ")]
    return {(topic, header, kind): n for batch in said for topic, header, kind, n in batch}
