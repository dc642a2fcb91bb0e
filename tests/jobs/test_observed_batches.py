"""The driver's answer to a controller: small whatever the run is, without what the controller has, and readable by others."""

from __future__ import annotations

import gzip
import json
from urllib.request import Request, urlopen

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from support.histories import no_page

from streamtopology.contract.phases import Phase
from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.contract.stats import LiveExecutor, Slot, read_stats
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.observe.history import BatchOutcome, History
from streamtopology.jobs.observe.observed_batches import observed_batches
from streamtopology.jobs.observe.stats import MOST_REPORTS, Standing, build_stats
from streamtopology.jobs.view.http_server import StatusServer
from streamtopology.k8s.decide.answers import FIRST_QUESTION, PlanningRequest
from streamtopology.k8s.planning.judge import Judge
from streamtopology.routing.control import observed
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport, merge
from streamtopology.routing.table.table import BUCKETS, RoutingTable
from streamtopology.topology import Rebalance

# Bytes on the wire that a driver's answer may have with 100 executors (issue 18).
BUDGET = 256 << 10

KEYS = 100_000
HASHES = np.sort(np.random.default_rng(7).integers(0, 2**64, KEYS, dtype=np.uint64))
SHARES = np.random.default_rng(8).permutation(1 / np.arange(1, KEYS + 1))


def batch(number: int, executors: int, operators: tuple[str, ...], epoch: int = 1, moving: bool = False) -> BatchOutcome:
    """A batch of a million rows of Zipf keys, an instance of each operator on each executor."""
    rng = np.random.default_rng(number)
    rows = rng.poisson(1e6 * SHARES / SHARES.sum())
    owners = RoutingTable.uniform(range(executors)).lookup(HASHES)
    reports = [
        report(name, instance, np.where(owners == instance, rows, 0), rng)
        for name in operators
        for instance in range(executors)
    ]
    sources = tuple(SourceReport(slot, 10_000, *rng.random(2)) for slot in range(executors))
    return BatchOutcome(
        number=number,
        epoch=epoch,
        rows=1_000_000,
        seconds=1.0,
        committed_at=100.0 + number,
        reports=tuple(reports),
        source_reports=sources,
        moving=moving,
    )


def report(operator: str, instance: int, rows: np.ndarray, rng: np.random.Generator) -> LoadReport:
    heavy = np.sort(np.argsort(-rows, kind="stable")[:256])
    light = rows.copy()
    light[heavy] = 0
    used = np.flatnonzero(light)
    return LoadReport(
        operator, instance, instance, int(rows.sum()), rng.random(), rng.random(), len(used), 48 * len(used),
        heavy_hashes=HASHES[heavy], heavy_rows=rows[heavy].astype(np.int64), heavy_seconds=np.zeros(256),
        heavy_bytes=np.full(256, 48), heavy_labels=("",) * 256,
        bucket_rows=BucketRows.of_keys(HASHES[used], light[used], BUCKETS),
    )  # fmt: skip


def history(executors: int, operators: tuple[str, ...], batches: int) -> History:
    slots = tuple(Slot(n, f"large-{n}", "large", 1.0) for n in range(executors))
    run = History("flow", slots, dict.fromkeys(operators, "mixed"))
    drawn = [batch(number, executors, operators) for number in range(3)]
    for number in range(batches):
        like = drawn[number % len(drawn)]
        run.batch_done(BatchOutcome(**{**vars(like), "number": number, "committed_at": 100.0 + number}))
    run.enter(Phase.RUNNING)
    return run


def standing(executors: int, operators: tuple[str, ...]) -> Standing:
    table = RoutingTable.uniform(range(executors))
    routes = {name: Route("mixed", table, tuple(range(executors))) for name in operators}
    there = [LiveExecutor(str(n), "large", f"flow-large-{n}", n, True) for n in range(executors)]
    return Standing(Epoch(1, routes, (), EpochReason(EpochCause.FIRST)), 1, 1, None, 1.0, "s3://bucket/checkpoint", there)


def test_the_answer_to_a_restarted_controller_keeps_its_budget_at_100_executors():
    operators = ("first", "second", "third")
    run, stands = history(100, operators, 40), standing(100, operators)
    with StatusServer(CollectorRegistry(), lambda asked: build_stats(run, stands, asked), no_page, run.is_ready) as server:
        request = Request(f"{server.url}/stats?{FIRST_QUESTION.query}", headers={"Accept-Encoding": "gzip"})
        with urlopen(request) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            answer = response.read()
    assert len(answer) <= BUDGET
    judge = Judge(lambda: 0.0)
    asked = PlanningRequest("flow", Rebalance(), by_share=True, may_judge=True)
    judged = judge.judge("uid", gzip.decompress(answer), asked)
    assert (judged.known.since, judged.known.routing) == (39, 1)


@pytest.fixture(scope="module")
def small() -> History:
    return history(3, ("counts",), 70)


def test_batches_and_routing_that_a_controller_has_are_not_sent_again(small: History):
    stands = standing(3, ("counts",))
    news = build_stats(small, stands, Question(69, as_observed=True, routing=1))
    assert "observed" not in news
    assert (news["routing"], news["batches"]) == (None, [])
    assert news["last_batch"]["reports"] == []
    assert build_stats(small, stands, Question(69, as_observed=True, routing=0))["routing"] is not None
    assert len(json.dumps(news)) < 2_000


def test_the_sums_have_all_rows_of_the_usual_batches(small: History):
    sent = observed.from_wire(observed_batches(small.batches, 50) or {})
    assert [one.number for one in sent] == list(range(51, 70))
    assert [one.batches for one in sent] == [0] * 18 + [19], "summed up with the last"
    summed = merge(sent[-1].loads["counts"].reports())
    assert summed.rows == sum(report.rows for one in small.batches[51:] for report in one.reports)


def test_the_first_batch_of_an_epoch_and_one_that_moved_state_are_in_no_sum():
    epochs = [1, 1, 1, 2, 2, 2]
    batches = [batch(number, 2, ("counts",), epoch, moving=number == 1) for number, epoch in enumerate(epochs)]
    sent = observed.from_wire(observed_batches(batches, -1) or {})
    assert [(one.number, one.batches) for one in sent] == [(0, 0), (2, 1), (3, 0), (4, 0), (5, 2)]


def test_a_reader_of_the_former_release_gets_whole_reports_of_the_newest_batches(small: History):
    stats = read_stats(json.loads(json.dumps(build_stats(small, standing(3, ("counts",)), Question(-1)))))
    assert [one.number for one in stats.batches] == list(range(6, 70))
    assert LoadReport.from_wire(stats.batches[0].reports[0]).rows
    large = history(30, ("counts", "sums"), 40)
    stats = read_stats(build_stats(large, standing(30, ("counts", "sums")), Question(-1)))
    assert sum(len(one.reports) for one in stats.batches) <= MOST_REPORTS
    assert stats.batches[-1].number == 39
    assert stats.last_batch is not None
    assert len(stats.last_batch.reports) == 60
