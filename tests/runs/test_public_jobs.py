"""Scripts as people publish them, by `streamtopology run` and by plain Spark: both print the same, batch by batch.

`public_jobs` has scripts of our own in the shapes of such jobs: one stream or two, their operators, sinks and ends. Those of
Spark are the examples of the installed pyspark. Each side runs all in one process, one after the other, as if by hand.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.timeout(900)

STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")
SCRIPTS = Path(__file__).with_name("public_jobs")
EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming"
WORDS = ["structured_network_wordcount", "structured_network_wordcount_windowed", "structured_network_wordcount_session_window"]
# By Spark itself.
REFUSED = "structured_sessionization"
SORTED = {"hashtags", "hashtags_sql", "late"}

ALL = """
import os, runpy, sys, threading, time, traceback
from pathlib import Path
from pyspark.sql import SparkSession

STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = (SparkSession.builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC")
         .config("spark.sql.streaming.stateStore.providerClass", STORE).getOrCreate())

def stop_after_last_word():
    while "the-end" not in Path("stdout").read_text().rpartition("@@ ")[2]:
        time.sleep(0.2)
    for query in spark.streams.active:
        query.stop()

for line in Path("list").read_text().splitlines():
    script, *arguments = line.split()
    sys.argv = [script, *arguments]
    for stream in (sys.stdout, sys.stderr):
        print(f"@@ {Path(script).stem}", file=stream, flush=True)
    if arguments:
        threading.Thread(target=stop_after_last_word, daemon=True).start()
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        print(f"RAISED {type(error).__name__} {str(error).split()[0]}", flush=True)
        traceback.print_exc()
    spark.streams.resetTerminated()
"""


def inputs(folder: Path) -> None:
    """Write what the scripts read: some files for each stream, in each a batch; events are late, broken, or there twice."""
    draw, noon = random.Random(7), datetime(2025, 11, 1, 12)

    def times(step: float) -> Iterator[tuple[int, datetime]]:
        for number in range(1200):
            late = 3600 if draw.random() < 0.03 else draw.randrange(60)
            yield number, noon + timedelta(seconds=int(step * number) - late)

    def write(name: str, lines: list[str], kind: str) -> None:
        (folder / name).mkdir(parents=True)
        for part in range(4):
            file = folder / name / f"{part}.{kind}"
            file.write_text("\n".join(lines[part * len(lines) // 4 : (part + 1) * len(lines) // 4]) + "\n")
            os.utime(file, (1_700_000_000 + part, 1_700_000_000 + part))  # the order in which Spark reads them

    def click(at: datetime) -> str:
        kind = draw.choice(["view", "view", "add_to_cart", "purchase"])
        user = None if draw.random() < 0.02 else f"u{min(draw.randrange(30), draw.randrange(30))}"
        price = None if draw.random() < 0.02 else draw.randrange(100)
        return json.dumps({"user_id": user, "price": price, "event_type": kind, "timestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}"})

    def tags() -> str:
        return ",".join(draw.choice(["ipl", "csk", "mi", "rcb", "kkr", "srh", "täg"]) for _ in range(draw.randrange(4)))

    def trade(at: datetime) -> str:
        made = {"CreatedTime": f"{at:%Y-%m-%d %H:%M:%S}", "Type": draw.choice(["BUY", "SELL"]), "Amount": draw.randrange(1000)}
        return json.dumps(made)

    def vote(at: datetime) -> str:
        address = {"city": draw.choice("AB"), "state": draw.choice(["S1", "S2", "S3"])}
        candidate = draw.choice(["c0", "c1", "c2", None])
        return json.dumps({"candidate": candidate, "vote": 1, "voting_time": f"{at:%Y-%m-%dT%H:%M:%SZ}", "address": address})

    clicks = [click(at) if draw.random() < 0.99 else "not json" for _, at in times(10)]
    write("clicks", [line for line in clicks for _ in range(1 + (draw.random() < 0.03))], "txt")
    write("trades", [trade(at) for _, at in times(30)], "json")
    write("tweets", [f"{number};{tags()};{draw.choice(['', draw.randrange(99)])}" for number, _ in times(1)], "csv")
    write("votes", [vote(at) for _, at in times(1)], "txt")
    ticks = [
        {"timestamp": f"{noon + timedelta(seconds=12 * n):%Y-%m-%dT%H:%M:%SZ}", "value": n if n < 400 else 6 * n}
        for n in range(800)
    ]
    write("ticks", [json.dumps(tick) for tick in ticks], "json")
    shown = [(n, noon + timedelta(seconds=20 * n)) for n in range(400)]
    write(
        "impressions",
        [json.dumps({"ImpressionID": f"i{n}", "ImpressionTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"}) for n, at in shown],
        "json",
    )
    later = [(draw.randrange(500), at + timedelta(seconds=draw.randrange(900))) for _, at in shown]
    write(
        "impression-clicks",
        [json.dumps({"ClickID": f"i{n}", "ClickTime": f"{at:%Y-%m-%dT%H:%M:%SZ}"}) for n, at in later],
        "json",
    )


def serve_words() -> int:
    """Send some lines to each that connects, and a last word 2 s later; returns the port."""
    server = socket.create_server(("127.0.0.1", 0))

    def send(client: socket.socket) -> None:
        client.sendall(b"apache spark apache\nhadoop apache\n" * 50)
        time.sleep(2)
        client.sendall(b"the-end\n")

    def accept() -> None:
        while True:
            threading.Thread(target=send, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return server.getsockname()[1]


class Side:
    """What one side has printed, by script: on stdout and on stderr."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "in").symlink_to(folder.parent / "in")
        (folder / "all.py").write_text(ALL)
        port = serve_words()
        lines = [str(script) for script in sorted(SCRIPTS.glob("*.py"))]
        lines += [f"{EXAMPLES / name}.py 127.0.0.1 {port}{' 600' * name.endswith('windowed')}" for name in WORDS]
        (folder / "list").write_text("\n".join([*lines, f"{EXAMPLES / REFUSED}.py 127.0.0.1 {port}"]))
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
            inherited = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
            ended = subprocess.run(command, cwd=folder, env=inherited, stdout=out, stderr=errors, check=False)
        self.stdout, self.stderr = ((folder / name).read_text() for name in ("stdout", "stderr"))
        assert ended.returncode == 0, self.stderr[-3000:]

    def printed(self, script: str) -> str:
        return self.stdout.partition(f"@@ {script}\n")[2].partition("@@ ")[0]

    def sentences(self, script: str) -> list[str]:
        part = self.stderr.partition(f"@@ {script}\n")[2].partition("@@ ")[0]
        return re.findall(r"streamtopology: (.*)", part)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    """Ours, and Spark's."""
    base = tmp_path_factory.mktemp("public")
    inputs(base / "in")
    ours = Side(base / "ours", [str(STREAMTOPOLOGY), "run", "all.py", "--executors", "fast:1:1,slow:1:0.5"], {})
    conf = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    sparks = Side(base / "sparks", [sys.executable, "all.py"], {"PYSPARK_SUBMIT_ARGS": conf, "PYSPARK_PYTHON": sys.executable})
    return ours, sparks


def tables(printed: str) -> list[list[str]]:
    """The tables of a text, each with "Batch: N" if it has one, its head and its rows, without the spaces that fill columns."""
    found: list[list[str]] = []
    number, borders = "", 0
    for line in printed.splitlines():
        if line.startswith("Batch: "):
            number = line
        elif line.startswith("+-"):
            borders = borders % 3 + 1
            found += [[number]] if borders == 1 else []
        elif line.startswith("|"):
            found[-1].append(re.sub(r"\s+", " ", line))
    return found


def without_last_batches(ours: list[list[str]], sparks: list[list[str]], is_complete: bool) -> list[list[str]]:
    """Without the tables of batches that only we have: the end of an input is one, without rows, or with the result again."""
    kept: list[list[str]] = []
    for table in ours:
        place = len(kept)
        if place < len(sparks) and table[0] == sparks[place][0]:
            kept.append(table)
        else:
            assert table[2:] == (kept[-1][2:] if is_complete else [])
    return kept


@pytest.mark.parametrize("script", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_script_prints_what_it_prints_on_spark(script: str, sides: tuple[Side, Side]) -> None:
    ours, sparks = (tables(side.printed(script)) for side in sides)
    assert sum(map(len, sparks)) > 10, sides[1].printed(script)
    assert not [line for side in sides for line in side.printed(script).splitlines() if line.startswith("RAISED")]
    ours = without_last_batches(ours, sparks, script in SORTED)
    assert len(ours) == len(sparks)
    for mine, theirs in zip(ours, sparks, strict=True):
        assert mine == theirs if script in SORTED else Counter(mine) == Counter(theirs), theirs[0]
    assert not sides[0].sentences(script), "nothing is left to Spark"


@pytest.mark.parametrize(
    ("script", "columns", "is_complete"), [(WORDS[0], [0, 1], True), (WORDS[1], [1, 2], True), (WORDS[2], [0, 1], False)]
)
def test_example_of_spark_counts_the_words_of_a_socket(
    script: str, columns: list[int], is_complete: bool, sides: tuple[Side, Side]
) -> None:
    """The clock cuts batches, windows and sessions here: what is compared is words and their counts at the end."""

    def counted(side: Side) -> Counter[str]:
        printed = [table for table in tables(side.printed(script)) if table[2:]]
        counts: Counter[str] = Counter()
        for table in printed[-1:] if is_complete else printed:
            for line in table[2:]:
                cells = [cell.strip() for cell in line.strip("|").split("|")]
                counts[cells[columns[0]]] += int(cells[columns[1]])
        return counts

    ours, sparks = (counted(side) for side in sides)
    assert ours == sparks == Counter({"apache": 150, "spark": 50, "hadoop": 50, "the-end": 1})
    assert not sides[0].sentences(script)


def test_a_query_that_spark_refuses_is_refused_by_the_same_error(sides: tuple[Side, Side]) -> None:
    ours, sparks = (side.printed(REFUSED).strip() for side in sides)
    assert ours == sparks == "RAISED AnalysisException [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]"
