"""The summary of a run: `report.json` and the few lines printed at its end. Definitions are in docs/reference/report.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any

from streamtopology.contract import formatting
from streamtopology.contract.reasons import SOURCE
from streamtopology.contract.stats import Messages
from streamtopology.contract.wire_values import to_wire
from streamtopology.jobs.observe.figures import (
    after_warmup,
    heaviest_operator,
    imbalance_before_and_after,
    locality_before_and_after,
    operator_names,
    run_throughput,
    speed_change,
    waited_share,
    warm_throughput,
    working_seconds,
)
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import WARMUP_BATCHES
from streamtopology.jobs.view.formatting import imbalance_change, shown_name

# The two runs of a comparison, as `report.json` names them.
BASELINE, REROUTED = "baseline", "rerouted"
# The share of a batch below which the work of its rows does not decide how long it takes.
_MOSTLY_FIXED = 0.5
_NEARLY = 0.9
_MUCH_WAITING = 0.2
_SAME_IMBALANCE = 0.05
_EPOCHS_SHOWN = 10
_EPOCH = itemgetter("epoch")
_RUNS = {BASELINE: "fixed routing", REROUTED: "re-routed live"}


@dataclass(frozen=True)
class Check:
    """Results against an independent count of the same rows; `equal` is the verdict on the results."""

    rows_expected: int
    rows_seen: int
    lost: int
    duplicated: int
    equal: bool


@dataclass(frozen=True)
class Checked:
    """The verdict on the results of one operator in one of the runs."""

    run: str
    operator: str
    check: Check


def build_report(
    history: History,
    *,
    baseline: History | None = None,
    bound: float | None = None,
    offered: float | None = None,
    checks: Sequence[Checked] = (),
) -> dict[str, Any]:
    """The content of `report.json` for the re-routed run `history`.

    `bound` is the capacity bound in source rows/s; 0 means that no capacity is known yet. `offered`: the rows/s that the
    sources make by the clock, if they do. What was not measured (no baseline, no bound, no check) is None.
    """
    totals, warm = history.totals, after_warmup(history)
    rerouted = warm_throughput(history)
    plain = warm_throughput(baseline) if baseline else None
    before, after = imbalance_before_and_after(history)
    return {
        "topology": history.topology,
        "batches": totals.batches,
        "rows": totals.rows,
        "seconds": totals.seconds,
        "throughput": {
            "baseline": plain,
            "rerouted": rerouted,
            "rerouted_whole_run": run_throughput(history),
            "ratio": _ratio(rerouted, plain),
            "speed": speed_change(history, baseline),
            "unit": "rows/s",
            "warmup_batches": WARMUP_BATCHES,
        },
        "capacity": {"bound": bound or None, "reached": _ratio(rerouted, bound), "offered": offered},
        "waited": waited_share(history, baseline),
        "batch": {
            "seconds": _median([batch.seconds for batch in warm]),
            "working_seconds": _median([working_seconds(batch) for batch in warm]),
        },
        "imbalance": {"operator": heaviest_operator(history), "before": before, "after": after},
        "operators": [
            {
                "name": name,
                "policy": history.policies.get(name, ""),
                "messages": _messages(history, name),
                "instances": _instances(history, name),
            }
            for name in operator_names(history)
        ],
        "locality": _locality(history),
        "rerouting_count": history.rerouting_count,
        "reconfigurations": [to_wire(change) for change in history.reconfigurations],
        "check": asdict(_together([checked.check for checked in checks])) if checks else None,
        "checks": [{"run": checked.run, "operator": checked.operator, **asdict(checked.check)} for checked in checks],
    }


def summary_text(report: Mapping[str, Any], *, rerouted: bool) -> str:
    """A report in about ten lines for a terminal; lines about what was not measured are left out.

    `rerouted`: keys moved, or shares of rows changed (`figures.was_rerouted`).
    """
    lines = [
        f"{report['topology']}: figures of {formatting.counted(report['batches'], 'batch', 'batches')} with "
        f"{formatting.counted(report['rows'], 'row', 'rows')}, "
        f"{formatting.duration(report['seconds'])} without the waiting between them",
        *_throughput_lines(report["throughput"], report["batches"], rerouted),
        *_capacity_lines(report),
        *_imbalance_lines(report["imbalance"], rerouted),
        *_reconfiguration_lines(report["reconfigurations"], report["rerouting_count"]),
        *_check_lines(report["check"], report["checks"]),
    ]
    return "\n".join(lines)


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _locality(history: History) -> list[dict[str, Any]]:
    """For each pair of consecutive operators the median share of rows that stayed, before re-routing and at the end."""
    return [
        {"operator": operator, "to": consumer, "before": before, "after": after}
        for (operator, consumer), (before, after) in locality_before_and_after(history).items()
    ]


def _messages(history: History, operator: str) -> dict[str, int]:
    """Reports to the operator's choosers over the whole run; none where these do not learn."""
    sent = history.totals.messages.get(operator, Messages(operator))
    return {"count": sent.count, "bytes": sent.bytes}


def _instances(history: History, operator: str) -> list[dict[str, Any]]:
    """Rows and busy seconds of the operator's instances over the whole run, by instance, on their last slot."""
    slots, totals = {slot.index: slot for slot in history.slots}, history.totals
    return [
        {
            "executor": slots[total.slot].executor,
            "class": slots[total.slot].class_name,
            "rows": total.rows,
            "busy_seconds": total.busy_seconds,
            "capacity": totals.capacities.get((name, instance)),
        }
        for (name, instance), total in sorted(totals.instances.items())
        if name == operator
    ]


def _throughput_lines(figures: Mapping[str, Any], batches: int, rerouted: bool) -> list[str]:
    lines = []
    left_out = figures["warmup_batches"]
    if figures["baseline"] is not None:
        lines.append(_line("throughput, fixed routing", formatting.rate(figures["baseline"])))
    rate = formatting.rate(figures["rerouted"])
    if figures["ratio"] is not None:
        rate += f" = {figures['ratio']:.2f}x"
    lines.append(_line("throughput, re-routed live" if rerouted else "throughput", rate))
    if batches <= left_out:
        return lines
    whole = formatting.rate(figures["rerouted_whole_run"])
    return [*lines, f"    without the first {left_out} batches, in which code is compiled; with them {whole}"]


def _capacity_lines(report: Mapping[str, Any]) -> list[str]:
    """The share of the bound, and what limits it if not the executors: the sources, or the fixed cost of a batch."""
    capacity, batch = report["capacity"], report["batch"]
    if capacity["reached"] is None:
        return []
    share = f"{formatting.percent(capacity['reached'])} of {formatting.rate(capacity['bound'])}, by the capacities at the end"
    lines = [_line("share of the capacity bound", share)]
    if limit := _limit_of_sources(report):
        return [*lines, f"    {limit}"]
    working, whole = batch["working_seconds"], batch["seconds"]
    if working is None or not whole or working > _MOSTLY_FIXED * whole:
        return lines
    return [
        *lines,
        f"    fixed cost dominates: the rows take {formatting.duration(working)} of a batch of {formatting.duration(whole)}, "
        "and routing can shorten only these.",
        "    Larger batches use more of the bound: raise a source's maxFilesPerTrigger or maxOffsetsPerTrigger, or "
        "trigger.interval or latency, whichever limits these.",
    ]


def _limit_of_sources(report: Mapping[str, Any]) -> str:
    """That the sources gave no more rows; "" if they may have."""
    offered, reached, waited = report["capacity"]["offered"], report["throughput"]["rerouted"], report["waited"]
    if offered and reached and reached >= _NEARLY * offered:
        return f"the sources make {formatting.rate(offered)}, and all of them were processed: more cannot be reached"
    if waited is not None and waited >= _MUCH_WAITING:
        why = "no rows, trigger.interval was not over, or Spark was slow to plan the next"
        return f"in {formatting.percent(waited)} of the time no batch ran ({why}): routing cannot change that"
    return ""


def _imbalance_lines(figures: Mapping[str, Any], rerouted: bool) -> list[str]:
    before, after = figures["before"], figures["after"]
    if before is None and after is None:
        return []
    label = f"imbalance of {shown_name(figures['operator'])}"
    if rerouted:
        return [_line(label, imbalance_change(before, after))]
    if before is None or after is None or abs(after - before) < _SAME_IMBALANCE:
        return [_line(label, formatting.percent(after if before is None else before))]
    return [_line(label, f"{formatting.percent(before)} over the run, {formatting.percent(after)} in its last third")]


def _reconfiguration_lines(changes: list[Mapping[str, Any]], in_all: int) -> list[str]:
    if not changes:
        return [_line("re-routings", "none")]
    keys = sum(change["keys_moved"] for change in changes)
    moved_bytes = sum(change["bytes_moved"] for change in changes)
    by_epoch = [list(same) for _, same in groupby(sorted(changes, key=_EPOCH), _EPOCH)]
    epochs = formatting.counted(len(by_epoch), "epoch", "epochs")
    of_all = f"{in_all:,} in {epochs}, " if in_all == len(changes) else f"{in_all:,}; the newest {len(changes):,} of them "
    waits = [change["published_to_active_seconds"] for change in changes]
    return [
        _line("re-routings", f"{of_all}moved {keys:,} keys, {formatting.size(moved_bytes)}"),
        *map(_of_epoch, by_epoch[-_EPOCHS_SHOWN:]),
        _line(
            "time to reconfigure",
            f"median {formatting.duration(median(waits))}, longest {formatting.duration(max(waits))}; nothing restarted",
        ),
    ]


def _of_epoch(changes: Sequence[Mapping[str, Any]]) -> str:
    """A line on what an epoch did to each stage, and why."""
    first = changes[0]
    return f"    epoch {first['epoch']} at batch {first['batch']}: {', '.join(map(_moved, changes))} ({first['reason']})"


def _moved(change: Mapping[str, Any]) -> str:
    if change["operator"] == SOURCE:
        return "sources are read in other shares"
    keys = change["keys_moved"]
    moved = f"{formatting.count(keys)} keys, {formatting.size(change['bytes_moved'])}" if keys else "no keys"
    return f"{shown_name(change['operator'])} moved {moved}"


def _together(checks: Sequence[Check]) -> Check:
    """All of them as one: rows add up, and one that is not equal makes the whole unequal."""
    return Check(
        rows_expected=sum(check.rows_expected for check in checks),
        rows_seen=sum(check.rows_seen for check in checks),
        lost=sum(check.lost for check in checks),
        duplicated=sum(check.duplicated for check in checks),
        equal=all(check.equal for check in checks),
    )


def _check_lines(check: Mapping[str, Any] | None, checks: Sequence[Mapping[str, Any]]) -> list[str]:
    if check is None:
        return []
    return [
        _line("results against a plain count", _verdict(check)),
        *(_line(f"  {_RUNS[each['run']]}, {each['operator']}", _verdict(each)) for each in checks),
    ]


def _verdict(check: Mapping[str, Any]) -> str:
    return (
        f"{'equal' if check['equal'] else 'NOT EQUAL'}: {check['rows_seen']:,} of {check['rows_expected']:,} rows, "
        f"{check['lost']:,} lost, {check['duplicated']:,} counted twice"
    )


def _line(label: str, value: str) -> str:
    return f"  {label:<30} {value}"
