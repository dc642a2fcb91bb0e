"""What a run is judged by: `report.json` and the few lines printed at its end. Definitions are in docs/report.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from streamtopology.jobs import wording
from streamtopology.jobs.history import History
from streamtopology.jobs.measures import (
    WARMUP_BATCHES,
    after_warmup,
    imbalance_before_and_after,
    latest_capacities,
    locality_before_and_after,
    operator_names,
    throughput,
)

BASELINE, REROUTED = "baseline", "rerouted"
"""The two runs of a comparison, as `report.json` names them."""
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
    """What the results of one operator in one of the runs were found to be."""

    run: str
    operator: str
    check: Check


def build_report(
    history: History, *, baseline: History | None = None, bound: float | None = None, checks: Sequence[Checked] = ()
) -> dict[str, Any]:
    """The content of `report.json` for the re-routed run `history`.

    `bound` is the capacity bound in source rows/s; 0 means that no capacity is known yet. What was not measured (no
    baseline, no bound, no check) is None.
    """
    batches = history.batches
    rerouted = throughput(after_warmup(batches))
    plain = throughput(after_warmup(baseline.batches)) if baseline else None
    before, after = imbalance_before_and_after(history)
    return {
        "topology": history.topology,
        "batches": len(batches),
        "rows": sum(batch.rows for batch in batches),
        "seconds": sum(batch.seconds for batch in batches),
        "throughput": {
            "baseline": plain,
            "rerouted": rerouted,
            "rerouted_whole_run": throughput(batches),
            "ratio": _ratio(rerouted, plain),
            "unit": "rows/s",
            "warmup_batches": WARMUP_BATCHES,
        },
        "capacity": {"bound": bound or None, "reached": _ratio(rerouted, bound)},
        "imbalance": {"before": before, "after": after},
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
        "reconfigurations": [asdict(change) for change in history.reconfigurations],
        "check": asdict(_together([checked.check for checked in checks])) if checks else None,
        "checks": [{"run": checked.run, "operator": checked.operator, **asdict(checked.check)} for checked in checks],
    }


def summary_text(report: Mapping[str, Any]) -> str:
    """A report in about ten lines for a terminal; lines about what was not measured are left out."""
    lines = [
        f"{report['topology']}: {report['batches']} batches, {report['rows']:,} rows in {wording.duration(report['seconds'])}",
        *_throughput_lines(report["throughput"], report["capacity"]),
        *_imbalance_lines(report["imbalance"]),
        *_reconfiguration_lines(report["reconfigurations"]),
        *_check_lines(report["check"], report["checks"]),
    ]
    return "\n".join(lines)


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
    sent = [batch.messages[operator] for batch in history.batches if operator in batch.messages]
    return {"count": sum(each.count for each in sent), "bytes": sum(each.bytes for each in sent)}


def _instances(history: History, operator: str) -> list[dict[str, Any]]:
    """Rows and busy seconds of the operator's instances over the whole run, by instance, on their last slot."""
    rows: defaultdict[int, int] = defaultdict(int)
    busy: defaultdict[int, float] = defaultdict(float)
    slot_of: dict[int, int] = {}
    for batch in history.batches:
        for report in batch.reports:
            if report.operator == operator:
                rows[report.instance] += report.rows
                busy[report.instance] += report.busy_seconds
                slot_of[report.instance] = report.slot
    slots = {slot.index: slot for slot in history.slots}
    capacities = latest_capacities(history)
    return [
        {
            "executor": slots[slot_of[instance]].executor,
            "class": slots[slot_of[instance]].class_name,
            "rows": rows[instance],
            "busy_seconds": busy[instance],
            "capacity": capacities.get((operator, instance)),
        }
        for instance in sorted(slot_of)
    ]


def _throughput_lines(figures: Mapping[str, Any], capacity: Mapping[str, Any]) -> list[str]:
    lines = []
    if figures["baseline"] is not None:
        lines.append(_line("throughput, fixed routing", wording.rate(figures["baseline"])))
    rerouted = wording.rate(figures["rerouted"])
    if figures["ratio"] is not None:
        rerouted += f" = {figures['ratio']:.2f}x"
    lines.append(_line("throughput, re-routed live", rerouted))
    if capacity["reached"] is not None:
        share = f"{wording.percent(capacity['reached'])} of {wording.rate(capacity['bound'])}"
        lines.append(_line("share of the capacity bound", share))
    return lines


def _imbalance_lines(figures: Mapping[str, Any]) -> list[str]:
    if figures["before"] is None and figures["after"] is None:
        return []
    return [_line("imbalance", f"{wording.percent(figures['before'])} -> {wording.percent(figures['after'])}")]


def _reconfiguration_lines(changes: list[Mapping[str, Any]]) -> list[str]:
    if not changes:
        return [_line("re-routings", "none")]
    keys = sum(change["keys_moved"] for change in changes)
    moved_bytes = sum(change["bytes_moved"] for change in changes)
    waits = [change["published_to_active_seconds"] for change in changes]
    return [
        _line("re-routings", f"{len(changes)}, moved {keys:,} keys, {wording.size(moved_bytes)}"),
        _line(
            "time to reconfigure",
            f"median {wording.duration(median(waits))}, longest {wording.duration(max(waits))}; nothing restarted",
        ),
    ]


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
