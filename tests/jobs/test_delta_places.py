"""A table of Delta Lake in a folder and in a bucket: a hundred deaths at any moment, and answers that are lost."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas  # noqa: F401 - pyarrow would import it in each fork
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.connectors import stage
from support.processes import apart, killed_in

from streamtopology import topology
from streamtopology.jobs.bucket import Bucket
from streamtopology.jobs.connectors.sinks import SinkError, Writer, open_sink
from streamtopology.jobs.connectors.sinks.bucket import open_bucket

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)
pytestmark = [pytest.mark.clusters, pytest.mark.timeout(600)]

WRITER = Writer(topology="flights", run="run-1")
ROWS = 50
KILLS = 100
LONGEST_LIFE = 0.4
# More than the requests of a batch that makes the table.
MOST_ANSWERS = 30


def staged(folder: Path, batch: int) -> list[Path]:
    rows = pa.record_batch({"batch": pa.array([batch] * ROWS, pa.int64()), "part": [n % 3 for n in range(ROWS)]})
    path = folder / f"{batch}.arrow"
    stage(path, rows.schema, [rows])
    return [path]


def sink_at(place: str) -> topology.Sink:
    return topology.Sink("out", "counts", "delta", {"path": place, "partitionBy": "part"})


def rows_of_batches(place: str, folder: Path) -> Counter[int]:
    """The rows of the files that the log names, read by DuckDB."""
    table = DeltaTable(place, storage_options=open_bucket(place, "out").options if place.startswith("s3:") else None)
    names = [uri.removeprefix(f"{place}/") for uri in table.file_uris()]
    if place.startswith("s3:"):
        place = copied(open_bucket(place, "out"), names, folder)
    found = duckdb.sql(f"SELECT batch, count(*) FROM read_parquet({[f'{place}/{name}' for name in names]}) GROUP BY batch")
    return Counter(dict(found.fetchall()))


def copied(bucket: Bucket, names: list[str], folder: Path) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bucket.read(name))
    return str(folder)


@pytest.mark.parametrize("is_in_bucket", [False, True])
def test_a_hundred_deaths_at_any_moment_cost_nothing(s3_server: S3Server, tmp_path: Path, is_in_bucket: bool) -> None:
    place = s3_server.uri() if is_in_bucket else str(tmp_path / "out")
    random_ = random.Random(0)
    deaths = batch = 0

    def life() -> None:
        after = random_.uniform(0, LONGEST_LIFE)
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
        open_sink(sink_at(place), WRITER).publish(batch, staged(tmp_path, batch))

    while deaths < KILLS:
        random_.random()  # what a fork draws, its parent does not
        is_dead = killed_in(life)
        deaths += is_dead
        batch += not is_dead

    def read() -> None:
        open_sink(sink_at(place), WRITER).publish(batch, staged(tmp_path, batch))
        assert rows_of_batches(place, tmp_path / "copy") == Counter(dict.fromkeys(range(batch + 1), ROWS))

    apart(read)()


def test_answer_that_is_lost_at_any_request_costs_nothing(s3_server: S3Server, tmp_path: Path) -> None:
    for lost in range(MOST_ANSWERS):
        place = s3_server.uri()
        with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
            way.passes_answers, way.loses_answers = lost, 1

            def publish(place: str = place) -> None:
                sink = open_sink(sink_at(place), WRITER)
                for batch in range(2):
                    sink.publish(batch, staged(tmp_path, batch))

            apart(publish)()
        copy = tmp_path / f"copy-{lost}"

        def read(place: str = place, copy: Path = copy) -> None:
            assert rows_of_batches(place, copy) == {0: ROWS, 1: ROWS}

        apart(read)()


@apart
def test_server_that_is_away_is_a_sentence_and_the_batch_waits(s3_server: S3Server, tmp_path: Path) -> None:
    place = s3_server.uri()
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        sink = open_sink(sink_at(place), WRITER)
        way.close()
        with pytest.raises(SinkError, match=rf"sink 'out': table {place}: .*Generic S3 error.*error sending request"):
            sink.publish(0, staged(tmp_path, 0))
        way.open()
        sink.publish(0, staged(tmp_path, 0))
    assert rows_of_batches(place, tmp_path / "copy") == {0: ROWS}


@apart
def test_bucket_that_is_none_is_a_sentence(s3_server: S3Server) -> None:
    with pytest.raises(SinkError, match=r"sink 'out': table s3://none/x: .*NoSuchBucket"):
        open_sink(sink_at("s3://none/x"), WRITER).publish(0, [])
