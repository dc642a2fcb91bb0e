"""`streamtopology plan`: what would be re-routed now, why and at what cost, by what a running driver serves at `/stats`.

It asks the controller that the driver itself asks, on the last batch alone, and changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamtopology.jobs import wording
from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.stats import STATS_VERSION
from streamtopology.routing import groupings
from streamtopology.routing.capacity import SOURCE
from streamtopology.routing.controller import Controller, Decision, Proposal, TopologyFacts
from streamtopology.routing.epoch import Epoch, EpochFormatError
from streamtopology.routing.planners import Plan
from streamtopology.routing.report import LoadReport, ReportFormatError, SourceReport
from streamtopology.routing.stages import Remedy
from streamtopology.routing.topology import Topology, load

STDIN = Path("-")


@dataclass(frozen=True)
class Snapshot:
    """A run as `/stats` told it: its routing and what the last batch did under it. `cpu`: cores of each slot."""

    topology: str
    routing: Epoch
    batch: int
    seconds: float
    cpu: tuple[float, ...]
    reports: tuple[LoadReport, ...]
    source_reports: tuple[SourceReport, ...]

    @staticmethod
    def from_stats(stats: Mapping[str, Any]) -> Snapshot:
        """WrongUse says what is missing, damaged or of another version."""
        version = stats.get("version")
        if version != STATS_VERSION:
            raise WrongUse(f"these stats are of version {version!r}, this program reads {STATS_VERSION}")
        try:
            last, routing = stats["last_batch"], stats["routing"]
            if last is None or routing is None:
                raise WrongUse(f"topology {stats['topology']!r} has not committed a batch yet: ask again later")
            epoch = Epoch.from_wire(routing)
            if epoch.number != stats["epoch"]:
                raise WrongUse(f"epoch {epoch.number} has just begun and no batch under it is committed: ask again later")
            return Snapshot(
                topology=str(stats["topology"]),
                routing=epoch,
                batch=int(stats["batch"]),
                seconds=float(last["seconds"]),
                cpu=tuple(float(slot["cpu"]) for slot in stats["slots"]),
                reports=tuple(LoadReport.from_wire(report) for report in last["reports"]),
                source_reports=tuple(SourceReport.from_wire(report) for report in last["source_reports"]),
            )
        except KeyError as missing:
            raise WrongUse(f"these stats lack {missing}: save what the driver serves at /stats, whole") from missing
        except (EpochFormatError, ReportFormatError) as damage:
            raise WrongUse(f"these stats cannot be read: {damage}") from damage


@dataclass(frozen=True)
class Outlook:
    """What the controller would do and what it knows of each stage (the source and the operators)."""

    snapshot: Snapshot
    decision: Decision
    remedies: Mapping[str, Remedy]

    @property
    def proposal(self) -> Proposal | None:
        return self.decision if isinstance(self.decision, Proposal) else None

    def changes(self, stage: str) -> bool:
        """Whether the proposal gives this stage another routing."""
        proposal, routing = self.proposal, self.snapshot.routing
        if proposal is None:
            return False
        if stage == SOURCE:
            return proposal.source_shares != routing.source_shares
        return proposal.epoch.routes[stage] != routing.routes[stage]


def plan(manifest: Path, stats: Path, json_file: Path | None) -> int:
    """Print the outlook, with `json_file` also write it; returns 0. `stats` is a file, - is the standard input."""
    topology = load(manifest)
    outlook = look_ahead(topology, Snapshot.from_stats(_read(stats)))
    print(as_text(outlook))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(as_json(outlook), indent=2, allow_nan=False) + "\n")
    return 0


def look_ahead(topology: Topology, snapshot: Snapshot) -> Outlook:
    """What the controller would do now, under the manifest's policies and settings. WrongUse: of another topology."""
    if snapshot.topology != topology.name:
        raise WrongUse(f"the stats are of topology {snapshot.topology!r}, the manifest is of {topology.name!r}")
    by_share = all(source.reads_descriptors for source in topology.sources)
    routing = _under_the_manifest(topology, snapshot.routing)
    controller = Controller(topology.rebalance, lambda: 0.0)
    for _ in range(2):  # the first batch of an epoch is not judged by, and this may not be the first
        controller.observe(
            snapshot.batch, snapshot.seconds, snapshot.reports, snapshot.source_reports, snapshot.routing.number
        )  # fmt: skip
    decision, remedies = controller.consider(routing, TopologyFacts.of(routing.routes, snapshot.cpu, by_share))
    return Outlook(replace(snapshot, routing=routing), decision, remedies)


def _under_the_manifest(topology: Topology, routing: Epoch) -> Epoch:
    """The running epoch with the manifest's policy wherever that goes on from the present table: what it would bring."""
    routes = dict(routing.routes)
    for operator in topology.operators:
        running, wanted = routes.get(operator.name), operator.grouping
        on_a_table = running is not None and groupings.get(running.policy).kind == "table"
        split = f"{operator.name}.partial" in routes
        if running is not None and on_a_table and not split and groupings.get(wanted.policy).kind == "table":
            routes[operator.name] = replace(running, policy=wanted.policy, options=wanted.options)
    return replace(routing, routes=routes)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        stats = json.loads(sys.stdin.read() if path == STDIN else path.read_text())
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
    lines = [
        f"{snapshot.topology}, epoch {snapshot.routing.number}, batch {snapshot.batch}, {wording.duration(snapshot.seconds)}"
    ]
    if proposal is None:
        lines.append(f"nothing would be re-routed: {outlook.decision.reason}")
    else:
        share = proposal.predicted_gain_seconds / snapshot.seconds if snapshot.seconds > 0 else 0.0
        lines.append(
            f"would be re-routed: saves {wording.duration(proposal.predicted_gain_seconds)} of a batch "
            f"({wording.percent(share)}), costs {wording.duration(proposal.cost_seconds)} once"
        )
    lines += ["", f"  {'stage':20} {'policy':12} {'imbalance':>15} {'gain':>8} {'keys':>7} {'bytes':>8} {'entries':>11}"]
    lines += [_line(stage) for stage in _stages(outlook)]
    return "\n".join(lines)


def _line(stage: Mapping[str, Any]) -> str:
    after = stage["imbalance_after"]
    imbalance = wording.percent(stage["imbalance_before"]) + ("" if after is None else f" -> {wording.percent(after)}")
    entries = "" if stage["entries_after"] is None else f"{stage['entries_before']} -> {stage['entries_after']}"
    keys = "-" if stage["keys_moved"] is None else wording.count(stage["keys_moved"])
    size = "-" if stage["bytes_moved"] is None else wording.size(stage["bytes_moved"])
    verdict = "re-routed" if stage["rerouted"] else "stays"
    return (
        f"  {stage['name']:20} {stage['policy']:12} {imbalance:>15} {wording.duration(stage['gain_seconds']):>8} "
        f"{keys:>7} {size:>8} {entries:>11}  {verdict}"
    )


def as_json(outlook: Outlook) -> dict[str, Any]:
    """The outlook as `--json` writes it (docs/simulate.md)."""
    snapshot, proposal = outlook.snapshot, outlook.proposal
    return {
        "topology": snapshot.topology,
        "epoch": snapshot.routing.number,
        "batch": snapshot.batch,
        "batch_seconds": snapshot.seconds,
        "reroute": proposal is not None,
        "reason": outlook.decision.reason,
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
        "reason": remedy.reason,
        "imbalance_before": remedy.imbalance,
        "imbalance_after": new.imbalance_after if new else None,
        "gain_seconds": max(remedy.gain_seconds, 0.0),
        "keys_moved": round(new.moved_keys_estimate) if new else None,
        "bytes_moved": round(new.moved_bytes) if new else None,
        "entries_before": len(present.entry_hashes) if present else None,
        "entries_after": len(new.table.entry_hashes) if new else None,
        "shares": list(np.round(remedy.shares, 6)) if remedy.shares else None,
    }
