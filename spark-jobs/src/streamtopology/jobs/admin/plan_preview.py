"""`streamtopology plan`: a preview of the next re-routing, its reason and cost, from a running driver's `/stats`.

It asks the controller that the driver itself asks, on the last batch alone, and changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamtopology.contract import formatting
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import PARTIAL, SOURCE, Binding
from streamtopology.contract.stats import StatsFormatError, read_stats
from streamtopology.jobs.admin.find_run import Where, asking_url, find_run
from streamtopology.jobs.errors import WrongUse
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, Proposal, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.epochs.epoch import Epoch, EpochFormatError
from streamtopology.routing.load.key_label import with_label
from streamtopology.routing.load.load_report import ReportFormatError
from streamtopology.routing.planners import Plan
from streamtopology.topology import Topology, groupings, load

STDIN = "-"
# Of the rows/s: below, an executor more brings nothing at any price.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Snapshot:
    """A run by its `/stats`: its routing and the last batch under it.

    `cpu`: cores of each slot. `classes`: the slots that are there, by class. `part_seconds`: of merging a part of a key, by
    operator of which it was measured. `free_bytes`: of memory for more state, by slot with a limit of it.
    """

    topology: str
    routing: Epoch
    last_batch: CommittedBatch
    cpu: tuple[float, ...]
    classes: Mapping[str, Sequence[int]]
    part_seconds: Mapping[str, float] = field(default_factory=dict)
    free_bytes: Mapping[int, float] = field(default_factory=dict)

    @staticmethod
    def from_stats(answer: Mapping[str, Any]) -> Snapshot:
        """From an answer of `/stats`. WrongUse: something is missing, damaged or of another version."""
        try:
            stats = read_stats(answer)
            last = stats.last_batch
            if last is None or stats.routing is None:
                raise WrongUse(f"topology {stats.topology!r} has not committed a batch yet: ask again later")
            epoch = Epoch.from_wire(stats.routing)
            if epoch.number != stats.epoch:
                raise WrongUse(f"epoch {epoch.number} has just begun and no batch under it is committed: ask again later")
            return Snapshot(
                topology=stats.topology,
                routing=epoch,
                last_batch=CommittedBatch.from_stats(last),
                cpu=stats.cpu,
                classes={
                    name: [slot.index for slot in stats.slots if slot.present and slot.class_name == name]
                    for name in dict.fromkeys(slot.class_name for slot in stats.slots)
                },
                part_seconds=stats.part_seconds,
                free_bytes=stats.free_bytes,
            )
        except (StatsFormatError, EpochFormatError, ReportFormatError) as damage:
            raise WrongUse(f"these stats cannot be read: {damage}") from damage


@dataclass(frozen=True)
class Outlook:
    """The controller's decision and its knowledge of each stage (the source and the operators).

    `one_more`: by class of executors, how many times the rows/s there could be with one more of it. `prices`: of one executor
    for an hour, by class, as far as the manifest has them.
    """

    snapshot: Snapshot
    decision: Decision
    remedies: Mapping[str, Remedy]
    binding: Binding | None
    one_more: Mapping[str, float]
    prices: Mapping[str, float]

    @property
    def proposal(self) -> Proposal | None:
        return self.decision if isinstance(self.decision, Proposal) else None

    @property
    def reason(self) -> str:
        """The reason to re-route or not."""
        return describe(self.decision.reason if isinstance(self.decision, Proposal) else self.decision)

    @property
    def most_for_its_price(self) -> str | None:
        """The class of which one more executor brings the most for its price. None: not all have one, or none brings any."""
        if len(self.one_more) < 2 or not self.one_more.keys() <= self.prices.keys():
            return None
        gains = {name: (times - 1) / self.prices[name] for name, times in self.one_more.items()}
        best = max(gains, key=lambda name: gains[name])
        return best if self.one_more[best] >= 1 + LEAST_GAIN else None

    def changes(self, stage: str) -> bool:
        """True if the proposal gives this stage another routing."""
        proposal, routing = self.proposal, self.snapshot.routing
        if proposal is None:
            return False
        if stage == SOURCE:
            return proposal.epoch.source_shares != routing.source_shares
        return proposal.epoch.routes[stage] != routing.routes[stage]


def plan(manifest: Path, stats: str | None, where: Where, json_file: Path | None) -> int:
    """Print the outlook, with `json_file` also write it; returns 0.

    `stats` is a file, - for the standard input, or an address; None: the running topology is asked.
    """
    topology = load(manifest)
    outlook = look_ahead(topology, Snapshot.from_stats(_answer(topology.name, stats, where)))
    print(as_text(outlook))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(as_json(outlook), indent=2, allow_nan=False) + "\n")
    return 0


def look_ahead(topology: Topology, snapshot: Snapshot) -> Outlook:
    """Return the controller's decision under the manifest's policies and settings. WrongUse: of another topology."""
    if snapshot.topology != topology.name:
        raise WrongUse(f"the stats are of topology {snapshot.topology!r}, the manifest is of {topology.name!r}")
    by_share = all(source.reads_descriptors for source in topology.sources)
    routing = _under_the_manifest(topology, snapshot.routing)
    controller = Controller(topology.rebalance, lambda: 0.0)
    controller.observe(snapshot.last_batch.observed(), after_others=True)
    seconds, free = snapshot.part_seconds, snapshot.free_bytes
    facts = TopologyFacts.of(routing.routes, snapshot.cpu, by_share, topology.operators, seconds, free_bytes=free)
    decision, remedies = controller.preview(routing, facts)
    bound = controller.binding(routing, facts)
    bound = None if bound is None else with_label(bound, snapshot.last_batch.reports)
    more = controller.one_more(routing, facts, snapshot.classes, _following_executors(topology))
    prices = {of.name: of.cost_per_hour for of in topology.executors if of.cost_per_hour is not None}
    return Outlook(replace(snapshot, routing=routing), decision, remedies, bound, more, prices)


def _following_executors(topology: Topology) -> set[str]:
    """The stages of which a new executor would get an instance."""
    names = {operator.name for operator in topology.operators if operator.follows_executors}
    return {SOURCE, *names, *(name + PARTIAL for name in names)}


def _under_the_manifest(topology: Topology, routing: Epoch) -> Epoch:
    """The running epoch with the manifest's policy wherever that policy continues from the present table."""
    routes = dict(routing.routes)
    for operator in topology.operators:
        running, wanted = routes.get(operator.name), operator.grouping
        on_a_table = running is not None and groupings.get(running.policy).kind == "table"
        split = operator.name + PARTIAL in routes
        if running is not None and on_a_table and not split and groupings.get(wanted.policy).kind == "table":
            routes[operator.name] = replace(running, policy=wanted.policy, options=wanted.options)
    return replace(routing, routes=routes)


def _answer(name: str, stats: str | None, where: Where) -> Mapping[str, Any]:
    if stats is None:
        return find_run(name, where)(-1)
    if stats.startswith(("http://", "https://")):
        return asking_url(stats)(-1)
    return _read(stats)


def _read(path: str) -> Mapping[str, Any]:
    try:
        stats = json.loads(sys.stdin.read() if path == STDIN else Path(path).read_text())
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WrongUse(f"{path} is not JSON ({error}); save what the driver serves at /stats") from error
    if not isinstance(stats, dict):
        raise WrongUse(f"{path} is no answer of /stats: it is JSON, but not an object")
    return stats


def as_text(outlook: Outlook) -> str:
    """A line on what would be done, then one on each stage."""
    snapshot, proposal = outlook.snapshot, outlook.proposal
    last = snapshot.last_batch
    lines = [f"{snapshot.topology}, epoch {snapshot.routing.number}, batch {last.number}, {formatting.duration(last.seconds)}"]
    if proposal is None:
        lines.append(f"nothing would be re-routed: {outlook.reason}")
    else:
        share = proposal.predicted_gain_seconds / last.seconds if last.seconds > 0 else 0.0
        lines.append(
            f"would be re-routed: saves {formatting.duration(proposal.predicted_gain_seconds)} of a batch "
            f"({formatting.percent(share)}), costs {formatting.duration(proposal.cost_seconds)} once"
        )
    if outlook.binding is not None:
        lines.append(describe(outlook.binding))
    if outlook.one_more:
        lines.append(_one_more(outlook))
    lines += ["", f"  {'stage':20} {'policy':12} {'imbalance':>15} {'gain':>8} {'keys':>7} {'bytes':>8} {'entries':>11}"]
    lines += [_line(stage) for stage in _stages(outlook)]
    return "\n".join(lines)


def _one_more(outlook: Outlook) -> str:
    def gain(name: str, times: float) -> str:
        price = outlook.prices.get(name)
        return f"of {name} {times:.2f} x" + ("" if price is None else f" for {price:g} an hour")

    gains = ", ".join(gain(name, times) for name, times in outlook.one_more.items())
    best = outlook.most_for_its_price
    return f"one more executor would bring, in rows/s: {gains}" + ("" if best is None else f"; most for its price: {best}")


def _line(stage: Mapping[str, Any]) -> str:
    after = stage["imbalance_after"]
    imbalance = formatting.percent(stage["imbalance_before"]) + ("" if after is None else f" -> {formatting.percent(after)}")
    entries = "" if stage["entries_after"] is None else f"{stage['entries_before']} -> {stage['entries_after']}"
    keys = "-" if stage["keys_moved"] is None else formatting.count(stage["keys_moved"])
    size = "-" if stage["bytes_moved"] is None else formatting.size(stage["bytes_moved"])
    verdict = "re-routed" if stage["rerouted"] else "stays"
    return (
        f"  {stage['name']:20} {stage['policy']:12} {imbalance:>15} {formatting.duration(stage['gain_seconds']):>8} "
        f"{keys:>7} {size:>8} {entries:>11}  {verdict}"
    )


def as_json(outlook: Outlook) -> dict[str, Any]:
    """The outlook as `--json` writes it (docs/guide/simulate.md)."""
    snapshot, proposal = outlook.snapshot, outlook.proposal
    return {
        "topology": snapshot.topology,
        "epoch": snapshot.routing.number,
        "batch": snapshot.last_batch.number,
        "batch_seconds": snapshot.last_batch.seconds,
        "reroute": proposal is not None,
        "reason": outlook.reason,
        "bound": None if outlook.binding is None else describe(outlook.binding),
        "one_more": {name: round(gain, 4) for name, gain in outlook.one_more.items()},
        "most_for_its_price": outlook.most_for_its_price,
        "predicted_gain_seconds": proposal.predicted_gain_seconds if proposal else 0.0,
        "cost_seconds": proposal.cost_seconds if proposal else 0.0,
        "stages": _stages(outlook),
    }


def _stages(outlook: Outlook) -> list[dict[str, Any]]:
    """The source and the operators in the order of the flow; figures of a plan are what the best plan would bring."""
    routes = outlook.snapshot.routing.routes
    remedies = {name: remedy for stage, remedy in outlook.remedies.items() for name in remedy.plans or (stage,)}
    return [_stage(name, outlook, remedies[name]) for name in (SOURCE, *routes) if name in remedies]


def _stage(name: str, outlook: Outlook, remedy: Remedy) -> dict[str, Any]:
    route = outlook.snapshot.routing.routes.get(name)
    new: Plan | None = remedy.plans.get(name)
    present = route.table if route else None
    return {
        "name": name,
        "policy": route.policy if route else "shares",
        "rerouted": outlook.changes(name),
        "reason": describe(remedy.reason),
        "imbalance_before": remedy.imbalance,
        "imbalance_after": new.imbalance_after if new else None,
        "gain_seconds": max(remedy.gain_seconds, 0.0),
        "keys_moved": round(new.moved_keys_estimate) if new else None,
        "bytes_moved": round(new.moved_bytes) if new else None,
        "entries_before": len(present.entry_hashes) if present else None,
        "entries_after": len(new.table.entry_hashes) if new else None,
        "shares": list(np.round(remedy.shares, 6)) if remedy.shares else None,
    }
