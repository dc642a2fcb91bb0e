"""The manifest of a query that was cut: pure values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow
from streamtopology.topology import API_VERSION, KIND, format_duration

SINK = "result"
# Spark counts every time, however far ahead of the clock; a topology at most those of a year. Nor is any stream idle on Spark.
_A_YEAR = "8784h"
_LONGEST_NAME = 40


@dataclass
class WriterSettings:
    """What a script has asked of its DataStreamWriter before `start`.

    trigger: of processingTime the seconds. function: of `foreachBatch`. row_writer: of `foreach`. table: of `toTable`.
    """

    output_mode: str = "append"
    format: str | None = None
    options: dict[str, str] = field(default_factory=dict[str, str])
    name: str | None = None
    trigger: dict[str, Any] = field(default_factory=dict[str, Any])
    partition_by: tuple[str, ...] = ()
    function: Any = None
    row_writer: Any = None
    table: str | None = None

    def option(self, name: str) -> str | None:
        """The value of an option, whose name has no case in Spark."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)


def manifest_of(
    part: Part, asked: WriterSettings, name: str, checkpoint: str, executors: Sequence[Mapping[str, Any]], run: str, policy: str
) -> dict[str, Any]:
    """The manifest of a query. run: the module whose functions give its inputs by name, and whose `result` takes batches.

    Raises NotCut.
    """
    operators: list[dict[str, Any]] = []
    inputs = [_input(given, part.steps[0].key) for given in part.inputs]
    for step in part.steps:
        operator: dict[str, Any] = {"name": name_of(step.name), "inputs": inputs, "run": step.run, "with": dict(step.options)}
        if step.key:
            operator["grouping"] = {"policy": policy, "key": list(step.key)}
        operators.append(operator)
        inputs = [operator["name"]]
    spec = {
        "sources": [_source(given, run) for given in part.inputs],
        "operators": operators,
        "sinks": [
            {
                "name": SINK,
                "input": operators[-1]["name"],
                "format": "function",
                "options": {"run": f"{run}:{SINK}", "frame": "arrow", "empty": "true"},
            }
        ],
        "executors": [dict(executor) for executor in executors],
        "trigger": _trigger(asked.trigger),
        "checkpoint": checkpoint,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def _input(given: RowsBelow, key: tuple[str, ...]) -> str | dict[str, Any]:
    return given.name if given.key in ((), key) else {"from": given.name, "key": list(given.key)}


def _source(given: RowsBelow, run: str) -> dict[str, Any]:
    source: dict[str, Any] = {"name": given.name, "format": "dataframe", "options": {"run": f"{run}:{given.name}"}}
    if given.watermark is not None:
        source["watermark"] = {
            "column": given.watermark.column,
            "delay": format_duration(given.watermark.delay_seconds),
            "maxAhead": _A_YEAR,
            "idleTimeout": _A_YEAR,
        }
    return source


def policy_of(part: Part) -> str:
    """The policy under which the operators emit what Spark does, batch by batch.

    Under `auto` an aggregate without windows may have keys that are divided. Their newest rows reach the result with the next
    batch.
    """
    return "mixed" if part.steps[-1].run == "aggregate" else "auto"


def _trigger(asked: Mapping[str, Any]) -> dict[str, Any]:
    if asked.get("availableNow") or asked.get("once"):
        return {"availableNow": True}
    if asked.get("continuous") or asked.get("realTime"):
        raise NotCut("its trigger is not one of batches: processingTime, availableNow or once")
    return {"interval": format_duration(asked.get("processingTime", 0.0))}


def name_of(text: str) -> str:
    """A topology's name from that of a query or a script."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name if name[:1].isalpha() else f"job-{name}".strip("-")


def free_name(text: str, taken: Collection[str]) -> str:
    """A topology's name from that of a query or a script, of which there may be several."""
    name = name_of(text)
    if name not in taken:
        return name
    return next(f"{name}-{number}" for number in range(2, len(taken) + 3) if f"{name}-{number}" not in taken)
