"""What a run is judged by: `report.json` and the few lines printed at its end. Definitions are in docs/report.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
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
    operator_names,
    throughput,
)


@dataclass(frozen=True)
class Check:
    """The run's results against an independent count of the same rows; `equal` is the verdict on the results."""

    rows_expected: int
    rows_seen: int
    lost: int
    duplicated: int
    equal: bool


def build_report(
    history: History, *, baseline: History | None = None, bound: float | None = None, check: Check | None = None
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
            {"name": name, "policy": history.policies.get(name, ""), "instances": _instances(history, name)}
            for name in operator_names(history)
        ],
        "reconfigurations": [asdict(change) for change in history.reconfigurations],
        "check": asdict(check) if check else None,
    }


def summary_text(report: Mapping[str, Any]) -> str:
    """A report in about ten lines for a terminal; lines about what was not measured are left out."""
    lines = [
        f"{report['topology']}: {report['batches']} batches, {report['rows']:,} rows in {wording.duration(report['seconds'])}",
        *_throughput_lines(report["throughput"], report["capacity"]),
        *_imbalance_lines(report["imbalance"]),
        *_reconfiguration_lines(report["reconfigurations"]),
        *_check_lines(report["check"]),
    ]
    return "\n".join(lines)


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


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


def _check_lines(check: Mapping[str, Any] | None) -> list[str]:
    if check is None:
        return []
    verdict = "equal" if check["equal"] else "NOT EQUAL"
    return [
        _line(
            "results against a plain count",
            f"{verdict}: {check['rows_seen']:,} of {check['rows_expected']:,} rows, "
            f"{check['lost']:,} lost, {check['duplicated']:,} counted twice",
        )
    ]


def _line(label: str, value: str) -> str:
    return f"  {label:<30} {value}"
