"""A table of Iceberg whose warehouse is a folder or a bucket: a hundred deaths at any moment, and answers that are lost."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pyiceberg.io.pyarrow  # noqa: F401 - pyiceberg would import it in each fork
import pytest
from pyiceberg.catalog import load_catalog
from support.connectors import stage
from support.processes import apart, killed_in

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import SinkError, Writer, open_sink

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)
pytestmark = [pytest.mark.clusters, pytest.mark.timeout(600)]

WRITER = Writer(topology="flights", run="run-1")
ROWS = 50
KILLS = 100
LONGEST_LIFE = 0.6
# More than the requests of two batches, of which the first one makes the table.
MOST_ANSWERS = 40


@pytest.fixture(autouse=True)
def _plain_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' server answers twice to a request that ends in a checksum, as Arrow's do unless told otherwise."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


def staged(folder: Path, batch: int) -> list[Path]:
    rows = pa.record_batch({"batch": pa.array([batch] * ROWS, pa.int64()), "part": [n % 3 for n in range(ROWS)]})
    path = folder / f"{batch}.arrow"
    stage(path, rows.schema, [rows])
    return [path]


def sink_at(folder: Path, warehouse: str) -> topology.Sink:
    of_catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
    options = {f"catalog.{name}": value for name, value in of_catalog.items()}
    return topology.Sink("out", "counts", "iceberg", {"table": "lake.out", "partitionBy": "part", **options})


def rows_of_batches(folder: Path, warehouse: str) -> Counter[int]:
    of_server = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse, **of_server)
    return Counter(catalog.load_table("lake.out").scan().to_arrow()["batch"].to_pylist())


@pytest.mark.parametrize("is_in_bucket", [False, True])
def test_a_hundred_deaths_at_any_moment_cost_nothing(s3_server: S3Server, tmp_path: Path, is_in_bucket: bool) -> None:
    warehouse = s3_server.uri() if is_in_bucket else str(tmp_path / "warehouse")
    random_ = random.Random(0)
    deaths = batch = 0

    def life() -> None:
        after = random_.uniform(0, LONGEST_LIFE)
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
        open_sink(sink_at(tmp_path, warehouse), WRITER).publish(batch, staged(tmp_path, batch))

    while deaths < KILLS:
        random_.random()  # what a fork draws, its parent does not
        is_dead = killed_in(life)
        deaths += is_dead
        batch += not is_dead

    def read() -> None:
        open_sink(sink_at(tmp_path, warehouse), WRITER).publish(batch, staged(tmp_path, batch))
        assert rows_of_batches(tmp_path, warehouse) == Counter(dict.fromkeys(range(batch + 1), ROWS))

    apart(read)()


def test_answer_of_a_bucket_that_is_lost_costs_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    for lost in range(MOST_ANSWERS):
        folder = tmp_path / str(lost)
        folder.mkdir()

        def publish(lost: int = lost, folder: Path = folder) -> None:
            warehouse = s3_server.uri()
            with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
                way.passes_answers, way.loses_answers = lost, 1
                for batch in range(2):
                    for _ in range(2):  # as a driver that starts again after the sentence
                        try:
                            open_sink(sink_at(folder, warehouse), WRITER).publish(batch, staged(folder, batch))
                        except SinkError as error:
                            print(error)
            assert rows_of_batches(folder, warehouse) == {0: ROWS, 1: ROWS}

        apart(publish)()


@apart
def test_bucket_that_is_away_is_a_sentence_and_the_batch_waits(s3_server: S3Server, tmp_path: Path) -> None:
    warehouse = s3_server.uri()
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        sink = open_sink(sink_at(tmp_path, warehouse), WRITER, rows=pa.schema({"batch": pa.int64(), "part": pa.int64()}))
        way.close()
        with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*checkpoints.*NETWORK_CONNECTION"):
            sink.publish(0, staged(tmp_path, 0))
        way.open()
        sink.publish(0, staged(tmp_path, 0))
    assert rows_of_batches(tmp_path, warehouse) == {0: ROWS}


@apart
def test_bucket_that_is_none_or_gives_no_rights_is_a_sentence_before_the_start(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.schema({"batch": pa.int64(), "part": pa.int64()})
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*NO_SUCH_BUCKET"):
        open_sink(sink_at(tmp_path, "s3://none/x"), WRITER, rows=rows)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(SinkError, match=r"sink 'out': table lake.out: .*ACCESS_DENIED"):
        open_sink(sink_at(tmp_path, s3_server.uri()), WRITER, rows=rows)
