"""Windows that an operator has forgotten stay closed when it waits longer between two runs, or the watermark is set back.

It waits longer with a greater `allowedLateness`, or where its tuples come later from the operators before it. The state of
such windows is gone: a late row would open one again, and what is emitted for it would count the late rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from streamtopology.jobs.operators.options import seconds_of
from streamtopology.jobs.plan.behind_watermark import behind_watermark
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.topology import Topology

_OPTION = "allowedLateness"
_WITH_WINDOWS = ("window-aggregate", "window-join")


def forgotten_until(before: ExecutionPlan, topology: Topology, base_dir: Path, closed_until: float | None) -> dict[str, float]:
    """Return, by operator of `topology`, the event time (epoch seconds) up to which it forgot its windows under `before`.

    Only where `topology`, now or in a previous run, allows rows to be later than that. `closed_until`: the watermark by which
    windows were closed last.
    """
    former, found = {operator.name: operator for operator in before.topology.operators}, dict[str, float]()
    waited, waits = _waits(before.topology, before.base_dir), _waits(topology, base_dir)
    for operator in topology.operators:
        bounds = [before.forgotten_until[operator.name]] if operator.name in before.forgotten_until else []
        same = operator.name in former and former[operator.name].run == operator.run
        if closed_until is not None and same and waits[operator.name] > waited[operator.name]:
            bounds.append(closed_until - waited[operator.name])
        if bounds:
            found[operator.name] = max(bounds)
    return found


def forgotten_before(plan: ExecutionPlan, closed_until: float | None, watermark: float) -> dict[str, float]:
    """Return the same by operator of `plan` as the watermark is set to `watermark`, after which all windows are open again.

    Only where the operator's lateness would let in rows of a window that was forgotten as of `closed_until`, None: of none.
    """
    found, waits = dict[str, float](), _waits(plan.topology, plan.base_dir)
    for operator in plan.topology.operators:
        bounds = [plan.forgotten_until[operator.name]] if operator.name in plan.forgotten_until else []
        if closed_until is None or operator.run not in _WITH_WINDOWS:
            continue
        bound = min(max([*bounds, closed_until - waits[operator.name]]), watermark)
        if bound > min(closed_until, watermark) - waits[operator.name]:
            found[operator.name] = bound
    return found


def notices_of_lateness(before: ExecutionPlan, forgotten: Mapping[str, float]) -> Iterator[str]:
    """Return a sentence for each operator whose lateness has been raised since `before`."""
    for operator, bound in forgotten.items():
        if before.forgotten_until.get(operator) != bound:
            yield (
                f"operator {operator!r} waits longer for late rows, by {_OPTION} or by the operators before it. Windows that "
                "it had forgotten by then stay closed, and rows of them are late"
            )


def _waits(topology: Topology, base_dir: Path) -> dict[str, float]:
    """The seconds after the watermark, by operator, for which it takes tuples."""
    behind = behind_watermark(topology, base_dir).seconds
    return {
        operator.name: behind[operator.name] + seconds_of(operator.options.get(_OPTION, 0), _OPTION)
        for operator in topology.operators
    }
