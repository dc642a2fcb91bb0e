"""Fixed seconds are what they are, whatever the clocks of the executors' hosts say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import Flow, manifest

from streamtopology.jobs.driver.host_clocks import HostClocks
from streamtopology.jobs.exchange.collect import between_barriers
from streamtopology.jobs.plan.results import InstanceResult, Results, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.routing.load.load_report import LoadReport, SourceReport

# Seconds from the submission of a task to its start, at the least, in these stories.
QUICKEST = 0.01

BUSY = {0: 0.3, 1: 0.5}
# Seconds of a task that are not work, by slot; the first of them until it begins.
FIXED = {0: 0.08, 1: 0.02}


def batch(submitted_at: float, ahead: Mapping[int, float], start_seconds: float = QUICKEST) -> tuple[Results, float]:
    """A source and one operator on two slots whose clocks are so far `ahead`; the results, and when they are collected."""

    def span(slot: int, after: float, seconds: float) -> Span:
        clock = f"host {slot}" if slot in ahead else "driver"
        skew = ahead.get(slot, 0.0)
        return Span(clock, after + start_seconds + skew, after + FIXED[slot] + seconds + skew)

    sources = [SourceResult(SourceReport(slot, 100, 0.1, 0.1), span(slot, submitted_at, 0.1)) for slot in BUSY]
    barrier = submitted_at + max(FIXED.values()) + 0.1
    reports = {slot: LoadReport("counts", slot, slot, 100, BUSY[slot], BUSY[slot]) for slot in BUSY}
    instances = [InstanceResult(reports[slot], None, {}, None, span(slot, barrier, BUSY[slot])) for slot in BUSY]
    return Results(instances, sources), barrier + 0.6


def fixed_seconds(clocks: HostClocks, results: Results, submitted_at: float, collected_at: float) -> list[float]:
    by_driver = clocks.by_driver(results, submitted_at, collected_at, prefetched=False)
    timed = between_barriers(by_driver, submitted_at, lambda _: 1, read_ahead=False)
    return [result.report.task_seconds - result.report.busy_seconds for result in timed.instances]


@given(st.dictionaries(st.sampled_from([0, 1]), st.floats(-1e6, 1e6)), st.floats(0, 1e6))
def test_fixed_seconds_do_not_depend_on_the_clocks_of_hosts(ahead: dict[int, float], submitted_at: float) -> None:
    results, collected_at = batch(submitted_at, ahead)
    found = fixed_seconds(HostClocks("driver"), results, submitted_at, collected_at)
    assert found == pytest.approx(list(FIXED.values()), abs=QUICKEST + 1e-6)


def test_hosts_with_the_drivers_clock_are_exact() -> None:
    results, collected_at = batch(100.0, {})
    assert fixed_seconds(HostClocks("driver"), results, 100.0, collected_at) == pytest.approx(list(FIXED.values()))


def test_quickest_start_of_the_last_batches_counts() -> None:
    clocks = HostClocks("driver")
    for number in range(3):
        slow = 10 * QUICKEST if number else QUICKEST
        results, collected_at = batch(100.0 * number, {1: 7.0}, slow)
        found = fixed_seconds(clocks, results, 100.0 * number, collected_at)
    assert found == pytest.approx(list(FIXED.values()), abs=QUICKEST + 1e-6)


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_host_that_stood_still_is_learned_again(step: float) -> None:
    clocks = HostClocks("driver")
    for number, ahead in enumerate([7.0, 7.0 + step]):
        results, collected_at = batch(100.0 * number, {1: ahead})
        found = fixed_seconds(clocks, results, 100.0 * number, collected_at)
        assert found == pytest.approx(list(FIXED.values()), abs=QUICKEST + 1e-6)


def test_prefetch_that_began_before_its_batch_says_nothing_of_the_clock() -> None:
    clocks = HostClocks("driver")
    results, collected_at = batch(100.0, {0: 7.0, 1: 9.0})
    later = clocks.by_driver(results, 100.15, collected_at, prefetched=True)
    assert [task.span.clock for task in later.source_tasks] == ["driver", "driver"]
    assert all(result.span.began_at >= 100.15 for result in later.instances)


@pytest.mark.parametrize("skew", [0.2, -0.2, 3600.0, -3600.0])
def test_batch_on_hosts_with_other_clocks_has_the_fixed_seconds_that_it_took(tmp_path: Path, skew: float) -> None:
    counts = {"name": "counts", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": "count"}
    flow = Flow(tmp_path, manifest([counts], {"s": "k BIGINT"}))
    flow.skews = {1: skew, 2: -skew}
    for _ in range(3):
        flow.batch(s=pa.table({"k": list(range(500))}))
        done = flow.router.done[-1]
        reports = [result.report for result in done.results.instances]
        fixed = {report.slot: report.task_seconds - report.busy_seconds for report in reports}
        assert all(0 <= fixed[slot] < done.seconds for slot in flow.skews)
