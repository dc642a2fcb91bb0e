"""The checkpoint: files complete or absent whatever happens, damage named, nothing deleted that is needed."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.checkpoint import (
    BatchRecord,
    Checkpoint,
    CheckpointError,
    CommitRecord,
    LocalStore,
    StateRef,
    open_store,
)
from streamtopology.jobs.checkpoint.retention import garbage
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.state import (
    Field,
    KeyedState,
    KeyedStateSchema,
    RowState,
    RowStateSchema,
    StateFileError,
    decode,
    decode_parts,
    encode,
    encode_parts,
)

COUNTS = KeyedStateSchema((Field("count", np.dtype("i8")),), pa.schema({"k": pa.string()}))
TUPLES = RowStateSchema({"a": pa.schema({"k": pa.string(), "at": pa.int64()})}, key=("k",), time="at")


def add(state: KeyedState, words: list[str]) -> None:
    slots = state.slots(KeyColumns.from_arrow(pa.record_batch({"k": words}), ["k"]))
    np.add.at(state.column("count"), slots, 1)


def counted(state: object) -> dict[str, int]:
    assert isinstance(state, KeyedState)
    snapshot = state.snapshot()
    return dict(zip(snapshot["k"].to_pylist(), snapshot["count"].to_pylist(), strict=True))


def commit_record(batch: int, reference: StateRef, outputs: dict[str, list[str]] | None = None) -> CommitRecord:
    return CommitRecord(
        batch=batch, attempt=1, epoch=1 + batch // 4, spark_batch=batch, state={"words": {0: reference}},
        outputs=outputs or {}, watermark_after=12.5, max_event_times={"lines": 30.25}, rows_in=7,
    )  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(str(tmp_path / "checkpoint"), "wordcount")


# --- files ---


def create_killed_at(folder: Path, call: int) -> int:
    """Create a record in a process of its own that dies at a system call; the calls made, or 0 when it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        store, calls = LocalStore(folder), 0

        def die_at_call(frame: object, event: str, function: object) -> None:
            nonlocal calls
            if event == "c_call" and getattr(function, "__module__", None) == "posix":
                calls += 1
                if calls == call:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(die_at_call)
            store.create("commits/1.json", b"decided" * 1000)
            sys.setprofile(None)
            os.write(writing, bytes([calls]))
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read()
    assert os.WIFSIGNALED(status) is (answer == b"")
    return answer[0] if answer else 0


def test_a_writer_killed_at_any_system_call_leaves_all_or_nothing(tmp_path: Path) -> None:
    calls = create_killed_at(tmp_path / "whole", call=-1)
    assert calls >= 8
    outcomes = set()
    for call in range(1, calls):
        folder = tmp_path / f"killed{call}"
        assert create_killed_at(folder, call) == 0
        store = LocalStore(folder)
        made_before = store.exists("commits/1.json")
        outcomes.add(made_before)
        assert store.create("commits/1.json", b"other") is not made_before
        assert store.read("commits/1.json") == (b"decided" * 1000 if made_before else b"other")
    assert outcomes == {True, False}


NO_ROOM = """
    import resource, sys
    from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError
    import pyarrow as pa

    checkpoint = Checkpoint.open(sys.argv[1], "wordcount")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        checkpoint.write_delta("words", 0, 5, 1, pa.record_batch({"k": ["x" * 1_000_000]}))
    except CheckpointError as error:
        print(error)
"""


def test_a_file_that_may_not_grow_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NO_ROOM), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert f"cannot write {tmp_path}/state/words/0/5-1.delta" in done.stdout
    assert "ulimit -f" in done.stdout
    assert LocalStore(tmp_path).list("") == ["header.json"]


@pytest.fixture
def small_disk(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_cleanly_and_the_batch_can_be_done_again(small_disk: Path) -> None:
    checkpoint = Checkpoint.open(str(small_disk), "wordcount")
    state = KeyedState(COUNTS)
    add(state, ["a", "b"])
    first = StateRef(None, (checkpoint.write_delta("words", 0, 0, 1, state.delta()),), 2, 100)
    state.commit()
    assert checkpoint.commit(commit_record(0, first))

    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize))
    before = LocalStore(small_disk).list("")

    add(state, ["c"] * 100)
    with pytest.raises(CheckpointError, match=r"1-1\.delta: No space left.*free space on the file system"):
        checkpoint.write_delta("words", 0, 1, 1, state.delta())
    with pytest.raises(CheckpointError, match="No space left"):
        checkpoint.commit(commit_record(1, first))
    assert LocalStore(small_disk).list("") == before

    filler.unlink()
    again = Checkpoint.open(str(small_disk), "wordcount")
    last = again.last_commit()
    assert last is not None
    assert last.batch == 0
    deltas = (*first.deltas, again.write_delta("words", 0, 1, 2, state.delta()))
    assert again.commit(commit_record(1, replace(first, deltas=deltas)))
    assert counted(again.load_state(replace(first, deltas=deltas), COUNTS)) == {"a": 1, "b": 1, "c": 100}


def test_file_uris_are_local_paths(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/with%20space").folder == tmp_path / "with space"


# --- records ---


def test_records_come_back_as_they_were(checkpoint: Checkpoint) -> None:
    reference = StateRef(None, (checkpoint.write_delta("words", 0, 10, 2, KeyedState(COUNTS).delta()),), 3, 99)
    done = replace(commit_record(10, reference), watermark_after=math.inf)
    assert checkpoint.commit(done)
    assert not checkpoint.commit(replace(done, rows_in=8))
    assert checkpoint.last_commit() == done
    for batch in (9, 2):
        checkpoint.commit(commit_record(batch, reference))
    assert checkpoint.last_commit() == done

    tries = [BatchRecord(11, attempt, 4, 11, None, {"lines": ["f1"]}, {"words": [1.0, 2.5]}) for attempt in (10, 9, 1)]
    assert [checkpoint.record(record) for record in tries] == [True] * 3
    assert not checkpoint.record(tries[0])
    assert checkpoint.batch_records(11) == tries[::-1]
    assert checkpoint.batch_records(1) == []


def test_an_epoch_never_changes(checkpoint: Checkpoint) -> None:
    assert checkpoint.write_epoch(3, '{"a": 1, "b": 2}')
    assert not checkpoint.write_epoch(3, '{"b": 2, "a": 1}')
    checkpoint.write_epoch(10, "{}")
    assert checkpoint.epochs() == [3, 10]
    with pytest.raises(CheckpointError, match="another epoch 3: a new one needs the number after the highest, 10"):
        checkpoint.write_epoch(3, '{"a": 2}')
    with pytest.raises(CheckpointError, match=r"cannot read .*epochs/4\.json"):
        checkpoint.read_epoch(4)


def test_a_checkpoint_is_for_one_topology_and_keeps_its_run(checkpoint: Checkpoint) -> None:
    assert Checkpoint.open(checkpoint.uri, "wordcount").run == checkpoint.run
    with pytest.raises(CheckpointError, match="is that of topology 'wordcount', not of 'flights'"):
        Checkpoint.open(checkpoint.uri, "flights")
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        Checkpoint.attach(f"{checkpoint.uri}-other")


def test_a_newer_checkpoint_is_refused(checkpoint: Checkpoint) -> None:
    header = Path(checkpoint.where("header.json"))
    header.write_text(header.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match=r"header\.json was written by .* that writes format 2, not 1: .* start over"):
        Checkpoint.open(checkpoint.uri, "wordcount")


def test_a_commit_of_a_batch_whose_record_was_swept_is_refused(checkpoint: Checkpoint) -> None:
    """As of a driver that stood still while another one continued."""
    nothing = StateRef(None, (), 0, 0)
    assert all(checkpoint.commit(commit_record(batch, nothing)) for batch in range(4))
    for swept in (0, 1):
        (Path(checkpoint.uri) / f"commits/{swept}.json").unlink()
    assert not checkpoint.commit(commit_record(1, nothing))
    assert checkpoint.commits() == [2, 3]


def test_a_commit_names_only_files_that_are_there(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match=r"words/0/5-1\.delta is not there"):
        checkpoint.commit(commit_record(5, StateRef(None, ("state/words/0/5-1.delta",), 1, 1)))
    assert checkpoint.last_commit() is None


@settings(max_examples=60)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_damaged_record_is_named(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    checkpoint = Checkpoint.open(str(tmp_path_factory.mktemp("damaged")), "wordcount")
    checkpoint.commit(commit_record(4, StateRef(None, (), 0, 0)))
    file = Path(checkpoint.where("commits/4.json"))
    data = bytearray(file.read_bytes()[:-1])
    data[place % len(data)] ^= 1 << bit
    file.write_bytes(data)
    try:
        undamaged = checkpoint.last_commit()
    except CheckpointError as error:
        reported = str(error)
    else:
        assert undamaged == commit_record(4, StateRef(None, (), 0, 0))
        return
    assert "commits/4.json" in reported


# --- state files ---


def test_state_is_its_snapshot_and_the_deltas_after_it(checkpoint: Checkpoint) -> None:
    state = KeyedState(COUNTS)
    reference = StateRef(None, (), 0, 0)
    for batch, words in enumerate(["abc", "cd", "a", "zz"]):
        add(state, list(words))
        if batch == 2:
            state.delete(state.find(KeyColumns.from_arrow(pa.record_batch({"k": ["b"]}), ["k"])))
        path = checkpoint.write_delta("words", 0, batch, 1, state.delta())
        state.commit()
        reference = replace(reference, deltas=(*reference.deltas, path))
        if batch == 1:
            covered = reference
    expected = {"a": 2, "c": 2, "d": 1, "z": 2}
    assert counted(checkpoint.load_state(reference, COUNTS)) == expected

    snapshot = checkpoint.compact(covered, COUNTS)
    assert snapshot == checkpoint.compact(covered, COUNTS)
    shorter = reference.compacted(snapshot, covered)
    assert shorter.deltas == reference.deltas[2:]
    assert counted(checkpoint.load_state(shorter, COUNTS)) == expected
    again = shorter.compacted(checkpoint.compact(shorter, COUNTS), shorter)
    assert again.deltas == ()
    assert counted(checkpoint.load_state(again, COUNTS)) == expected
    with pytest.raises(ValueError, match="does not begin with"):
        shorter.compacted(snapshot, covered)


def test_row_state_is_loaded_the_same_way(checkpoint: Checkpoint) -> None:
    state = RowState(TUPLES)
    paths = []
    for batch in range(3):
        state.append("a", pa.record_batch({"k": ["x", "y"], "at": [batch * 1_000_000, 5_000_000]}))
        state.expire(batch)
        paths.append(checkpoint.write_delta("join", 1, batch, 1, state.delta()))
        state.commit()
    reference = StateRef(None, tuple(paths), 0, 0)
    loaded = checkpoint.load_state(reference, TUPLES)
    assert isinstance(loaded, RowState)
    assert loaded.rows("a").equals(state.rows("a"))
    compacted = checkpoint.load_state(StateRef(checkpoint.compact(reference, TUPLES), (), 0, 0), TUPLES)
    assert isinstance(compacted, RowState)
    assert sorted(map(str, compacted.rows("a").to_pylist())) == sorted(map(str, state.rows("a").to_pylist()))


def test_state_of_another_operator_is_refused(checkpoint: Checkpoint) -> None:
    state = KeyedState(COUNTS)
    add(state, ["a"])
    reference = StateRef(None, (checkpoint.write_delta("words", 0, 0, 1, state.delta()),), 1, 1)
    sums = KeyedStateSchema((Field("total", np.dtype("f8")),), pa.schema({"k": pa.string()}))
    with pytest.raises(StateFileError, match=r"0-1\.delta is of another operator, or of other options"):
        checkpoint.load_state(reference, sums)
    with pytest.raises(StateFileError, match=r"0-1\.delta is of another operator"):
        checkpoint.load_state(reference, TUPLES)


def state_file() -> bytes:
    state = KeyedState(COUNTS)
    add(state, [f"word{i}" for i in range(50)])
    return bytes(encode(state.delta()))


def test_a_state_file_damaged_anywhere_is_named() -> None:
    data = state_file()
    assert decode(data, "x").num_rows == 50
    for place in [*range(64), *range(64, len(data), 37), len(data) - 1]:
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(StateFileError, match=r"^state file s/3-1\.delta "):
            decode(bytes(damaged), "s/3-1.delta")


def test_a_state_file_cut_anywhere_is_named() -> None:
    data = state_file()
    for length in [*range(40), *range(40, len(data), 41), len(data) - 1]:
        with pytest.raises(StateFileError, match=r"^state file s/3-1\.delta "):
            decode(data[:length], "s/3-1.delta")
    with pytest.raises(StateFileError, match="more bytes after its last part"):
        decode(data + b"x", "s/3-1.delta")


def test_snapshot_in_parts_holds_the_same_state(checkpoint: Checkpoint) -> None:
    state = KeyedState(COUNTS)
    add(state, [f"word{i}" for i in range(5_000)])
    reference = StateRef(None, (checkpoint.write_delta("words", 0, 0, 1, state.delta()),), 1, 1)
    path = checkpoint.compact(reference, COUNTS, part_bytes=state.nbytes // 10)
    assert len(list(checkpoint.read_parts(path))) >= 3
    shorter = reference.compacted(path, reference)
    assert counted(checkpoint.load_state(shorter, COUNTS)) == counted(state)


def test_kept_rows_in_parts_are_the_same_rows(checkpoint: Checkpoint) -> None:
    state = RowState(TUPLES)
    for rows in (1600, 800, 400, 200, 100):  # chunks of other sizes are merged
        state.append("a", pa.record_batch({"k": ["x"] * rows, "at": np.arange(rows)}, schema=TUPLES.inputs["a"]))
    reference = StateRef(None, (checkpoint.write_delta("join", 0, 0, 1, state.delta()),), 1, 1)
    path = checkpoint.compact(reference, TUPLES, part_bytes=state.nbytes // 5)
    assert len(list(checkpoint.read_parts(path))) >= 3
    loaded = checkpoint.load_state(StateRef(path, (), 1, 1), TUPLES)
    assert isinstance(loaded, RowState)
    assert loaded.rows("a") == state.rows("a")


def file_in_parts() -> bytes:
    state = KeyedState(COUNTS)
    add(state, [f"word{i}" for i in range(50)])
    return b"".join(encode_parts(state.parts(state.nbytes // 3)))


def test_state_file_in_parts_damaged_or_cut_anywhere_is_named() -> None:
    data = file_in_parts()
    assert sum(part.num_rows for part in decode_parts(data, "x")) == 50
    for place in [*range(64), *range(64, len(data), 37), len(data) - 1]:
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(StateFileError, match=r"^state file s/3-1\.snapshot "):
            list(decode_parts(bytes(damaged), "s/3-1.snapshot"))
    for length in [*range(64), *range(64, len(data), 41), len(data) - 16, len(data) - 1]:
        with pytest.raises(StateFileError, match=r"^state file s/3-1\.snapshot "):
            list(decode_parts(data[:length], "s/3-1.snapshot"))
    with pytest.raises(StateFileError, match="more bytes after its last part"):
        list(decode_parts(data + b"x", "s/3-1.snapshot"))


def test_parts_of_a_state_file_cannot_change_places() -> None:
    """As on a disk that has lost a block, or put it elsewhere."""
    data = file_in_parts()
    head, first, second, *others = parts_of(data)
    for damaged in ((head, second, first, *others), (head, first, *others)):
        with pytest.raises(StateFileError, match="checksum of the part at byte"):
            list(decode_parts(b"".join(damaged), "x"))


def parts_of(data: bytes) -> list[bytes]:
    """The head, and each part with its header."""
    cuts = [0, 16]
    while cuts[-1] < len(data):
        cuts.append(cuts[-1] + 16 + int.from_bytes(data[cuts[-1] : cuts[-1] + 8], "little"))
    return [data[start:end] for start, end in itertools.pairwise(cuts)]


def test_state_of_one_part_is_the_same_file_in_one_piece_or_several() -> None:
    state = KeyedState(COUNTS)
    add(state, ["a"])
    assert b"".join(encode_parts(state.parts(1 << 20))) == bytes(encode(state.snapshot()))


def test_a_newer_state_file_is_refused() -> None:
    data = bytearray(state_file())
    data[8] = 9
    with pytest.raises(StateFileError, match=r"^state file x\.delta was written by .* that writes format 9, not 1"):
        decode(bytes(data), "x.delta")


# --- garbage ---


def test_garbage_is_what_no_kept_commit_names(checkpoint: Checkpoint) -> None:
    state = KeyedState(COUNTS)
    reference = StateRef(None, (), 0, 0)
    covered = reference
    for batch in range(12):
        checkpoint.write_epoch(1 + batch // 4, "{}") if batch % 4 == 0 else None
        checkpoint.record(BatchRecord(batch, 1, 1, batch, None, {}, {}))
        add(state, [str(batch)])
        checkpoint.write_delta("words", 0, batch, 7, state.delta())  # a zombie's
        path = checkpoint.write_delta("words", 0, batch, 1, state.delta())
        state.commit()
        output = checkpoint.stage_output("words", 0, batch, 1, [state.snapshot()])
        reference = replace(reference, deltas=(*reference.deltas, path))
        if batch == 4:
            covered = reference
        if batch == 6:
            reference = reference.compacted(checkpoint.compact(covered, COUNTS), covered)
        checkpoint.commit(commit_record(batch, reference, {"out": [output]}))
    waiting = checkpoint.compact(replace(reference, deltas=reference.deltas[:1]), COUNTS)
    unfinished = checkpoint.write_delta("words", 0, 12, 1, state.delta())
    left_by_the_dead = [Path(checkpoint.where(f"{path}.{'a' * 32}.partial")) for path in ("commits/.3.json", "epochs/.3.json")]
    being_written = [Path(checkpoint.where(f"{path}.{'b' * 32}.partial")) for path in ("commits/.12.json", "epochs/.4.json")]
    for draft in (*left_by_the_dead, *being_written):
        draft.write_bytes(b"")

    deleted = checkpoint.collect_garbage(keep_commits=3)
    left = LocalStore(Path(checkpoint.uri)).list("")
    assert not set(deleted) & set(left)
    assert not any(draft.exists() for draft in left_by_the_dead)
    assert all(draft.exists() for draft in being_written)
    assert {waiting, unfinished, "header.json", "epochs/3.json"} <= set(left)
    assert checkpoint.epochs() == [3]
    assert [path for path in left if path.startswith("commits/") and "partial" not in path] == [
        "commits/10.json", "commits/11.json", "commits/9.json",
    ]  # fmt: skip
    assert not any(path.startswith(f"state/words/0/{batch}-7") for batch in range(9) for path in left)
    assert not any(f"/{batch}-1.delta" in path for batch in range(5) for path in left)
    for batch in (9, 10, 11):
        kept = checkpoint.read_commit(batch)
        assert all(Path(checkpoint.where(path)).exists() for path in kept.paths())
        held = checkpoint.load_state(kept.state["words"][0], COUNTS)
        assert counted(held) == {str(i): 1 for i in range(batch + 1)}
    assert checkpoint.collect_garbage(keep_commits=3) == []


def test_an_epoch_of_a_kept_commit_is_no_garbage_whatever_its_number() -> None:
    """Two drivers at once had committed under 3, then under 2."""
    nothing = StateRef(None, (), 0, 0)
    kept = [replace(commit_record(batch, nothing), epoch=epoch) for batch, epoch in ((6, 3), (7, 2), (8, 2))]
    assert garbage([f"epochs/{number}.json" for number in (1, 2, 3)], kept) == ["epochs/1.json"]


def test_nothing_is_garbage_before_the_first_commit(checkpoint: Checkpoint) -> None:
    checkpoint.write_epoch(1, "{}")
    assert checkpoint.collect_garbage() == []
    assert os.listdir(Path(checkpoint.where("epochs"))) == ["1.json"]
