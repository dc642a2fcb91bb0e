"""A connector's jar from Maven Central, named in `spec.sparkConf`: its format is read where Spark puts it."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from support.manifests import manifest

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

# The newest that Maven Central has; it works with the Spark of this project.
AVRO = "org.apache.spark:spark-avro_2.13:4.2.0"
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
