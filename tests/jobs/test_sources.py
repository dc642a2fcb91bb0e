"""Descriptors are replayed alike, wrong sources are refused, and shares are kept."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.streams import Stream, parquet_file, rows_of, spec

from streamtopology.jobs.connectors.sources.assignment import TOLERANCE, assign
from streamtopology.jobs.connectors.sources.descriptor_stream import (
    DescriptorStream,
    Planned,
    Positions,
)
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.source_tag import untag
from streamtopology.jobs.connectors.sources.spark.native import load, tagged_union
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.lab.bench.flights_data import key_shares, make_flights, make_keys
from streamtopology.topology import Doubt, Source

# --- descriptors and replay


def test_files_come_by_time_then_name_a_row_group_each(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "b.parquet", [1, 2, 3], mtime=100)
    parquet_file(data, "a.parquet", [4], mtime=100)
    parquet_file(data, "z.parquet", [5], mtime=50)
    (data / "_SUCCESS").touch()
    stream = Stream(tmp_path / "log", spec(data))
    descriptors, end = stream.read({})
    assert [(Path(d.path).name, d.part, d.rows) for d in descriptors] == [
        ("z.parquet", 0, 1), ("a.parquet", 0, 1), ("b.parquet", 0, 2), ("b.parquet", 1, 1)]  # fmt: skip
    assert end == {"s": 3}
    assert [row["key"] for row in rows_of(descriptors, spec(data))] == [5, 4, 1, 2, 3]


def test_new_files_are_noticed_and_nothing_new_is_the_same_offset(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    stream = Stream(tmp_path / "log", spec(data))
    _, first = stream.read({})
    assert stream.read(first) == ([], first)
    parquet_file(data, "older.parquet", [2], mtime=10)
    descriptors, second = stream.read(first)
    assert [Path(d.path).name for d in descriptors] == ["older.parquet"]
    assert second == {"s": 2}


@settings(max_examples=25)
@given(
    arrivals=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    limit=st.none() | st.integers(1, 3),
    later_limit=st.none() | st.integers(1, 3),
)
def test_the_same_offsets_give_the_same_descriptors_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[int], limit: int | None, later_limit: int | None
) -> None:
    home = tmp_path_factory.mktemp("replay")
    data = home / "in"
    data.mkdir()

    def limited(limit: int | None) -> SourceSpec:
        return spec(data) if limit is None else spec(data, maxFilesPerTrigger=str(limit))

    stream, seen, files = Stream(home / "log", limited(limit)), [], 0
    offset = {}
    for count in arrivals:
        for _ in range(count):
            parquet_file(data, f"{files:03d}.parquet", [files, -files, 7], mtime=1000 - files % 3)
            files += 1
        descriptors, end = stream.read(offset)
        seen.append((offset, end, descriptors))
        offset = end
    restarted = Stream(home / "log", limited(later_limit))
    for start, end, descriptors in seen:
        assert restarted.replay(start, end) == descriptors
    while (step := restarted.read(offset))[1] != offset:
        seen.append((offset, step[1], step[0]))
        offset = step[1]
    paths = [d.path for _, _, descriptors in seen for d in descriptors if d.part == 0]
    assert sorted(paths) == sorted(str(path) for path in data.iterdir())


def test_a_batch_logged_but_not_recorded_by_spark_is_handed_out_again(tmp_path: Path) -> None:
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    stream = Stream(tmp_path / "log", spec(data))
    start = {}
    before, end = stream.read(start)
    parquet_file(data, "b.parquet", [2], mtime=1)
    restarted = Stream(tmp_path / "log", spec(data))
    assert restarted.read(start) == (before, end)
    assert [Path(d.path).name for d in restarted.read(end)[0]] == ["b.parquet"]


def test_two_readers_of_one_log_agree(tmp_path: Path) -> None:
    """A restarted process beside one that is dying, each having listed other files."""
    data = tmp_path / "in"
    parquet_file(data, "a.parquet", [1], mtime=100)
    one, two = (Stream(tmp_path / "log", spec(data)) for _ in range(2))
    start = {}
    first = one.read(start)
    parquet_file(data, "b.parquet", [2], mtime=1)
    assert two.read(start) == first
    assert two.read(first[1]) == one.read(first[1])


def test_available_now_ends_with_the_files_that_were_there(tmp_path: Path) -> None:
    data = tmp_path / "in"
    for number in range(3):
        parquet_file(data, f"{number}.parquet", [number], mtime=100)
    stream = Stream(tmp_path / "log", spec(data, maxFilesPerTrigger="2"))
    stream.stream.close_listing()
    parquet_file(data, "late.parquet", [9], mtime=100)
    offset, names = {}, []
    while (step := stream.read(offset))[1] != offset:
        names.append([Path(d.path).name for d in step[0]])
        offset = step[1]
    assert names == [["0.parquet", "1.parquet"], ["2.parquet"]]


def test_several_sources_share_one_offset(tmp_path: Path) -> None:
    parquet_file(tmp_path / "p", "a.parquet", [1], mtime=1)
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "words.txt").write_text("to be\nor not\n")
    sources = [
        SourceSpec.of(Source("p", "parquet", "key BIGINT", {"path": str(tmp_path / "p")})),
        SourceSpec.of(Source("t", "text", None, {"path": str(tmp_path / "t")})),
    ]
    stream = Stream(tmp_path / "log", *sources)
    descriptors, end = stream.read({})
    assert [(d.source, d.kind, d.rows) for d in descriptors] == [("p", "parquet", 1), ("t", "text", 2)]
    assert end == {"p": 1, "t": 1}


def test_an_offset_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "a.parquet", [1], mtime=1)
    stream = Stream(tmp_path / "log", spec(tmp_path / "in"))
    with pytest.raises(SourceError, match="at file number 5 but its file log holds 0"):
        stream.replay({"s": 0}, {"s": 5})
    with pytest.raises(SourceError, match="at file number 5 but its file log holds 0"):
        stream.read({"s": 5})


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "half.parquet").write_bytes(b"PAR1 half a file")
    stream = Stream(tmp_path / "log", spec(tmp_path / "in"))
    with pytest.raises(SourceError, match=r"half\.parquet is no readable parquet file"):
        stream.read({})


# --- checks before start


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (Source("s", "parquet", "k INT", {"path": "/no/such/folder"}), "folder /no/such/folder does not exist"),
        (Source("s", "parquet", None, {"path": "/tmp"}), "needs a schema"),
        (Source("s", "parquet", "k INTT", {"path": "/tmp"}), "unknown type 'INTT'"),
        (Source("s", "json", "k INT", {}), "needs option path"),
        (Source("s", "json", "k INT", {"path": "/tmp", "header": "true"}), "has no option 'header'"),
        (Source("s", "csv", "k INT", {"path": "/tmp", "header": "yes"}), "must be true or false, not 'yes'"),
        (Source("s", "text", None, {"path": "/tmp", "maxFilesPerTrigger": "0"}), "whole number above 0, not '0'"),
        (Source("s", "parquet", "k INT", {"path": "s3a://bucket/x"}), r"only local paths, file: URIs and s3://BUCKET/PREFIX"),
        (Source("s", "parquet", "k INT", {"path": "s3:///x"}), "write s3://BUCKET/PREFIX, with the bucket's name"),
        (Source("s", "kafka", None, {"subscribe": "t"}), "needs option kafka.bootstrap.servers"),
        (Source("s", "kafka", None, {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "startingOffsets": "first"}),
         "must be earliest, latest or JSON"),
        *((Source("s", "kafka", None, {"kafka.bootstrap.servers": "x:1", "subscribe": "t", f"kafka.{setting}": "mine"}),
           f"option kafka.{setting} cannot be set, because")
          for setting in ("auto.offset.reset", "enable.auto.commit", "enable.partition.eof")),
    ],
)  # fmt: skip
def test_a_wrong_source_is_refused_with_a_sentence(source: Source, complaint: str) -> None:
    (problem,) = (finding for finding in check(source).findings if not isinstance(finding, Doubt))  # of what /tmp has
    assert problem.message.startswith("source 's'")
    assert complaint in problem.message


def test_a_broker_out_of_reach_is_a_doubt_and_no_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
    options = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
    (doubt,) = check(Source("s", "kafka", None, options)).findings
    assert isinstance(doubt, Doubt)
    assert doubt.path == "options.kafka.bootstrap.servers"
    assert f"no broker at {servers} accepts connections from here" in doubt.message
    (problem,) = check(Source("s", "kafka", None, {**options, "kafka.nonsense": "1"})).findings
    assert not isinstance(problem, Doubt)
    assert "nonsense" in problem.message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.acks": "all"}, "request.required.acks is a producer property and will be ignored by this consumer"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "`security.protocol` is not configured for SASL"),
        ({"kafka.fetch.min.bytes": "1"}, None),
    ],
)
def test_client_settings_that_are_not_used_are_doubts(options: dict[str, str], sentence: str | None) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    findings = [finding for finding in check(Source("s", "kafka", None, given)).findings if finding.path == "options"]
    assert all(isinstance(finding, Doubt) and "correct its kafka.* options" in finding.message for finding in findings)
    assert [sentence is not None and sentence in finding.message for finding in findings] == ([True] if sentence else [])


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sasl.jaas.config", "Java JAAS configuration is not supported"),
        ("ssl.truststore.location", "Java TrustStores are not supported, use `ssl.ca.location`"),
        ("fetch.max.wait.ms", 'No such configuration property: "fetch.max.wait.ms"'),
        ("key.deserializer", 'No such configuration property: "key.deserializer"'),
    ],
)
def test_settings_of_kafkas_java_client_alone_are_refused(setting: str, sentence: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", f"kafka.{setting}": "x"}
    (problem,) = check(Source("s", "kafka", None, given)).findings
    assert not isinstance(problem, Doubt)
    assert sentence in problem.message


def test_a_good_source_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "part.csv").write_text("k\n1\n")
    checked = check(Source("s", "csv", "k INT", {"path": str(tmp_path), "header": "true"}))
    assert checked.findings == ()
    assert checked.rows == pa.schema([("k", pa.int32())])
    assert check(Source("s", "rate", None, {"rowsPerSecond": "5"})).findings == ()


# --- shares


descriptors_of_sizes = st.lists(st.tuples(st.integers(0, 5000), st.sampled_from(["parquet", "csv", "kafka"])), max_size=20).map(
    lambda sizes: [Descriptor("s", kind, f"f{i}", 0, 10, 10 + n, n) for i, (n, kind) in enumerate(sizes)]
)
some_shares = st.lists(st.floats(0, 10), min_size=1, max_size=6).filter(lambda shares: sum(shares) > 0.1)


@settings(max_examples=150)
@given(descriptors=descriptors_of_sizes, shares=some_shares)
def test_every_row_is_assigned_once(descriptors: list[Descriptor], shares: list[float]) -> None:
    slots = assign(descriptors, shares)
    assert len(slots) == len(shares)
    pieces = [piece for slot in slots for piece in slot]
    for whole in descriptors:
        parts = sorted((p for p in pieces if p.path == whole.path), key=lambda p: p.start)
        assert [p.start for p in parts] == [whole.start, *[p.end for p in parts[:-1]]]
        assert parts[-1].end == whole.end
        assert sum(p.rows for p in parts) == whole.rows
        assert whole.kind != "csv" or len(parts) == 1
    assert sum(len(slot) for slot, share in zip(slots, shares, strict=True) if share == 0) == 0
    assert assign(descriptors, shares) == slots


@settings(max_examples=100)
@given(sizes=st.lists(st.integers(1000, 100_000), min_size=1, max_size=12), shares=some_shares)
def test_rows_follow_the_shares(sizes: list[int], shares: list[float]) -> None:
    descriptors = [Descriptor("s", "parquet", f"f{i}", 0, 0, n, n) for i, n in enumerate(sizes)]
    for slot, share in zip(assign(descriptors, shares), shares, strict=True):
        part = sum(sizes) * share / sum(shares)
        assert sum(d.rows for d in slot) <= (1 + TOLERANCE) * part + len(shares)


def test_nothing_is_cut_when_whole_row_groups_fit() -> None:
    descriptors = [Descriptor("s", "parquet", "f", i, 0, 1000, 1000) for i in range(33)]
    slots = assign(descriptors, [1, 1, 1, 0.3])
    assert sorted((d for slot in slots for d in slot), key=lambda d: d.part) == descriptors


@given(rows=st.lists(st.integers(1, 80), min_size=1, max_size=12), shares=st.lists(st.floats(0.1, 1), min_size=1, max_size=4))
def test_partition_of_kafka_stays_where_it_was_read_while_batches_have_few_rows(rows: list[int], shares: list[float]) -> None:
    """And is not cut: its reader has fetched what follows."""

    def readers(of_batch: list[int]) -> list[list[int]]:
        descriptors = [Descriptor("s", "kafka", "t", part, 7, 7 + n, n) for part, n in enumerate(of_batch)]
        slots = assign(descriptors, shares)
        assert sorted((d for slot in slots for d in slot), key=lambda d: d.part) == descriptors
        return [[d.part for d in slot] for slot in slots]

    assert readers(rows) == readers([1] * len(rows))


@pytest.mark.parametrize("shares", [[], [0.0], [1.0, -1.0]])
def test_impossible_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="source shares must be"):
        assign([], shares)


# --- other Spark sources


def test_untag_gives_each_source_its_rows() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"__source": ["a", "b", "a"], "a": [{"x": 1}, None, {"x": 2}], "b": [None, {"y": "t"}, None]}
    )
    assert [(name, rows.to_pylist()) for name, rows in untag(batch)] == [
        ("a", [{"x": 1}, {"x": 2}]),
        ("b", [{"y": "t"}]),
    ]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .getOrCreate()
        )
        yield session
        session.stop()


def test_rows_planned_of_a_source_before_it_left_are_read_when_it_is_back(tmp_path: Path) -> None:
    """The first file of both was planned; the driver is killed before it reads them, and one source leaves."""
    specs = [replace(spec(tmp_path / name), name=name) for name in ("stays", "leaves")]
    for source in specs:
        parquet_file(tmp_path / source.name, "0.parquet", [0], mtime=100)
    end = DescriptorStream(specs, tmp_path / "log").advance({})
    assert end == {"stays": 1, "leaves": 1}

    def read(sources: list[SourceSpec], start: Positions) -> Planned:
        return DescriptorStream(sources, tmp_path / "log").part(start, end)

    alone = read(specs[:1], {})
    assert [Descriptor.from_json(text).source for text in alone.descriptors] == ["stays"]
    assert alone.end == {"stays": 1}
    together = read(specs, alone.end)
    assert [Descriptor.from_json(text).source for text in together.descriptors] == ["leaves"]
    assert read(specs[:1], together.end).end == {"stays": 1, "leaves": 1}, "a position that was reached is kept"


def test_positions_of_a_source_that_has_left_are_kept(tmp_path: Path) -> None:
    parquet_file(tmp_path / "in", "0.parquet", [0], mtime=100)
    stream = DescriptorStream([spec(tmp_path / "in")], tmp_path / "log")
    assert stream.advance({"gone": 7}) == {"gone": 7, "s": 1}
    assert stream.advance({"gone": 7, "s": 1}) is None


@pytest.mark.parametrize("round", range(5))
def test_two_threads_may_ask_for_parts_at_once(tmp_path: Path, round: int) -> None:
    """One asks for the next batch while the one before it is being asked for: no file comes twice or never."""
    data, batches = tmp_path / "in", 20
    for number in range(batches):
        parquet_file(data, f"{number:02}.parquet", [number], mtime=100)
    stream = DescriptorStream([spec(data, maxFilesPerTrigger="1")], tmp_path / "log")
    positions: list[Positions] = [{}]
    while (end := stream.advance(positions[-1])) is not None:
        positions.append(end)
    assert len(positions) == batches + 1
    both = threading.Barrier(2)

    def ask(number: int) -> list[str]:
        both.wait()
        return stream.part(positions[number], positions[number + 1]).descriptors

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(ask, [batches - 2, batches - 1]))
    assert [Path(Descriptor.from_json(row).path).name for rows in found for row in rows] == ["18.parquet", "19.parquet"]


@pytest.mark.clusters
def test_tagged_union_and_untag_are_inverse(spark: SparkSession) -> None:
    frames = {
        "numbers": spark.createDataFrame([(1, "x"), (2, None)], "a INT, `odd name` STRING"),
        "words": spark.createDataFrame([("w",)], "word STRING"),
    }
    found: dict[str, list[dict]] = {"numbers": [], "words": []}
    for batch in tagged_union(frames).toArrow().to_batches():
        for name, rows in untag(batch):
            found[name].extend(rows.to_pylist())
    found["numbers"].sort(key=lambda row: row["a"])
    assert found == {
        "numbers": [{"a": 1, "odd name": "x"}, {"a": 2, "odd name": None}],
        "words": [{"word": "w"}],
    }


@pytest.mark.clusters
def test_format_that_spark_lacks_is_a_sentence_with_the_way_to_its_jar(spark: SparkSession) -> None:
    with pytest.raises(SourceError, match=r"source 'r': Spark does not read it with format 'lake': .*lake.*spec\.sparkConf"):
        load(spark, Source("r", "lake", None, {}))


@pytest.mark.clusters
def test_any_spark_format_is_loaded_with_its_select_and_where(spark: SparkSession) -> None:
    frame = load(spark, Source("r", "rate", None, {"rowsPerSecond": "5"}, ("value * 2 AS twice",), "value > 3"))
    assert frame.isStreaming
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [("twice", "bigint")]


# --- benchmark data


def test_flights_continue_and_start_again(tmp_path: Path) -> None:
    files = make_flights(tmp_path, batches=3, rows_per_batch=200_000)
    tables = [pq.read_table(file) for file in files]
    assert [t["seq"][0].as_py() for t in tables] == [0, 200_000, 400_000]
    again = 336_776 - 200_000
    assert tables[1].slice(again, 1).drop(["seq"]) == tables[0].slice(0, 1).drop(["seq"])
    assert pq.read_metadata(files[0]).num_row_groups == 16
    mtimes = [file.stat().st_mtime_ns for file in files]
    assert mtimes == sorted(set(mtimes))


@pytest.mark.parametrize("distribution", ["zipf-1.0", "zipf-1.2", "tweets", "uniform"])
def test_keys_follow_their_distribution(tmp_path: Path, distribution: str) -> None:
    one, two = make_keys(tmp_path / "a", distribution, batches=2, rows_per_batch=100_000, keys=1000)  # type: ignore[arg-type]
    again, _ = make_keys(tmp_path / "b", distribution, batches=2, rows_per_batch=100_000, keys=1000)  # type: ignore[arg-type]
    assert one.read_bytes() == again.read_bytes()
    assert one.read_bytes() != two.read_bytes()
    share = key_shares(distribution, 1000)[0]  # type: ignore[arg-type]
    drawn = sum(1 for key in pq.read_table(one)["key"].to_pylist() if key == 0) / 100_000
    assert drawn == pytest.approx(share, abs=0.006)


def test_the_tweets_have_the_papers_first_key() -> None:
    assert key_shares("tweets", 100_000)[0] == pytest.approx(0.0267, abs=1e-6)


def test_unread_files_are_those_of_the_log_and_those_that_came_since(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"a": [number]}), folder / f"{number}.parquet")
    spec = SourceSpec("s", "parquet", "a BIGINT", {"path": str(folder), "maxFilesPerTrigger": "2"})
    reader, seen = DescriptorStream([spec], tmp_path / "log"), DescriptorStream([spec], tmp_path / "log")
    assert seen.unread({"s": 0}) == {"s": "3 files"}
    end = reader.advance({"s": 0})
    assert end is not None
    assert seen.unread(end) == {"s": "1 file"}
    end = reader.advance(end)
    assert end is not None
    assert seen.unread(end) == {}
