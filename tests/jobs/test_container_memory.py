"""A worker sees the memory of its container as a kubelet counts it; an executor that state fills is named before it dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtopology.contract.stats import SlotMemory
from streamtopology.jobs.driver.attempt_runner import ExecutorLost, PythonWorkerDied, ShuffleLost
from streamtopology.jobs.driver.early_word import EarlyWord
from streamtopology.jobs.plan.results import ContainerMemory, InstanceResult, Results
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.worker.container_memory import read_container_memory
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.load.load_report import LoadReport

MIB = 2**20
PLACES = Placement.first(["large-0", "small-0"], 2)


def cgroups(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


V2 = {"memory.current": "900\n", "memory.max": "1000\n", "memory.stat": "anon 600\ninactive_file 250\nslab 3\n"}
V1 = {
    "memory/memory.usage_in_bytes": "900\n",
    "memory/memory.limit_in_bytes": "1000\n",
    "memory/memory.stat": "cache 300\ninactive_file 1\ntotal_inactive_file 250\n",
}


@pytest.mark.parametrize("files", [V2, V1], ids=["cgroups 2", "cgroups 1"])
def test_what_the_kernel_can_take_back_does_not_count(tmp_path: Path, files: dict[str, str]):
    assert read_container_memory(cgroups(tmp_path, files)) == ContainerMemory(650, 1000)


@pytest.mark.parametrize(
    "files",
    [{}, {**V2, "memory.max": "max\n"}, {**V1, "memory/memory.limit_in_bytes": "9223372036854771712\n"}],
    ids=["nothing there", "max", "as many pages as there can be"],
)
def test_without_a_limit_there_is_nothing_to_fill(tmp_path: Path, files: dict[str, str]):
    assert read_container_memory(cgroups(tmp_path, files)) is None


def test_what_nobody_knows_is_no_limit(tmp_path: Path):
    assert read_container_memory(cgroups(tmp_path, {**V2, "memory.stat": "anon 600\n\n"})) is None


def results(*state: int, used: int = 700, limit: int | None = 1024) -> Results:
    """A batch after which two operators hold `state` MiB at each slot together, beside all else that is `used`."""
    span = Span("", 0.0, 0.0)
    return Results(
        [
            InstanceResult(
                LoadReport(operator, slot, slot, 1, 0.0, 0.0, state_bytes=held * MIB // 2),
                None,
                {},
                None,
                span,
                memory=None if limit is None else ContainerMemory((used + held) * MIB, limit * MIB),
            )
            for slot, held in enumerate(state)
            for operator in ("counts", "top")
        ]
    )


def test_the_room_is_what_all_else_leaves():
    assert results(200, 20).memory == (
        SlotMemory(0, 200 * MIB, 324 * MIB),
        SlotMemory(1, 20 * MIB, 324 * MIB),
    )
    assert results(200, limit=None).memory == ()


def test_an_executor_is_named_once_when_state_takes_70_percent_and_again_after_it_had_room():
    word = EarlyWord()
    assert word.texts(results(200, 20), PLACES) == []
    (text,) = word.texts(results(240, 20), PLACES)
    assert text.startswith("executor large-0 holds 252 MB of state, 74 % of what its memory has room for beside all else")
    for around in (220, 241, 215, 260):
        assert word.texts(results(around, 20), PLACES) == []
    assert word.texts(results(190, 20), PLACES) == []
    assert len(word.texts(results(240, 240), PLACES)) == 2


def test_memory_without_a_limit_or_state_is_never_full():
    word = EarlyWord()
    assert word.texts(results(240, limit=None), PLACES) == []
    assert word.texts(results(0, used=1030), PLACES) == []
    assert word.likely_cause(PythonWorkerDied()) == ""


def test_the_fullest_executor_that_may_have_died_is_the_likely_cause():
    word = EarlyWord()
    assert word.likely_cause(PythonWorkerDied()) == ""
    word.texts(results(240, 300), PLACES)
    assert word.likely_cause(PythonWorkerDied()).startswith("executor small-0 holds 315 MB of state, 93 %")
    assert word.likely_cause(ExecutorLost(["large-0"])).startswith("executor large-0 holds 252 MB of state, 74 %")
    assert word.likely_cause(ExecutorLost(["other-0"])) == ""
    assert word.likely_cause(ShuffleLost()) == ""
    word.texts(results(0, 0), PLACES)
    assert word.likely_cause(PythonWorkerDied()) == ""


def test_more_than_all_is_all():
    assert "100 %" in SlotMemory(0, 500, 0).text("large-0")
