"""A source in a bucket has the files and rows that the same files in a folder have; on a real server of S3's protocol."""

from __future__ import annotations

import gzip
import io
import itertools
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from support.connectors import read
from support.depth import deep
from support.manifests import counting, files, manifest
from support.processes import apart
from support.s3 import BUCKET
from support.streams import Stream, rows_of

from streamtopology.jobs.bucket import Bucket, Use
from streamtopology.jobs.connectors.folder_overlap import overlap_problems
from streamtopology.jobs.connectors.sinks.bucket import open_bucket
from streamtopology.jobs.connectors.sources import stored_files
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.errors import BadFileError, BucketError
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.files.survey import amount, nothing_to_read
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.lab.faults.bucket import ENVIRONMENT
from streamtopology.lab.faults.bucket import Bucket as SimulatedBucket
from streamtopology.topology import Doubt, Source, parse

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.s3 import S3Server

pytest_plugins = ("support.s3",)

_TREE = (
    "a.json", "b.json", ".a.json", "_b.json", "_SUCCESS", "c.json._COPYING_", "dt=1/a.json", "dt=2/hour=3/a.json",
    "_dt=4/a.json", "dt=1/_temporary/a.json", "_manifest/0.json", ".git/a.json", "batch-000000001/part-0.json", "dt=5/x/a.json",
    "a b/ü[1].json", "inner/dt=6/a.json",
)  # fmt: skip


class Place:
    """The same files in a folder and below a prefix of a bucket."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.uri, self.folder = server.uri(), folder / "in"
        self.bucket = open_bucket(self.uri, "tests")
        self.folder.mkdir()

    def put(self, name: str, content: bytes) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(content)
        self.bucket.put(name, content)

    def specs(
        self, format_: str = "json", schema: str | None = "key BIGINT", path: str = "", **options: str
    ) -> list[SourceSpec]:
        """Of the bucket, of the folder."""
        return [
            SourceSpec.of(Source("s", format_, schema, {"path": f"{root}/{path}" if path else root, **options}))
            for root in (self.uri, str(self.folder))
        ]


@pytest.fixture
def place(s3_server: S3Server, tmp_path: Path) -> Place:
    return Place(s3_server, tmp_path)


def parquet(*keys: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"key": pa.array(keys, pa.int64())}), out, row_group_size=2)
    return out.getvalue()


@apart
@pytest.mark.parametrize("is_deep", ["false", "true"])
def test_path_or_pattern_names_the_objects_that_it_names_in_a_folder(place: Place, is_deep: str) -> None:
    for name in _TREE:
        place.put(name, b'{"key": 1}\n')
    place.bucket.put("empty", b"")  # as the console of S3 makes a folder
    place.bucket.put("a.json-of-others/x.json", b"{}")
    paths = (
        "", "*", "*/*.json", "*.json", "[!b].json", "{a,dt=1/a}.json", "dt={1,2/hour=3}", "?.json", "a.json", "_b.json",
        "_manifest", "no*", "dt=2/../a.json", "/a.json", "{.,inner}/*", "_*", "dt=*", "dt=5", "inner", "a b/*",
        r"a b/ü\[1\].json", "*/dt=6/",
    )  # fmt: skip
    found = 0
    for path in paths:
        far, here = place.specs(path=path, recursiveFileLookup=is_deep)
        ours = {name.removeprefix(place.uri) for name in list_files(far)} - {"/a.json-of-others/x.json"}
        assert ours == {name.removeprefix(str(place.folder)) for name in list_files(here)}, path
        found += len(ours)
    assert found > len(paths)


@apart
def test_folders_that_are_not_read_are_named_as_below_a_folder(place: Place) -> None:
    place.put("x/a.json", b'{"key": 1}\n')
    place.put("y/z/b.json", b'{"key": 2}\n')

    def found() -> list[list[str]]:
        return [
            [
                finding.message.replace(root, "IN")
                for finding in check(Source("s", "json", "key BIGINT", {"path": root})).findings
            ]
            for root in (place.uri, str(place.folder))
        ]

    far, here = found()
    assert far == here
    assert "IN has folders (" in far[0]
    place.put("a.json", b'{"key": 1}\n')
    far, here = found()
    assert "the files in its folders (x, y) are not read" in far[0]
    assert [sorted(message) for message in far] == [sorted(message) for message in here]


@apart
def test_rows_are_those_of_the_same_files_in_a_folder(place: Place) -> None:
    for number in range(3):
        place.put(f"p/dt={number}/a.parquet", parquet(*range(10 * number, 10 * number + 7)))
        place.put(f"c/{number}.csv", f"key,v\n{number},x\n\n{number + 10},\n".encode())
        place.put(f"j/{number}.json.gz", gzip.compress(b"".join(b'{"key": %d, "v": "y"}\n' % key for key in range(50_000))))
        place.put(f"t/{number}.txt", f"one\r\n{number}".encode())
    kinds: list[tuple[str, str, str | None, dict[str, str]]] = [
        ("p", "parquet", "key BIGINT, dt INT", {}),
        ("c", "csv", "key BIGINT, v STRING", {"header": "true"}),
        ("j", "json", "v STRING, key BIGINT", {}),
        ("t", "text", None, {}),
    ]
    for path, format_, schema, options in kinds:
        far, here = (_all_rows(spec, place.folder.parent) for spec in place.specs(format_, schema, path, **options))
        assert far == here
        assert far
        found = check(Source("s", format_, schema, {"path": f"{place.uri}/{path}", **options})).findings
        assert [finding.message for finding in found] == []
    assert amount(place.specs("parquet", "key BIGINT", "p")[0]) == "3 files, 21 rows"


def _all_rows(spec: SourceSpec, folder: Path) -> list[dict[str, Any]]:
    stream = Stream(folder / f"log-{spec.format}-{spec.options['path'].startswith('s3')}", spec)
    found, _ = stream.read({})
    halves = [half for part in found for half in _halves(part)]
    return sorted(rows_of(halves, spec), key=repr)


def _halves(part: Descriptor) -> list[Descriptor]:
    middle = (part.start + part.end) // 2
    return [part.between(part.start, middle), part.between(middle, part.end)] if part.kind == "parquet" else [part]


@apart
def test_large_object_is_read_in_ranges(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = pa.array(range(2_000_000), pa.int64())
    out = io.BytesIO()
    table = pa.table({"key": keys, "other": keys})
    pq.write_table(table, out, row_group_size=500_000, compression="none", use_dictionary=False)
    place.put("a.parquet", out.getvalue())
    text = b"".join(b"%d\n" % key for key in range(2_000_000))
    place.put("b.csv", text)
    lengths: list[int] = []
    whole = Bucket.part_of

    def part_of(bucket: Bucket, path: str, e_tag: str | None, start: int, length: int) -> bytes | None:
        lengths.append(length)
        return whole(bucket, path, e_tag, start, length)

    monkeypatch.setattr(Bucket, "part_of", part_of)
    far, _ = place.specs("parquet", "key BIGINT")
    part = Descriptor("s", "parquet", f"{place.uri}/a.parquet", 2, 0, 10, 10)
    assert [row["key"] for row in rows_of([part], far)] == list(range(1_000_000, 1_000_010))
    assert sum(lengths) < 5 << 20, "a column of a row group, and the footer"
    lengths.clear()
    far, _ = place.specs("csv", "key BIGINT")
    seen = sum(batch.num_rows for batch in read(Descriptor("s", "csv", f"{place.uri}/b.csv", 0, 0, len(text), 1), far))
    assert seen == 2_000_000
    assert len(lengths) < 6


@apart
def test_files_that_come_while_it_runs_are_read_once_through_restarts(place: Place) -> None:
    far, _ = place.specs("parquet")
    log, position = place.folder.parent / "log", dict[str, Any]()
    seen: list[int] = []
    for number in range(6):
        place.put(f"{number}.parquet", parquet(number, number + 10, number + 20))
        stream = Stream(log, far)  # a driver that was killed has kept nothing but the log and the committed position
        stream.read(position)
        found, position = Stream(log, far).read(position)
        seen += [row["key"] for row in rows_of(found, far)]
    assert sorted(seen) == sorted(key + number for number in range(6) for key in (0, 10, 20))


END = {"s": 2}


def handed_out(place: Place) -> SourceSpec:
    place.bucket.put("a.parquet", parquet(1, 2, 3, 4))
    place.bucket.put("b.parquet", parquet(9))
    far, _ = place.specs("parquet")
    assert DescriptorStream([far], place.folder / "files").advance({}) == END
    return far


def keys(place: Place, far: SourceSpec, start: dict[str, Any] | None = None) -> list[int]:
    """The keys that the first batch reads after a restart."""
    planned = DescriptorStream([far], place.folder / "files").part(start or {}, END)
    return sorted(row["key"] for row in rows_of([Descriptor.from_json(text) for text in planned.descriptors], far))


@apart
def test_object_that_changes_after_it_was_listed_is_told_as_a_file_is(place: Place) -> None:
    far = handed_out(place)
    for mended in ((5,), (5, 6, 7, 8, 10), (4, 3, 2, 7), (1, 2, 3, 4)):
        place.bucket.put("a.parquet", parquet(*mended))
        assert keys(place, far) == sorted([*mended, 9]) == keys(place, far)
    half = {"s": [0, 1, 0]}
    place.bucket.put("a.parquet", parquet(1, 2, 3, 4))  # touched
    first = min(keys(place, far, half))
    assert first in (1, 3), "which of the two is listed first is up to their times"
    place.bucket.put("a.parquet", parquet(1, 2, 3, 5))
    place.bucket.put("b.parquet", parquet(8, 8, 8))
    with pytest.raises(SourceError, match="after a part of its rows was committed; put the former one back, or continue"):
        keys(place, far, half)
    stream = DescriptorStream([far], place.folder / "files")
    assert sorted(stream.changed(END)["s"]) == [f"{place.uri}/a.parquet", f"{place.uri}/b.parquet"]
    place.bucket.delete("a.parquet")
    with pytest.raises(SourceError, match=r"source 's': s3://.*/a\.parquet is gone.*skip-file MANIFEST s3://.*/a\.parquet"):
        keys(place, far)
    files = FileStream(far, FileLog(place.folder / "files/s"))
    assert files.skip(f"{place.uri}/a.parquet", 0)
    assert keys(place, far) == [8, 8, 8]


@apart
@pytest.mark.parametrize(("format_", "content"), [("csv", b"1\n2\n"), ("json", b'{"key": 7}\n'), ("text", b"a\n")])
def test_small_object_takes_a_request_for_its_status_and_one_for_its_content(
    place: Place, monkeypatch: pytest.MonkeyPatch, format_: str, content: bytes
) -> None:
    """When it is measured, and when it is read: ten thousand of them take minutes of requests, if each takes seven."""
    far, _ = place.specs(format_, None if format_ == "text" else "key BIGINT")
    place.bucket.put("a", content)
    asked = list[str]()
    for name in ("status", "part_of"):
        real = getattr(Bucket, name)
        monkeypatch.setattr(Bucket, name, lambda *given, real=real, name=name: asked.append(name) or real(*given))
    stream = FileStream(far, FileLog(place.folder / "log"))
    end = stream.advance(0)
    assert asked.count("part_of") == 1
    assert asked.count("status") == 2  # the other one: whether the prefix itself is an object
    asked.clear()
    rows_of(list(stream.between(0, end)), far)
    assert asked == ["status", "part_of"]


@apart
@pytest.mark.parametrize("is_deleted", [True, False])
def test_object_that_changes_while_it_is_measured_is_measured_again(place: Place, is_deleted: bool) -> None:
    far, _ = place.specs("csv")
    place.bucket.put("a.csv", b"1\n")
    place.bucket.put("b.csv", b"7\n")
    real, opens = stored_files._Object, list[str]()

    def change_it(path: str) -> Any:
        found = real(path)
        if path.endswith("a.csv") and not opens:
            opens.append(path)
            place.bucket.delete("a.csv") if is_deleted else place.bucket.put("a.csv", b"2\n3\n")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_files, "_Object", change_it)
        found, _ = Stream(place.folder / "log", far).read({})
    assert sorted(row["key"] for row in rows_of(found, far)) == ([7] if is_deleted else [2, 3, 7])


@apart
@pytest.mark.parametrize(
    ("format_", "content", "other"),
    [("parquet", parquet(*range(50_000)), parquet(*range(1, 50_001))), ("csv", b"1\n" * 9_000_000, b"2\n" * 9_000_000)],
)
def test_object_that_changes_while_it_is_read_is_named(place: Place, format_: str, content: bytes, other: bytes) -> None:
    far, _ = place.specs(format_)
    place.bucket.put("a", content)
    end = 2 if format_ == "parquet" else len(content)
    part = Descriptor("s", far.format, f"{place.uri}/a", 0, 0, end, 2)
    for change, finding in ((place.bucket.put, "was replaced"), (lambda path, _: place.bucket.delete(path), "is gone")):
        place.bucket.put("a", content)
        real = stored_files._Object

        def change_it(path: str, change: Any = change, real: Any = real) -> Any:
            found = real(path)
            change("a", other)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stored_files, "_Object", change_it)
            with pytest.raises(BadFileError, match=rf"s3://.*/a {finding}.*skip-file MANIFEST s3://"):
                rows_of([part], far)
    with pytest.raises(BadFileError, match=r"source 's', s3://.*/a is gone; put it back, or continue"):
        rows_of([part], far)


@apart
def test_objects_that_were_moved_are_known_again(place: Place, s3_server: S3Server) -> None:
    """From the folder, and to another prefix."""
    for number in range(3):
        place.put(f"x/{number}.parquet", parquet(number))
    far, here = place.specs("parquet", path="x")
    log = place.folder.parent / "log"
    found, position = Stream(log, here).read({})
    assert len(found) == 3
    for number in range(3):
        (place.folder / f"x/{number}.parquet").unlink()
    place.bucket.put("x/new.parquet", parquet(7))
    found, position = Stream(log, far).read(position)
    assert [row["key"] for row in rows_of(found, far)] == [7]
    for number in range(3):
        place.bucket.put(f"y/{number}.parquet", parquet(number))
    place.bucket.put("y/new.parquet", parquet(7))
    stream = Stream(log, place.specs("parquet", path="y")[0])
    with pytest.raises(SourceError, match=r"y/0\.parquet is byte for byte s3://.*remove the former one"):
        stream.read(position)
    place.bucket.delete_all(place.bucket.list("x"))
    assert stream.read(position)[0] == []


@apart
def test_refusals_of_a_bucket_are_sentences(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(uri: str) -> SourceSpec:
        return SourceSpec.of(Source("s", "parquet", "key BIGINT", {"path": uri}))

    with pytest.raises(BucketError, match=r"cannot list s3://none/x: .*NoSuchBucket.*; make the bucket, or correct `path`"):
        list_files(spec("s3://none/x"))
    assert list_files(spec(s3_server.uri())) == []
    (sentence,) = nothing_to_read([spec(s3_server.uri())], waits=True)
    assert "waits: folder s3://" in sentence
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stored_files._bucket.cache_clear()
    with pytest.raises(BucketError, match=r"cannot (list|look for) s3://.*; check the bucket, and the credentials in the env"):
        list_files(spec(s3_server.uri()))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    stored_files._bucket.cache_clear()
    with pytest.raises(BucketError, match="needs credentials in the environment of driver and executors: AWS_ACCESS_KEY_ID, "):
        list_files(spec(s3_server.uri()))
    (doubt,) = check(Source("s", "parquet", "key BIGINT", {"path": "s3://b/x"})).findings
    assert isinstance(doubt, Doubt), "a laptop without credentials can check a manifest"


def test_name_that_no_listing_can_have_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **named: object) -> None:
        raise GenericError(
            'Generic S3 error: Encountered object with invalid path: Path "in/a//b" contained empty path segment'
        )

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("obstore.list", refuse)
    bucket = Bucket("s3://b", Use("tests", "path", "", BucketError))
    with pytest.raises(BucketError, match=r"cannot list s3://b/in: .*in/a//b.* segment'; rename that object"):
        bucket.list("in")


@apart
def test_server_that_is_away_is_waited_for_and_then_named(place: Place, s3_server: S3Server) -> None:
    place.put("a.csv", b"1\n2\n")
    with s3_server.way() as way, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        far, _ = place.specs("csv")
        stream = Stream(place.folder / "log", far)
        way.loses_answers = 2
        found, _ = stream.read({})
        way.loses_answers = 2
        assert [row["key"] for row in rows_of(found, far)] == [1, 2]
        patch.setattr(stored_files._bucket(BUCKET), "_patience", 0.3)
        way.close()
        with pytest.raises(BucketError, match=r"cannot .*; start again once it answers: nothing is lost"):
            stream.read({"s": 1})
        with pytest.raises(BucketError, match=r"cannot .*; start again once it answers: nothing is lost"):
            rows_of(found, far)


@apart
def test_thousands_of_objects_come_in_pages_each_once(place: Place, s3_server: S3Server) -> None:
    folder = s3_server.files / BUCKET / place.uri.removeprefix(f"s3://{BUCKET}/")
    folder.mkdir(parents=True)
    for number in range(2_500):
        (folder / f"{number:05}.csv").write_text(f"{number}\n")
    far, _ = place.specs("csv", maxFilesPerTrigger="1100")
    stream, position, found = Stream(place.folder / "log", far), dict[str, Any](), list[Descriptor]()
    counts: list[int] = []
    for _ in range(4):
        parts, position = stream.read(position)
        found += parts
        counts.append(len(parts))
    assert counts == [1100, 1100, 300, 0]
    assert len({part.path for part in found}) == 2_500


def test_sink_in_the_place_of_a_source_is_refused() -> None:
    def findings(path: str, out: str, checkpoint: str = "s3://b/ck") -> list[str]:
        sink = {"name": "out", "input": "counts", "format": "parquet", "options": {"path": out}}
        given = manifest("m", [files(Path("x"), path=path)], [counting()], [sink], checkpoint=checkpoint)
        return [problem.path for problem in overlap_problems(parse(given))]

    assert findings("s3://b/in", "s3://b/out") == []
    assert findings("s3://b/in", "s3://c/in") == []
    assert findings("s3://b/in/", "s3://b/in") == ["spec.sinks[0].options.path"]
    assert findings("s3://b/in", "s3://b/in/out") == ["spec.sinks[0].options.path"]
    assert findings("s3://b/*", "s3://b/out", "s3://c/ck") == ["spec.sinks[0].options.path"]
    assert findings("s3://b/*", "s3://c/out") == ["spec.sources[0].options.path"]
    assert findings("s3://b/in/*.parquet", "s3://b/in/out") == []
    assert findings("/b/in", "s3://b/in") == []


_CHANGES = st.lists(st.sampled_from(["add", "fail", "lose", "restart", "read"]), min_size=3, max_size=14)


@deep(gate=15, long=80)
@drawn(_CHANGES)
def test_each_row_is_read_once_whatever_the_bucket_answers(changes: list[str]) -> None:
    """Requests that fail and answers that are lost, in any order with files that come and drivers that are killed."""
    bucket = SimulatedBucket(lambda operation, path: None, lambda path, data: None)
    numbers = itertools.count()
    with ExitStack() as undo:
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        folder = Path(undo.enter_context(TemporaryDirectory()))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        for name, function in bucket.functions().items():
            patch.setattr(obstore, name, function)
        patch.setattr("time.sleep", lambda seconds: None)
        stored_files._bucket.cache_clear()
        undo.callback(stored_files._bucket.cache_clear)
        spec = SourceSpec.of(Source("s", "parquet", "key BIGINT", {"path": "s3://bucket/in", "maxFilesPerTrigger": "2"}))
        outside = Bucket("s3://bucket/in", stored_files._bucket("bucket")._use)
        stream, position, seen = Stream(folder, spec), dict[str, Any](), list[int]()
        for change in [*changes, "restart", *["read"] * (len(changes) + 1)]:
            if change == "add":
                number = next(numbers)
                outside.put(f"{number}.parquet", parquet(number))
            elif change == "fail":
                bucket.failing = 3
            elif change == "lose":
                bucket.losing = 2
            elif change == "restart":
                stream = Stream(folder, spec)
                stream.read(position)  # and it is killed before it commits
            else:
                found, position = stream.read(position)
                seen += [row["key"] for row in rows_of(found, spec)]
        assert sorted(seen) == list(range(next(numbers)))
