"""The driver's promises: a batch counts wholly or not at all, and a tuple at fault is named or set aside, it alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.contract.stats import LostAttempts
from streamtopology.jobs.checkpoint import BatchRecord
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.driver.batch_loop import MOST_ATTEMPTS
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.plan.results import ContainerMemory, InstanceResult, Results
from streamtopology.jobs.plan.span import Span
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.hashing import hash_int64

PICKY = '''
import numpy as np
import pyarrow as pa
from streamtopology.api import BadTuple, Field, Operator, TupleOperator


class Sum:
    fields = (Field("n", np.int64), Field("total", np.int64))


class Named(Sum, Operator):
    """Says itself which tuples it cannot take."""

    def process(self, rows, state):
        values = rows.column("v").to_numpy()
        if (values < 0).any():
            raise BadTuple(np.flatnonzero(values < 0), "v is negative")
        slots = state.slots(rows.keys)
        np.add.at(state.column("n"), slots, 1)
        np.add.at(state.column("total"), slots, values)


class Unnamed(Sum, Operator):
    """Just raises, having changed its state."""

    def process(self, rows, state):
        values = rows.column("v").to_numpy()
        slots = state.slots(rows.keys)
        np.add.at(state.column("n"), slots, 1)
        np.add.at(state.column("total"), slots, values)
        if (values < 0).any():
            raise ValueError("v is negative")


class OneByOne(Sum, TupleOperator):
    def process_tuple(self, row, state):
        state["n"] += 1
        state["total"] += row["v"]
        if row["v"] < 0:
            raise ValueError("v is negative")


class AtTheEnd(Sum, Operator):
    """Raises whatever it was given."""

    def process(self, rows, state):
        state.slots(rows.keys)

    def finish(self, batch, state):
        if batch.number:
            raise RuntimeError("the end is bad")
'''
ALL = ["Named", "Unnamed", "OneByOne"]

tuples = st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 9)), max_size=25)


def picky(folder: Path, operator: str, on_bad_tuple: str = "fail") -> dict[str, Any]:
    (folder / "picky.py").write_text(PICKY)
    sums = {"name": "sums", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": f"picky.py:{operator}"}
    made = manifest([sums], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple)
    made["spec"]["sinks"] = []
    return made


def table_of(rows: Sequence[tuple[int, int]]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.int64())})


def sums_of(flow: Flow) -> dict[int, tuple[int, int]]:
    return {row["k"]: (row["n"], row["total"]) for row in flow.state("sums")}


def expected(rows: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    number, total = Counter(k for k, _ in rows), Counter[int]()
    for k, v in rows:
        total[k] += v
    return {k: (n, total[k]) for k, n in number.items()}


@pytest.mark.parametrize("operator", ALL)
def test_a_bad_tuple_ends_the_run_named_and_nothing_of_its_batch_stays(tmp_path: Path, operator: str) -> None:
    flow = Flow(tmp_path, picky(tmp_path, operator))
    good = [(k, k) for k in range(20)]
    before = flow.batch(s=table_of(good))
    owner = int(flow.router.plan.epoch.routes["sums"].table.lookup(hash_int64(np.array([7])))[0])
    with pytest.raises(TopologyFailed) as raised:
        flow.batch(s=table_of([*good, (7, -3), *good]))
    sentence = str(raised.value)
    for part in ("'sums'", "batch 1", f"instance {owner}", "k=7", "v is negative", "'v': -3", "deadLetter"):
        assert part in sentence
    assert flow.last == before
    assert sums_of(flow) == expected(good)
    flow.start(picky(tmp_path, operator))
    assert flow.batch(s=table_of([(7, 3)])).batch == 1
    assert sums_of(flow) == expected([*good, (7, 3)])


@pytest.mark.parametrize("operator", ALL)
@settings(max_examples=4)
@given(batches=st.lists(tuples, min_size=2, max_size=3), seed=st.integers(0, 99))
def test_exactly_the_bad_tuples_are_set_aside(
    tmp_path_factory: pytest.TempPathFactory, operator: str, batches: list[list[tuple[int, int]]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("flow")
    flow = Flow(folder, picky(folder, operator, "deadLetter"))
    random = np.random.default_rng(seed)
    for rows in batches:
        flow.losses = [Loss(2, 0)]  # what a failed attempt sets aside does not count
        flow.batch(s=table_of(rows))
        done = flow.router.done[-1]
        bad = sum(result.report.bad_rows for result in done.results.instances)
        assert bad == sum(v < 0 for _, v in rows)
        flow.router.reroute({"sums": random_table(random, SLOTS)})
    everything = [row for rows in batches for row in rows]
    assert sums_of(flow) == expected([row for row in everything if row[1] >= 0])
    letters = flow.published(DEAD_LETTERS).to_pylist()
    found = Counter((json.loads(letter["tuple"])["k"], json.loads(letter["tuple"])["v"]) for letter in letters)
    assert found == Counter(row for row in everything if row[1] < 0)
    assert all(letter["operator"] == "sums" and "v is negative" in letter["reason"] for letter in letters)


def from_texts(on_bad_tuple: str, select: str = "CAST(t AS BIGINT) AS v") -> dict[str, Any]:
    """Counts the rows of each key whose text is a number above 0, as the source's select and where make them."""
    counts = {"name": "counts", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    made = manifest([counts], {"s": "k BIGINT, t STRING"}, onBadTuple=on_bad_tuple)
    made["spec"]["sources"][0] |= {"select": ["k", select], "where": "CAST(t AS BIGINT) > 0"}
    made["spec"]["sinks"] = []
    return made


def texts_of(rows: Sequence[tuple[int, str]]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "t": pa.array([t for _, t in rows], pa.string())})


def test_a_row_on_which_a_sources_expression_raises_ends_the_run_named(tmp_path: Path) -> None:
    flow = Flow(tmp_path, from_texts("fail"))
    before = flow.batch(s=texts_of([(1, "1")]))
    with pytest.raises(TopologyFailed) as raised:
        flow.batch(s=texts_of([*[(k, "2") for k in range(50)], (7, "seven"), (9, "9")]))
    sentence = str(raised.value)
    for part in ("source 's'", "batch 1", "'CAST(t AS BIGINT) > 0'", "'seven'", "'k': 7", "deadLetter"):
        assert part in sentence
    assert "Traceback" not in sentence
    assert flow.last == before
    flow.start(from_texts("deadLetter"))
    assert flow.batch(s=texts_of([(1, "1"), (7, "seven")])).batch == 1
    assert [(row["k"], row["count"]) for row in flow.state("counts")] == [(1, 2)]


@settings(max_examples=10)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["1", "-1", "x", "", "7"])), max_size=30), min_size=1, max_size=3
    )
)
def test_exactly_the_rows_on_which_a_source_raises_are_set_aside(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, str]]]
) -> None:
    flow = Flow(tmp_path_factory.mktemp("flow"), from_texts("deadLetter"))
    for number, rows in enumerate(batches):
        flow.losses = [Loss(2, 0)] if number % 2 == 0 else []  # what a failed attempt sets aside does not count
        flow.batch(s=texts_of(rows))
    everything = [row for rows in batches for row in rows]
    bad = [row for row in everything if row[1] in ("x", "")]
    counted = {row["k"]: row["count"] for row in flow.state("counts")}
    assert counted == Counter(k for k, text in everything if text in ("1", "7"))
    letters = flow.published(DEAD_LETTERS).to_pylist()
    found = Counter((json.loads(letter["tuple"])["k"], json.loads(letter["tuple"])["t"]) for letter in letters)
    assert found == Counter(bad)
    assert all(letter["input"] == "s" and letter["operator"] is None and "CAST" in letter["reason"] for letter in letters)
    counted_bad = [sum(report.bad_rows.get("s", 0) for report in done.results.sources) for done in flow.router.done]
    assert sum(counted_bad) == len(bad)
    left_out = [sum(report.filtered_rows.get("s", 0) for report in done.results.sources) for done in flow.router.done]
    assert sum(left_out) == len(everything) - len(bad) - sum(counted.values())


@pytest.mark.parametrize(
    ("unfit", "why"),
    [
        (pa.table({"k": [1, 2], "v": ["five", "six"]}), "column 'v' holds string but is declared int64"),
        (pa.table({"k": [1, 2], "w": [5, 6]}), "column 'v' is declared int64 but the file has no such column (it has k, w)"),
    ],
    ids=["another type", "no such column"],
)
@pytest.mark.parametrize("on_bad_tuple", ["fail", "deadLetter"])
def test_a_file_that_does_not_fit_its_schema_ends_the_run_named_until_it_is_mended(
    tmp_path: Path, on_bad_tuple: str, unfit: pa.Table, why: str
) -> None:
    given = picky(tmp_path, "Named", on_bad_tuple)
    flow = Flow(tmp_path, given)
    before = flow.batch(s=table_of([(1, 1)]))
    with pytest.raises(TopologyFailed) as raised:
        flow.batch(s=unfit)
    (file,) = tmp_path.glob("s-1.parquet")
    assert f"{file}" in str(raised.value)
    assert why in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert flow.last == before
    assert sums_of(flow) == {1: (1, 1)}
    flow.start(given)
    assert flow.batch(s=table_of([(1, 5), (2, 6)])).batch == 1
    assert sums_of(flow) == {1: (2, 6), 2: (1, 6)}


def test_a_batch_that_failed_takes_the_manifest_that_was_corrected(tmp_path: Path) -> None:
    flow = Flow(tmp_path, picky(tmp_path, "Named"))
    rows = table_of([(1, 5), (2, -1)])
    with pytest.raises(TopologyFailed):
        flow.batch(s=rows)
    flow.start(picky(tmp_path, "Named", "deadLetter"))
    assert flow.batch(s=rows).attempt == 2
    assert sums_of(flow) == {1: (1, 5)}


def test_a_batch_that_was_recorded_keeps_its_epoch_over_a_restart(tmp_path: Path) -> None:
    given = picky(tmp_path, "Named")
    flow = Flow(tmp_path, given)
    flow.batch(s=table_of([(1, 1)]))
    flow.meanwhile = [lambda: 1 / 0]  # the driver dies in the middle of batch 1
    with pytest.raises(ZeroDivisionError):
        flow.batch(s=table_of([(1, 1)]))
    flow.start(given)
    flow.router.reroute({"sums": random_table(np.random.default_rng(0), SLOTS)})
    assert flow.batch(s=table_of([(1, 1)])).epoch == 1
    assert flow.batch(s=table_of([(1, 1)])).epoch == flow.router.plan.epoch.number
    assert sums_of(flow) == {1: (3, 3)}


def test_an_error_that_is_no_tuples_fault_says_where_it_was(tmp_path: Path) -> None:
    flow = Flow(tmp_path, picky(tmp_path, "AtTheEnd", "deadLetter"))
    flow.batch(s=table_of([(1, 1)]))
    with pytest.raises(TopologyFailed, match=r"operator 'sums', instance \d: the end is bad\n(.|\n)*RuntimeError"):
        flow.batch(s=table_of([(1, 1)]))


def test_the_driver_gives_up_when_every_attempt_loses_an_executor(tmp_path: Path) -> None:
    flow = Flow(tmp_path, picky(tmp_path, "Named"))
    flow.losses = [Loss(0, 0)] * MOST_ATTEMPTS
    with pytest.raises(TopologyFailed, match=f"{MOST_ATTEMPTS} attempts"):
        flow.batch(s=table_of([(1, 1)]))
    assert len(flow.reported) == MOST_ATTEMPTS
    assert flow.paused[0] == 0.0, "the usual loss is made up for at once"
    assert flow.paused == sorted(flow.paused)
    assert 30 < sum(flow.paused) < 120, "what takes longer to pass is outlived, but not for ever"
    assert flow.checkpoint.last_commit() is None


def test_executors_that_die_again_while_state_fills_their_memory_are_explained_at_once(tmp_path: Path) -> None:
    flow = Flow(tmp_path, picky(tmp_path, "Named"))
    flow.batch(s=table_of([(1, 1)]))
    lost = Loss(0, slot=0)
    flow.losses = [lost, lost]
    flow.batch(s=table_of([(1, 1)]))
    assert len(flow.reported) == 2, "no memory has a limit here"
    flow.reported.clear()
    span = Span("", 0.0, 0.0)
    full = InstanceResult(
        LoadReport("sums", 0, 0, 1, 0.0, 0.0, state_bytes=90), None, {}, None, span, memory=ContainerMemory(190, 200)
    )
    lost_ones: list[LostAttempts] = []
    flow.driver = replace(flow.driver, loses=lost_ones.append)
    flow.driver.early_word.texts(Results([full]), flow.router.ready().placement)
    flow.losses = [lost, lost]
    flow.batch(s=table_of([(1, 1)]))
    assert [text for text in flow.reported if "90 B of state, 90 %" in text] == flow.reported[2:3]
    assert flow.reported[2].endswith("which is likely why it dies: give its class more memory, or add executors")
    assert [(lost.batch, lost.attempts) for lost in lost_ones] == [(2, 1), (2, 2)]
    assert lost_ones[1].why == f"{lost_ones[0].why}; {flow.reported[2]}"


@pytest.mark.parametrize("stages", [1, 2])
def test_lost_shuffle_output_costs_an_attempt_and_counts_once(tmp_path: Path, stages: int) -> None:
    flow = Flow(tmp_path, picky(tmp_path, "Named"))
    flow.losses = [Loss(stages, slot=None)]
    flow.warm_up()
    assert not flow.losses
    assert flow.reported == ["warming up: an executor could not fetch the output of another"]
    flow.batch(s=table_of([(1, 1), (2, 5)]))
    flow.losses = [Loss(stages, slot=None)] * 2
    assert flow.batch(s=table_of([(1, 1)])).attempt == 3
    assert sums_of(flow) == {1: (2, 2), 2: (1, 5)}


def test_two_drivers_on_one_checkpoint_are_distinguished(tmp_path: Path) -> None:
    given = picky(tmp_path, "Named")
    flow, row = Flow(tmp_path, given), table_of([(1, 1)])
    flow.meanwhile.append(lambda: Flow(tmp_path, given).batch(s=row))
    with pytest.raises(TopologyFailed, match="batch 0 was committed by another driver"):
        flow.batch(s=row)
    assert sums_of(Flow(tmp_path, given)) == {1: (1, 1)}


def test_an_attempt_that_another_driver_has_recorded_is_not_made(tmp_path: Path) -> None:
    """Both would write the same files, and one commit would name what the other wrote."""
    given = picky(tmp_path, "Named")
    flow = Flow(tmp_path, given)
    flow.batch(s=table_of([(1, 1)]))
    other = Flow(tmp_path, given)
    made = other.driver.checkpoint.record
    other.driver.checkpoint.record = lambda record: flow.batch(s=table_of([(2, 2)])) is None or made(record)
    with pytest.raises(TopologyFailed, match=r"attempt 1 at batch 1 was recorded by another driver.*stop one of the two"):
        other.batch(s=table_of([(2, 2)]))
    assert sums_of(flow) == {1: (1, 1), 2: (1, 2)}


def test_a_driver_whose_plan_another_one_has_superseded_does_not_run_by_it(tmp_path: Path) -> None:
    """It was suspended between its plan and its first batch: by its tables keys would go where their state no longer is."""
    given = picky(tmp_path, "Named")
    flow, other = Flow(tmp_path, given), Flow(tmp_path, given)
    flow.router.reroute({})
    flow.batch(s=table_of([(1, 1)]))
    with pytest.raises(TopologyFailed, match=r"batch 0 was committed by another driver.*stop one of the two"):
        other.driver.resume(None)


def test_a_driver_whose_plan_is_of_an_older_batch_does_not_run_by_it(tmp_path: Path) -> None:
    """It stood still, and its new plan, for a manifest that came meanwhile, had no instance that held tuples back since.

    Found by a simulated life: the tuples were lost.
    """
    given = picky(tmp_path, "Named")
    flow, other = Flow(tmp_path, given), Flow(tmp_path, given)
    flow.batch(s=table_of([(1, 1)]))
    other.router.reroute({})
    with pytest.raises(TopologyFailed, match="batch 0 was committed by another driver"):
        other.driver.resume(None)


def test_a_driver_takes_up_no_batch_that_was_recorded_under_a_newer_plan(tmp_path: Path) -> None:
    """It stood still: by its plan later batches would run under an older epoch than this one."""
    given = picky(tmp_path, "Named")
    flow, other = Flow(tmp_path, given), Flow(tmp_path, given)
    flow.batch(s=table_of([(1, 1)]))
    newer = other.router.plan.epoch.number
    assert other.driver.checkpoint.record(BatchRecord(1, 1, newer, 1, None, {}, {}))
    with pytest.raises(TopologyFailed, match=rf"batch 1 was recorded under epoch {newer} by another driver"):
        flow.batch(s=table_of([(2, 2)]))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_task_that_spark_resubmits_within_an_attempt_costs_at_most_that_attempt(tmp_path: Path, stage: int) -> None:
    """Its first run has written the files of its attempt: a second one may not write them again."""
    operators = [
        {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"},
        {"name": "m", "inputs": ["n"], "grouping": {"policy": "fields", "key": "k"}, "run": "count"},
    ]
    flow = Flow(tmp_path, manifest(operators, {"s": "k BIGINT"}))
    rows = pa.table({"k": [k for k in range(20) for _ in range(k + 1)]})
    flow.batch(s=rows)
    flow.resubmitted.append(stage)
    assert flow.batch(s=rows).attempt == (1 if stage == 0 else 2)
    assert {row["k"]: row["count"] for row in flow.state("n")} == {k: 2 * k + 2 for k in range(20)}
    assert {row["k"]: row["count"] for row in flow.state("m")} == dict.fromkeys(range(20), 2)
    assert flow.published("m").num_rows == 40


def test_choosers_start_again_from_what_every_instance_had_been_given(tmp_path: Path) -> None:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "partial-key", "key": "k"}, "run": "count"}
    given = manifest([operator], {"s": "k BIGINT"})
    flow = Flow(tmp_path, given)
    rows = pa.table({"k": list(range(100))})
    flow.batch(s=rows)
    flow.batch(s=rows)
    before = flow.router.done[-1].attempt.chooser_loads
    flow.start(given)
    flow.batch(s=rows)
    after = flow.router.done[-1].attempt.chooser_loads
    assert {node: loads.tolist() for node, loads in after.items()} == {node: loads.tolist() for node, loads in before.items()}
    assert sum(loads.sum() for loads in after.values()) >= 100


def test_routers_together_close_a_gap_in_load_only_once(tmp_path: Path) -> None:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "partial-key", "key": "k"}, "run": "count"}
    flow = Flow(tmp_path, manifest([operator], {"s": "k BIGINT"}))
    flow.batch(s=pa.table({"k": [7] * 80}))  # two instances get 40 each: 10 a router, which it makes up for
    flow.batch(s=pa.table({"k": list(range(400))}))
    given = Counter[int]()
    for done in flow.router.done:
        for result in done.results.instances:
            if result.report.operator != "n":
                given[result.report.instance] += result.report.rows
    assert sorted(given) == list(range(SLOTS))
    assert max(given.values()) <= 1.1 * min(given.values())


def test_a_commit_costs_what_changed_and_not_what_there_is(tmp_path: Path) -> None:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    written: dict[int, list[int]] = {}
    for keys in (1_000, 100_000):
        folder = tmp_path / str(keys)
        folder.mkdir()
        flow = Flow(folder, manifest([operator], {"s": "k BIGINT"}))
        flow.batch(s=pa.table({"k": np.arange(keys)}))
        before = set(Path(flow.checkpoint.uri).rglob("*.*"))
        flow.batch(s=pa.table({"k": [1, 2, 3]}))
        new = set(Path(flow.checkpoint.uri).rglob("*.*")) - before
        written[keys] = sorted(path.stat().st_size for path in new if path.suffix != ".json")
    assert written[1_000] == written[100_000]
    assert sum(written[1_000]) < 10_000
