"""Operators planned together, as the controller judges them: for locality, once it is worth the switch, and not again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from streamtopology.contract.reasons import SOURCE, EpochCause, EpochReason, Hold, HoldReason, RemedyKind
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, Reroute, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.control.slot_model import estimate
from streamtopology.routing.control.stages import ShareStage
from streamtopology.routing.control.stages_in_window import stages_in_window
from streamtopology.routing.control.timings import StageTiming, Timings
from streamtopology.routing.control.window import MIN_BATCHES, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import KeyPairs, LoadReport, Onward, SourceReport, merge
from streamtopology.routing.table.table import BUCKETS, RoutingTable
from streamtopology.topology import Rebalance

SLOTS = 4
INSTANCES = tuple(range(SLOTS))
RATE = 50_000.0


@dataclass
class Chain:
    """400 keys of `first`, each followed by one of 80 keys of `second`, `rows` a batch, on four like slots."""

    policy: str = "locality"
    rows: int = 40_000
    state_bytes: int = 0
    remote_seconds: float = 0.0
    counts_pairs: bool = True

    def __post_init__(self) -> None:
        rng = np.random.default_rng(1)
        self.first = rng.integers(0, 2**63, 400).astype(np.uint64)
        self.second = rng.integers(0, 2**63, 80).astype(np.uint64)[np.arange(400) % 80]

    def epoch(self) -> Epoch:
        route = Route(self.policy, RoutingTable.uniform(INSTANCES), INSTANCES)
        return Epoch(1, {"first": route, "second": route}, (), EpochReason(EpochCause.FIRST))

    def facts(self, epoch: Epoch) -> TopologyFacts:
        return TopologyFacts.of(epoch.routes, [1.0] * SLOTS, source_by_share=False)

    def at(self, epoch: Epoch, operator: str) -> np.ndarray:
        table = epoch.routes[operator].table
        assert table is not None
        return table.lookup(self.first if operator == "first" else self.second)

    def locality(self, epoch: Epoch) -> float:
        return float(np.mean(self.at(epoch, "first") == self.at(epoch, "second")))

    def reports(self, epoch: Epoch) -> list[LoadReport]:
        each = self.rows // len(self.first)
        return [
            self._report(operator, instance, np.flatnonzero(self.at(epoch, operator) == instance), each)
            for operator in ("first", "second")
            for instance in INSTANCES
        ]

    def seconds(self, epoch: Epoch) -> float:
        """Of a batch, without fixed seconds: links are alike busy."""
        stages = sum(np.bincount(self.at(epoch, name)).max() for name in ("first", "second")) / len(self.first) / RATE
        return self.rows * (stages + self.remote_seconds * (1 - self.locality(epoch)) / SLOTS)

    def _report(self, operator: str, instance: int, keys: np.ndarray, each: int) -> LoadReport:
        rows, busy = each * len(keys), each * len(keys) / RATE
        hashes = (self.first if operator == "first" else self.second)[keys]
        pairs = KeyPairs.summed(self.first[keys], self.second[keys], np.full(len(keys), each), rows)
        return LoadReport(
            operator,
            instance,
            instance,
            rows,
            busy,
            busy + 0.05,
            state_keys=len(np.unique(hashes)),
            state_bytes=self.state_bytes // SLOTS,
            bucket_rows=BucketRows.of_keys(hashes, np.full(len(keys), each), BUCKETS),
            key_pairs={"second": pairs} if operator == "first" and self.counts_pairs else {},
        )


def run(chain: Chain, epoch: Epoch, controller: Controller, clock: list[float], first: int = 0) -> Decision:
    """The decision after as many batches under `epoch` as it takes."""
    for number in range(first, first + 1 + 2 * MIN_BATCHES):
        clock[0] += 5.0
        reports = chain.reports(epoch)
        seconds = chain.seconds(epoch)
        sources = [SourceReport(0, chain.rows, 0.1, 0.1)]
        batch = CommittedBatch(number, epoch.number, seconds, reports, sources, remote_seconds=chain.remote_seconds)
        controller.observe(batch.observed())
    return controller.step(clock[0], epoch, chain.facts(epoch))


def new_controller(clock: list[float], interval: float = 10.0) -> Controller:
    return Controller(Rebalance(interval_seconds=interval), lambda: clock[0])


def test_both_tables_come_in_one_epoch_and_then_there_is_nothing_to_do() -> None:
    chain, clock = Chain(), [0.0]
    controller, hashed = new_controller(clock), chain.epoch()
    decision = run(chain, hashed, controller, clock)
    assert isinstance(decision, Reroute), decision
    assert decision.plans.keys() == {"first", "second"}
    assert chain.locality(hashed) < 0.4
    assert chain.locality(decision.epoch) == 1.0
    loads = np.bincount(chain.at(decision.epoch, "first"), minlength=SLOTS)
    assert loads.max() / loads.mean() < 1.1
    (stage,) = decision.reason.stages
    assert (stage.kind, stage.stage, stage.local_planned) == (RemedyKind.LOCALITY, "first+second", 1.0)
    assert stage.local_before == pytest.approx(chain.locality(hashed))
    again = run(chain, decision.epoch, controller, clock, first=100)
    assert again.reason is HoldReason.BALANCED, again


def test_a_switch_that_takes_more_than_a_tenth_of_the_horizon_is_not_made() -> None:
    chain, clock = Chain(state_bytes=20_000_000_000), [0.0]
    decision = run(chain, chain.epoch(), new_controller(clock), clock)
    assert decision.reason is HoldReason.NOT_WORTH_COST, decision


def test_offline_is_planned_once_whatever_comes_after() -> None:
    chain, clock = Chain("locality-offline"), [0.0]
    controller = new_controller(clock)
    decision = run(chain, chain.epoch(), controller, clock)
    assert isinstance(decision, Reroute)
    chain.second = np.roll(chain.second, 7)  # other keys follow each other now
    drifted = chain.locality(decision.epoch)
    assert drifted < 0.6
    assert isinstance(run(chain, decision.epoch, controller, clock, first=100), Hold)


def test_online_follows_a_drift() -> None:
    chain, clock = Chain(), [0.0]
    controller = new_controller(clock)
    decision = run(chain, chain.epoch(), controller, clock)
    assert isinstance(decision, Reroute)
    chain.second = np.roll(chain.second, 7)
    for first in (100, 200, 300):  # the window forgets, and a small gain must last
        after = run(chain, decision.epoch, controller, clock, first)
        decision = after if isinstance(after, Reroute) else decision
    assert chain.locality(decision.epoch) > 0.9


def test_the_worst_case_has_no_pair_on_one_server() -> None:
    chain, clock = Chain("locality-worst"), [0.0]
    controller = new_controller(clock)
    decision = run(chain, chain.epoch(), controller, clock)
    assert isinstance(decision, Reroute), decision
    assert chain.locality(decision.epoch) == 0.0
    assert isinstance(run(chain, decision.epoch, controller, clock, first=100), Hold)


def test_operators_with_other_instances_are_planned_apart() -> None:
    chain, clock = Chain(), [0.0]
    epoch = chain.epoch()
    three = Route("locality", RoutingTable.uniform((0, 1, 2)), (0, 1, 2))
    apart = Epoch(1, {**epoch.routes, "second": three}, (), EpochReason(EpochCause.FIRST))
    controller = new_controller(clock)
    run(chain, apart, controller, clock)
    _, remedies = controller.preview(apart, chain.facts(apart))
    assert remedies.keys() == {"first", "second"}
    assert not any(remedy.brings_locality for remedy in remedies.values())


def test_onward_counts_are_summed_and_survive_the_wire() -> None:
    made = [LoadReport("a", i, i, 10, 1.0, 1.0, onward={"b": sent}) for i, sent in enumerate((Onward(10, 4), Onward(5, 5)))]
    merged = merge(made)
    assert merged.onward == {"b": Onward(15, 9)}
    assert LoadReport.from_wire(merged.to_wire()).onward == merged.onward


@pytest.mark.parametrize("remote_seconds", [0.0, 1e-8])
def test_auto_plans_each_operator_alone_where_remote_rows_take_no_time(remote_seconds: float) -> None:
    chain, clock = Chain("auto", remote_seconds=remote_seconds), [0.0]
    controller, hashed = new_controller(clock), chain.epoch()
    decision = run(chain, hashed, controller, clock)
    epoch = decision.epoch if isinstance(decision, Reroute) else hashed
    assert chain.locality(epoch) < 0.5
    assert not [stage for stage in epoch.reason.stages if stage.kind is RemedyKind.LOCALITY]


def test_auto_takes_keys_together_where_remote_rows_take_long() -> None:
    """A remote row takes as long on a link as its work: that of 0.75 of the rows is to be had."""
    chain, clock = Chain("auto", remote_seconds=1 / RATE), [0.0]
    controller, hashed = new_controller(clock), chain.epoch()
    decision = run(chain, hashed, controller, clock)
    assert isinstance(decision, Reroute), decision
    assert decision.plans.keys() == {"first", "second"}
    assert chain.locality(decision.epoch) > 0.9
    loads = np.bincount(chain.at(decision.epoch, "first"), minlength=SLOTS)
    assert loads.max() / loads.mean() < 1.25, "a stage may last a quarter longer for the sake of the network"
    (stage,) = decision.reason.stages
    assert (stage.kind, stage.stage) == (RemedyKind.LOCALITY, "first+second")
    gained = chain.seconds(hashed) - chain.seconds(decision.epoch)
    assert decision.predicted_gain_seconds == pytest.approx(gained, rel=0.3)
    again = run(chain, decision.epoch, controller, clock, first=100)
    assert isinstance(again, Hold), again


READERS = estimate(
    [Timings.of([StageTiming(SOURCE, slot, 1_000, 1e-3, 0.05) for slot in range(SLOTS)])] * MIN_BATCHES, [1.0] * SLOTS
)


def reading(shares: np.ndarray, links: np.ndarray | None, *, is_hidden: bool = False) -> ShareStage:
    return ShareStage(SOURCE, INSTANCES, 4_000.0, shares, links, is_hidden)


@pytest.mark.parametrize(("link_seconds", "readers"), [(None, 2), (1e-4, SLOTS)])
def test_source_is_read_by_all_where_its_rows_take_long_on_links(link_seconds: float | None, readers: int) -> None:
    """Reading takes 50 ms an executor and hardly any time a row: else two of them read it all."""
    links = None if link_seconds is None else np.full(SLOTS, link_seconds)
    shares = reading(np.full(SLOTS, 1 / SLOTS), links).remedy(READERS, 0.1, 0).shares
    assert sum(share > 0 for share in shares) == readers


def test_hidden_source_is_divided_such_that_all_links_are_done_together() -> None:
    away = np.array([0.5, 0.8, 0.8, 0.9])
    remedy = reading(np.full(SLOTS, 1 / SLOTS), 1e-4 * away, is_hidden=True).remedy(READERS, 0.1, 0)
    sent = np.array(remedy.shares) * away
    assert sent == pytest.approx(np.full(SLOTS, sent.mean()))
    assert remedy.seconds_before == pytest.approx(1e-4 * 1_000 * 0.9), "as long as the one that sends most"
    assert remedy.gain_seconds == pytest.approx(remedy.seconds_before - 1e-4 * 4_000 * sent[0])


@pytest.mark.parametrize(("remote_seconds", "judged"), [(0.0, False), (1e-4, True)])
def test_hidden_source_goes_by_the_rows_that_slots_get_from_it(remote_seconds: float, judged: bool) -> None:
    """Operator `second` gets rows of `first` only: which slots these are on does not matter to who reads."""
    got = {"first": (400, 200, 200, 200), "second": (0, 0, 0, 1_000)}
    reports = [StageTiming(name, slot, n, 0.1, 0.1) for name, by_slot in got.items() for slot, n in enumerate(by_slot)]
    timings = Timings.of(reports)
    batches = [WindowBatch(5.0 * n, n, 1.0, 1, timings, 1_000, True, True, remote_seconds) for n in range(MIN_BATCHES)]
    facts = TopologyFacts((1.0,) * SLOTS, fed_by_sources=frozenset({"first"}))
    stages = stages_in_window(batches, [], Chain("auto").epoch(), facts)
    assert [stage.name for stage in stages] == [SOURCE] * judged
    for stage in stages:
        assert isinstance(stage, ShareStage)
        assert stage.is_hidden
        assert stage.link_seconds == pytest.approx(remote_seconds * np.array([0.6, 0.8, 0.8, 0.8]))


def test_auto_plans_alone_while_no_pairs_are_counted() -> None:
    chain, clock = Chain("auto", remote_seconds=1 / RATE, counts_pairs=False), [0.0]
    decision = run(chain, chain.epoch(), new_controller(clock), clock)
    stages = decision.reason.stages if isinstance(decision, Reroute) else ()
    assert not [stage for stage in stages if stage.kind is RemedyKind.LOCALITY]
