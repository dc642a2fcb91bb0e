"""`streamtopology try`: the rows that each sink would get, and those that fail, for people."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from streamtopology.contract.formatting import counted
from streamtopology.jobs.connectors.sinks.console import print_table
from streamtopology.jobs.errors import TopologyFailed, shown_reason, shown_row
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.runtime.trial import Tried, part_to_try, try_rows
from streamtopology.topology import Topology

_SHOWN = 10


def show(manifest: Path, most: int, out: TextIO) -> bool:
    """Try the manifest and print what comes of it; False if rows fail that would end a run. Raises StreamTopologyError."""
    findings = examine(manifest)
    findings = replace(findings, doubts=tuple(each for each in findings.doubts if not each.path.startswith("spec.executors")))
    if findings.doubts:
        print(findings.warnings(), file=sys.stderr)
    whole = findings.refuse_problems()
    topology, untried = part_to_try(whole)
    for sentence in untried:
        print(f"not tried: {sentence}", file=out)
    if not topology.operators:
        command = f"streamtopology run {shlex.quote(str(manifest))} --batches 1"
        raise TopologyFailed(f"{manifest}: no source can be read here, so nothing is tried; with Spark: {command}")
    tried = try_rows(topology, manifest.resolve().parent, most)
    for name, rows in tried.read.items():
        print(f"source {name!r}: {_read(rows, most, tried.left_out.get(name, 0))}", file=out)
    late = {operator.late for operator in topology.operators}
    for sink in topology.sinks:
        table, which = tried.sinks[sink.name], "late rows" if sink.name in late else "rows"
        title = f"sink {sink.name!r}, {which} of {sink.input!r}: {counted(table.num_rows, 'row', 'rows')}"
        print_table(title, table, _SHOWN, out)
    for failure in tried.failed.to_pylist()[:_SHOWN]:
        print(_failure(failure), file=out)
    return _verdict(whole, topology, tried, out)


def _read(rows: int, most: int, left_out: int) -> str:
    if not rows:
        return "no rows"
    which = f"the first {counted(rows, 'row', 'rows')}" if rows == most else f"{counted(rows, 'row', 'rows')}, all that it has"
    return f"{which}; its where leaves out {'all' if left_out == rows else left_out} of them" if left_out else which


def _failure(letter: dict[str, Any]) -> str:
    where = f"source {letter['input']!r}" if letter["operator"] is None else f"operator {letter['operator']!r}"
    return f"{where} failed on the row {shown_row(json.loads(letter['tuple']))}: {shown_reason(letter['reason'])}"


def _verdict(whole: Topology, topology: Topology, tried: Tried, out: TextIO) -> bool:
    """Print how it ended: whether rows have failed, windows were closed. True if a run would not end at these rows."""
    if any(source.watermark for source in topology.sources):
        print("the input ended here, so open windows closed; a run closes them when the watermark has passed", file=out)
    failed = tried.failed.num_rows
    if not failed:
        return True
    rows = counted(failed, "row", "rows")
    if whole.on_bad_tuple == "deadLetter":
        print(f"{rows} failed: a run sets them aside, as onBadTuple: deadLetter says", file=out)
        return True
    print(f"{rows} failed: a run would end at the first; what sinks get is without them", file=out)
    return False
