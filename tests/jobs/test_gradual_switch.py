"""State that moves in portions: no batch waits for all of it, and every key counts whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.jobs.admin.checkpoints import clone
from streamtopology.jobs.admin.inspect_key import describe_key
from streamtopology.jobs.rerouting.gradual import SwitchPace
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.routing.control.window import MIN_BATCHES
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

KEYS = 200
# So that a random table moves these keys in five portions or so.
PORTION = 2_000


def counting(portion: int = PORTION) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    return manifest([operator], {"s": "k BIGINT"}, migration={"portion": portion})


def table(seed: int) -> RoutingTable:
    return random_table(np.random.default_rng(seed + 1), SLOTS, hash_int64(np.arange(KEYS)))


def rows_of(seed: int) -> pa.Table:
    return pa.table({"k": np.random.default_rng(seed).integers(0, KEYS, 300)})


class Counted(Flow):
    """A flow of random keys, and how often each has come."""

    def __init__(self, folder: Path, portion: int = PORTION) -> None:
        super().__init__(folder, counting(portion))
        self.come = Counter[int]()
        self.seed = 0
        self.router.reroute({"n": table(-1)})
        self.next_batch()

    def next_batch(self) -> GradualSwitch | None:
        """The progress of the switch at this batch."""
        self.batch(s=self.next_rows())
        return self.last.switch

    def next_rows(self) -> pa.Table:
        self.seed += 1
        rows = rows_of(self.seed)
        self.come.update(rows["k"].to_pylist())
        return rows

    def check(self) -> None:
        assert {row["k"]: row["count"] for row in self.state("n")} == self.come
        sent = Counter[int]()
        for home, worker in self.workers.items():
            for (_, _, instance), cached in worker.states.items():
                assert home == instance
                sent.update(cached.state.keys(cached.state.live())[0].to_pylist())
        assert not sent or max(sent.values()) <= 2, "a key is with its owner, and until the next turn with the one before"


class Steady(SwitchPace):
    """One portion a batch, however long moving takes here."""

    def batch_with_portions(self, moving_seconds: float, taken: int) -> None:
        pass

    def first_portions(self, portions: int, moving: float) -> int:
        return 1


happenings = st.lists(
    st.sampled_from(["batch", "batch", "batch", "reroute", "prepare", "copied", "forget", "loss", "restart", "read ahead"]),
    min_size=4,
    max_size=14,
)


@deep(gate=20, long=60)
@given(happenings, st.integers(0, 1_000), st.sampled_from([500, 2_000, 6_000]))
def test_every_key_counts_whatever_happens_while_state_moves(
    tmp_path_factory: pytest.TempPathFactory, story: Sequence[str], seed: int, portion: int
) -> None:
    flow = Counted(tmp_path_factory.mktemp("flow"), portion)
    flow.router.reroute({"n": table(seed)})
    for number, what in enumerate(story):
        if what == "reroute":
            flow.router.reroute({"n": table(seed + number)})
        elif what == "prepare" and flow.last.switch is None and flow.last.epoch == flow.router.plan.epoch.number:
            flow.router.prepare({"n": table(seed + number)})
        elif what == "copied" and flow.router.prepared is not None:
            if flow.router.prepared.epoch.number > flow.router.plan.epoch.number:
                migrate(flow.checkpoint, flow.router.prepared.epoch.number, lambda text: None)
                flow.router.copied()
        elif what == "forget":
            flow.forget(number % SLOTS)
        elif what == "loss":
            flow.losses.append(Loss(stages=number % 3, slot=number % SLOTS))
        elif what == "restart":
            flow.start(counting(portion))
        elif what == "read ahead" and not flow.losses:
            flow.comes_next(s=flow.next_rows())
            flow.next_batch()
            flow.batch()
        flow.next_batch()
    flow.check()


def test_a_switch_takes_a_portion_a_batch_and_ends(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    flow.driver.switching.pace = Steady()
    flow.router.reroute({"n": table(7)})
    ways = [flow.next_batch() for _ in range(12)]
    (portions,) = {way.portions for way in ways if way is not None}
    assert all((done.results.moving_seconds > 0) == done.attempt.hands_over for done in flow.router.done[-12:])
    assert 3 <= portions <= 10
    assert ways == [GradualSwitch(2, done, portions) for done in range(1, portions)] + [None] * (13 - portions)
    assert f"epoch 3: state moves in {portions} portions, over up to as many batches" in flow.reported
    moved = [done.results.keys_moved.get("n", 0) for done in flow.router.done[1:]]
    assert min(moved[:portions]) > 0 == sum(moved[portions:])
    flow.check()


def test_little_state_moves_at_once(tmp_path: Path) -> None:
    flow = Counted(tmp_path, portion=2**20)
    flow.router.reroute({"n": table(7)})
    assert flow.next_batch() is None
    assert "portions" not in "".join(flow.reported)


def test_restart_resumes_a_gradual_switch(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    flow.router.reroute({"n": table(7)})
    flow.next_batch()
    second = flow.next_batch()
    flow.start(counting())
    assert flow.driver.switching.pace.portions == 1
    third = flow.next_batch()
    assert second is not None
    assert third == second.advanced(1)
    flow.check()


def test_another_plan_takes_the_place_of_one_that_is_under_way_at_once(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    flow.router.reroute({"n": table(7)})
    assert flow.next_batch() is not None
    flow.router.reroute({"n": table(8)})
    assert flow.next_batch() is None
    assert flow.last.epoch == 4
    flow.check()


def test_rows_are_read_ahead_while_state_moves(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    for _ in range(MIN_BATCHES):
        flow.next_batch()
    flow.driver.switching.pace = Steady()
    flow.router.reroute({"n": table(7)})
    ahead: list[bool] = []
    flow.comes_next(s=flow.next_rows())
    flow.next_batch()
    while flow.last.switch is not None:
        flow.comes_next(s=flow.next_rows())
        flow.batch()
        ahead.append(all(report.ahead for report in flow.router.done[-1].results.sources))
    flow.batch()
    assert len(ahead) >= 2
    assert all(ahead)
    flow.check()


def test_a_copy_is_taken_up_portion_by_portion(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    flow.driver.switching.pace = Steady()
    epoch = flow.router.prepare({"n": table(7)})
    flow.next_batch()
    copied = migrate(flow.checkpoint, epoch, lambda text: None)
    flow.router.copied()
    assert copied.portions >= 3
    files = Counter[int](file.portion for part in copied.parts for file in part.files)
    adopted: list[int] = []
    for _ in range(copied.portions):
        assert flow.checkpoint.precopies.lease(epoch) is not None, "until all has moved"
        flow.next_batch()
        adopted.append(sum(len(result.adopted) for result in flow.router.done[-1].results.instances))
    assert flow.last.switch is None
    assert adopted == [files[portion] for portion in range(copied.portions)]
    flow.driver.compaction.close()
    assert flow.checkpoint.precopies.lease(epoch) is None
    assert sum(done.results.keys_moved.get("n", 0) for done in flow.router.done) == sum(part.keys for part in copied.parts)
    flow.check()


def test_a_key_and_a_clone_are_found_in_the_midst_of_a_switch(tmp_path: Path) -> None:
    flow = Counted(tmp_path)
    flow.router.reroute({"n": table(7)})
    assert flow.next_batch() is not None
    owners = {row: instance for instance, state in flow.states("n").items() for row in state.snapshot()["k"].to_pylist()}
    given = tmp_path / "flow.yaml"
    given.write_text(yaml.safe_dump({**counting(), "spec": {**counting()["spec"], "checkpoint": flow.checkpoint.uri}}))
    for key, instance in list(owners.items())[:20]:
        reported = describe_key(given, "n", [str(key)], tmp_path)
        assert f"instance {instance}, epoch 3" in reported
        assert f"count: {flow.come[key]}" in reported
    clone(flow.checkpoint.uri, str(tmp_path / "clone"))
    copy = Flow(tmp_path, counting(), checkpoint=str(tmp_path / "clone"))
    copy.batch(s=pa.table({"k": [1]}))
    assert {row["k"]: row["count"] for row in copy.state("n")} == flow.come + Counter([1])


def paces(pace: SwitchPace, moving: Sequence[float]) -> list[int]:
    """The portions after each batch of a switch, in which moving took so many seconds."""
    found: list[int] = []
    for seconds in moving:
        pace.batch_with_portions(seconds, taken=pace.portions)
        found.append(pace.portions)
    return found


def usual(seconds: Sequence[float]) -> SwitchPace:
    pace = SwitchPace()
    for of_batch in seconds:
        pace.usual_batch(of_batch)
    return pace


def test_the_pace_follows_how_long_moving_takes() -> None:
    pace = SwitchPace()
    assert paces(pace, 5 * [0.1]) == 5 * [1], "of usual batches nothing is known"
    assert pace.first_portions(256, 1.0) == 1
    pace = usual((1.0, 1.1, 0.9))
    assert paces(pace, (0.05, 0.08, 0.15, 0.15, 0.3, 0.3, 0.3, 0.02)) == [2, 4, 4, 4, 2, 1, 1, 2]
    pace.batch_with_portions(0.02, taken=1)
    assert pace.portions == 2, "that batch was begun before the pace rose"
    pace.usual_batch(1.0)
    assert pace.portions == 1


def test_what_is_paid_for_any_portion_is_not_paid_for_each() -> None:
    """As for a join, where a pass over all rows takes longer than a usual batch of few rows."""
    pace, left, batches = usual((0.5, 0.1, 0.5)), 256, 0
    while left > 0:
        taken = min(pace.portions, left)
        pace.batch_with_portions(1.0 + 0.01 * taken, taken)
        left, batches = left - taken, batches + 1
    assert batches <= 10


def test_moving_may_take_little_of_a_short_batch_even_if_it_is_the_same_for_all_portions() -> None:
    pace = usual((0.2, 0.2))
    for _ in range(20):
        pace.batch_with_portions(0.04 * pace.portions, pace.portions)
        assert pace.portions <= 2


def test_a_switch_starts_with_what_a_usual_batch_has_time_for() -> None:
    assert usual((0.2, 0.2)).first_portions(256, 100e6) == 1
    assert usual((8.0, 9.0, 60.0)).first_portions(256, 450e6) == 6
    assert usual((8.0, 9.0, 60.0)).first_portions(256, 0.0) == 32
    assert usual((8.0, 9.0, 60.0)).first_portions(4, 0.0) == 1


def joined(folder: Path, portion: int) -> tuple[Flow, list[GradualSwitch | None]]:
    """Two streams joined in windows, re-routed twice; what went out, and how far each batch was switched."""
    join = {"name": "pairs", "inputs": ["a", "b"], "grouping": {"policy": "mixed", "key": "k"}, "run": "window-join",
            "with": {"time": "ts", "size": "30s", "select": ["a.k AS k", "a.v AS v", "b.w AS w"]}}  # fmt: skip
    sources = {"a": "k BIGINT, ts BIGINT, v BIGINT", "b": "k BIGINT, ts BIGINT, w BIGINT"}
    watermarks = {name: {"column": "ts", "delay": "1s"} for name in "ab"}
    flow = Flow(folder, manifest([join], sources, watermarks=watermarks, migration={"portion": portion}))
    ways: list[GradualSwitch | None] = []
    for number in range(14):
        if number in (1, 4, 11):
            flow.router.reroute({"pairs": table(number)})
        random = np.random.default_rng(number)
        keys, times = random.integers(0, 40, (2, 60)), number * 4 + random.integers(0, 4, (2, 60))
        flow.batch(
            a=pa.table({"k": keys[0], "ts": times[0], "v": np.arange(60)}),
            b=pa.table({"k": keys[1], "ts": times[1], "w": np.arange(60)}),
        )
        ways.append(flow.last.switch)
    flow.drain()
    return flow, ways


def test_rows_that_wait_for_others_move_in_portions_too(tmp_path: Path) -> None:
    (tmp_path / "at once").mkdir()
    (tmp_path / "in portions").mkdir()
    at_once, ways = joined(tmp_path / "at once", 1 << 30)
    assert set(ways) == {None}
    in_portions, ways = joined(tmp_path / "in portions", 1_000)
    assert sum(way is not None for way in ways) >= 4
    expected, found = (Counter(map(str, flow.published("pairs").to_pylist())) for flow in (at_once, in_portions))
    assert found == expected
    assert expected.total() > 500
