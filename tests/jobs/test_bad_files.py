"""A file that was bad is removed, mended or replaced in one way each, and the run continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink
from support.streams import rows_of, spec

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source, Watermark


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with `in/a.parquet` (4 rows, two row groups) and `in/b.parquet`, handed out for batch 0."""
    monkeypatch.chdir(tmp_path)
    put("in/a.parquet", [1, 2, 3, 4], 1)
    put("in/b.parquet", [9], 2)


def put(path: str, keys: list[int], mtime: int) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"key": pa.array(keys, pa.int64())}), path, row_group_size=2)
    os.utime(path, (mtime, mtime))


# Both files.
END = {"s": 2}


def handed_out(checkpoint: str = ".") -> None:
    """Batch 0 was planned."""
    assert DescriptorStream([spec(Path("in"))], Path(checkpoint) / "files").advance({}) == END


def keys(start: dict[str, Any] | None = None, checkpoint: str = ".") -> list[int]:
    """The keys that batch 0 reads after a restart."""
    planned = DescriptorStream([spec(Path("in"))], Path(checkpoint) / "files").part(start or {}, END)
    return [row["key"] for row in rows_of([Descriptor.from_json(text) for text in planned.descriptors], spec(Path("in")))]


@pytest.mark.parametrize("mended", [[5], [5, 6, 7, 8, 9, 10, 11], [4, 3, 2, 1]])
def test_mended_file_is_read_with_all_its_rows(mended: list[int]) -> None:
    handed_out()
    put("in/a.parquet", mended, 3)
    assert keys() == [*mended, 9] == keys()
    put("in/a.parquet", [1], 4)
    assert keys() == [1, 9]


def test_touched_file_stays_as_it_was_logged() -> None:
    handed_out()
    os.utime("in/a.parquet", (7, 7))
    assert keys({"s": [0, 1, 0]}) == [3, 4, 9]
    assert not list(Path("files/s").glob("corrected-*"))


def test_removed_file_is_named_with_its_remedy() -> None:
    handed_out()
    Path("in/a.parquet").rename("a.bad")
    sentence = (
        r"source 's': /.*/in/a.parquet is gone.*put it back, or continue without .*state skip-file MANIFEST /.*/in/a.parquet"
    )
    with pytest.raises(SourceError, match=sentence):
        keys()
    Path("a.bad").rename("in/a.parquet")
    assert keys() == [1, 2, 3, 4, 9]


def test_file_removed_after_its_commit_is_not_missed() -> None:
    handed_out()
    Path("in/a.parquet").unlink()
    assert keys({"s": 1}) == [9]


def test_file_replaced_after_a_part_was_committed_is_refused() -> None:
    handed_out()
    put("in/a.parquet", [5], 3)
    with pytest.raises(SourceError, match="after a part of its rows was committed; put the former one back, or continue"):
        keys({"s": [0, 1, 0]})


@pytest.mark.parametrize("place", [0, 50, 99], ids="{} % of the rows".format)
def test_file_replaced_with_its_size_and_time_is_another_one(place: int) -> None:
    """As a copy that keeps times makes it (`cp -p`, `rsync -t`): only the time of its entry tells."""
    count = 60_000

    def put_large(changed: int) -> os.stat_result:
        rows = pa.table({"key": pa.array(range(count)), "v": pa.array([changed == n // (count // 100) for n in range(count)])})
        pq.write_table(rows, "in/a.parquet", row_group_size=count // 2, compression="none", use_dictionary=False)
        os.utime("in/a.parquet", (1, 1))
        return os.stat("in/a.parquet")

    before = put_large(-1)
    handed_out()
    after = put_large(place)
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    with pytest.raises(SourceError, match="after a part of its rows was committed; put the former one back, or continue"):
        keys({"s": [0, 1, 0]})
    assert len(keys()) == count + 1, "of which nothing is committed is read as it is now"


def changed(start: int) -> dict[str, list[str]]:
    return DescriptorStream([spec(Path("in"))], Path("files")).changed({"s": start})


def test_file_that_is_changed_after_it_was_read_is_named() -> None:
    handed_out()
    os.utime("in/b.parquet", (7, 7))
    assert changed(2) == {}
    put("in/a.parquet", [4, 3, 2, 1], 1)
    assert changed(2) == {"s": [str(Path("in/a.parquet").absolute())]}
    Path("in/a.parquet").unlink()
    put("in/b.parquet", [9, 10], 2)
    assert changed(2) == {"s": [str(Path("in/b.parquet").absolute())]}
    assert changed(1) == {}, "of which nothing is committed"


def test_replaced_file_is_not_read_from_the_one_that_was_open() -> None:
    part = Descriptor("s", "parquet", str(Path("in/a.parquet").absolute()), 0, 0, 2, 2)
    assert [row["key"] for row in rows_of([part], spec(Path("in")))] == [1, 2]
    put("draft/a.parquet", [5, 6, 7, 8], 1)
    Path("draft/a.parquet").replace("in/a.parquet")
    assert [row["key"] for row in rows_of([part], spec(Path("in")))] == [5, 6]


def damaged(path: str) -> None:
    """The file's first page becomes other bytes; its size and time stay."""
    data, times = bytearray(Path(path).read_bytes()), os.stat(path)
    data[4:40] = bytes(255 - byte for byte in data[4:40])
    Path(path).write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


CUT, EMPTY = b"PAR1" + b"x" * 90, b""


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (damaged, "cannot be read: .*; put a whole file in its place"),
        (lambda path: Path(path).write_bytes(CUT), "cannot be read: Parquet magic bytes.*; put a whole file in its place"),
        (lambda path: Path(path).write_bytes(EMPTY), "cannot be read: .*0 bytes; put a whole file in its place"),
        (lambda path: Path(path).unlink(), "is gone; put it back"),
    ],
)
def test_file_that_is_spoilt_while_it_is_read_is_named_with_its_remedy(spoil: Callable[[str], object], finding: str) -> None:
    part = Descriptor("s", "parquet", str(Path("in/a.parquet").absolute()), 1, 0, 2, 2)
    spoil("in/a.parquet")
    remedy = r", or continue without its rows: streamtopology state skip-file MANIFEST /.*/in/a\.parquet$"
    with pytest.raises(SourceError, match=rf"^source 's', /.*/in/a\.parquet {finding}{remedy}"):
        rows_of([part, replace(part, part=0)], spec(Path("in")))


@pytest.mark.parametrize("keys_now", [[1], [1, 2, 3]])
def test_file_that_is_replaced_while_it_is_read_is_named(keys_now: list[int]) -> None:
    part = Descriptor("s", "parquet", str(Path("in/a.parquet").absolute()), 1, 0, 2, 2)
    put("in/a.parquet", keys_now, 3)
    with pytest.raises(SourceError, match=r"in/a\.parquet was replaced while it was read; start again"):
        rows_of([part], spec(Path("in")))


def test_text_file_that_is_gone_is_named_with_its_remedy() -> None:
    part = Descriptor("s", "csv", str(Path("in/a.csv").absolute()), 0, 0, 2, 2)
    with pytest.raises(SourceError, match=r"in/a\.csv is gone; put it back, or continue .* skip-file MANIFEST /.*/in/a\.csv"):
        rows_of([part], spec(Path("in"), "csv", "key INT"))


def test_file_that_is_gone_before_it_is_handed_out_is_left_out() -> None:
    Path("in/c.parquet").symlink_to("a.parquet")
    stream = FileStream(spec(Path("in"), maxFilesPerTrigger="1"), FileLog(Path("log")))
    stream.close_listing()
    Path("in/a.parquet").unlink()
    ends = [stream.advance(0), stream.advance(1), stream.advance(1)]
    assert [Path(part.path).name for part in stream.between(0, ends[-1])] == ["b.parquet"]
    assert ends == [1, 1, 1]


def names(stream: FileStream, end: int) -> list[str]:
    return [Path(piece.path).name for piece in stream.between(0, end) if piece.part == 0]


@pytest.mark.parametrize("limit", ["1", "2"])
def test_file_that_another_driver_has_handed_out_is_not_handed_out_again(limit: str) -> None:
    """Found by the simulator (seed 8000428): the former driver woke up after the files had been listed."""
    put("in/c.parquet", [7], 3)
    former, newer = (FileStream(spec(Path("in"), maxFilesPerTrigger=limit), FileLog(Path("log"))) for _ in range(2))
    newer.close_listing()
    first = former.advance(0)
    ends = [newer.advance(first), newer.advance(newer.advance(first))]
    assert names(newer, ends[-1]) == ["a.parquet", "b.parquet", "c.parquet"]


def test_files_that_another_driver_handed_out_first_leave_the_others_to_be_read() -> None:
    put("in/c.parquet", [7], 3)
    former = FileStream(spec(Path("in"), maxFilesPerTrigger="1"), FileLog(Path("log")))
    newer = FileStream(spec(Path("in"), maxFilesPerTrigger="3"), FileLog(Path("log")))
    newer.close_listing()
    former.advance(0)
    assert names(newer, newer.advance(newer.advance(0))) == ["a.parquet", "b.parquet", "c.parquet"]


def test_damaged_footer_is_named_when_the_file_is_handed_out() -> None:
    data = Path("in/a.parquet").read_bytes()
    Path("in/a.parquet").write_bytes(data[:-60] + bytes(255 - byte for byte in data[-60:-8]) + data[-8:])
    with pytest.raises(SourceError, match=r"in/a\.parquet is no readable parquet file"):
        handed_out()


def test_validate_names_a_damaged_file_of_event_times() -> None:
    damaged("in/a.parquet")
    time = Watermark("key", 0.0)
    (found,) = check(Source("s", "parquet", "key BIGINT", {"path": "in/a.parquet"}, watermark=time)).findings
    assert "in/a.parquet: " in found.message
    assert found.message.endswith("; put a whole file in its place")


def manifest_file() -> None:
    given = files(Path("in"), "key BIGINT") | {"name": "s"}
    wanted = manifest("bad", [given], [counting(of="s")], [memory_sink("m", "counts")], checkpoint="ck")
    Path("t.yaml").write_text(yaml.safe_dump(wanted))
    Checkpoint.open("ck", "bad")
    handed_out("ck")


@pytest.mark.parametrize("is_gone", [True, False])
def test_skipped_file_is_left_out_for_good(is_gone: bool, capsys: pytest.CaptureFixture[str]) -> None:
    manifest_file()
    if is_gone:
        Path("in/a.parquet").unlink()
    assert main(["state", "skip-file", "t.yaml", "in/a.parquet"]) == 0
    assert "source 's' continues without the rows of" in capsys.readouterr().out
    assert keys(checkpoint="ck") == [9]
    put("in/a.parquet", [7], 9)
    assert keys(checkpoint="ck") == [9]
    assert main(["state", "skip-file", "t.yaml", "in/a.parquet"]) == 2


@pytest.mark.parametrize(
    "spelt", ["link/a.parquet", "file:{here}/in/a.parquet", "file://{here}/in/a%2Eparquet", "./in//a.parquet"]
)
def test_skipped_file_may_be_spelt_in_any_way(spelt: str) -> None:
    manifest_file()
    Path("link").symlink_to("in")
    assert main(["state", "skip-file", "t.yaml", spelt.format(here=os.getcwd())]) == 0
    assert keys(checkpoint="ck") == [9]


def test_skipped_file_is_left_out_of_all_sources(capsys: pytest.CaptureFixture[str]) -> None:
    given = [files(Path("in"), "key BIGINT") | {"name": name} for name in ("s", "t")]
    wanted = manifest("bad", given, [counting(of="s", inputs=["s", "t"])], [memory_sink("m", "counts")], checkpoint="ck")
    Path("t.yaml").write_text(yaml.safe_dump(wanted))
    Checkpoint.open("ck", "bad")
    specs = [spec(Path("in")), replace(spec(Path("in")), name="t")]
    DescriptorStream(specs, Path("ck/files")).advance({})
    assert main(["state", "skip-file", "t.yaml", "in/a.parquet"]) == 0
    assert "sources 's' and 't' continue without the rows of" in capsys.readouterr().out


@pytest.mark.parametrize(("start", "before"), [([0, 1, 0], [1, 2]), ([0, 0, 1], [1]), ([0, 1, 1], [1, 2, 3])])
def test_rows_before_those_that_were_skipped_are_read_again_after_a_rollback(start: list[int], before: list[int]) -> None:
    """They are in sinks, and batches that were committed have counted them."""
    handed_out()
    stream = FileStream(spec(Path("in")), FileLog(Path("files/s")))
    assert stream.skip(str(Path("in/a.parquet").resolve()), start)
    assert not stream.skip(str(Path("in/a.parquet").resolve()), start)
    assert (keys({"s": start}), keys()) == ([9], [*before, 9])
    os.remove("in/a.parquet")
    assert keys({"s": start}) == [9]
    with pytest.raises(SourceError, match="is gone"):
        keys()


def test_file_that_no_source_waits_for_cannot_be_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    manifest_file()
    assert main(["state", "skip-file", "t.yaml", "in/c.parquet"]) == 2
    assert "in/c.parquet: its rows are committed, or no batch has begun with it" in capsys.readouterr().err
