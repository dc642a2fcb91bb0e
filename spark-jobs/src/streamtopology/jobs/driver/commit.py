"""From the results of an attempt to what its commit record names: state files and staged outputs."""

# pyarrow has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, CommitRecord, StateRef
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, letters
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Results
from streamtopology.routing.epochs.epoch import Epoch


def state_after(
    last: CommitRecord | None, results: Results, epoch: Epoch, stateful: Collection[str]
) -> dict[str, dict[int, StateRef]]:
    """Return each instance's chain of files: the chain of the last commit, and this batch's delta if there is one.

    Nodes that are not `stateful` are left out: their state is forgotten. So are instances that `epoch` does not have: others
    own their state now.
    """
    state = {node: dict(instances) for node, instances in last.state.items() if node in stateful} if last else {}
    for node in state:
        active = epoch.routes[node].instances
        is_partial = node.endswith(PARTIAL)
        state[node] = {i: held for i, held in state[node].items() if i in active or (is_partial and held.keys)}
    for result in results.instances:
        report = result.report
        before = state.setdefault(report.operator, {}).get(report.instance, StateRef(None, (), 0, 0))
        deltas = (*before.deltas, *result.adopted, *(() if result.delta is None else (result.delta,)))
        state[report.operator][report.instance] = replace(
            before, deltas=deltas, keys=report.state_keys, bytes=report.state_bytes
        )
    return state


def closed_until(commit: CommitRecord, attempts: Sequence[BatchRecord]) -> float | None:
    """Return the event time (epoch seconds) up to which windows are closed after `commit`; `attempts`: those at its batch."""
    if commit.watermark_after == END_OF_TIME:
        return END_OF_TIME
    return next((record.watermark for record in attempts if record.attempt == commit.attempt), commit.watermark_after)


def staged_outputs(results: Results) -> dict[str, list[str]]:
    """Return the staged files by sink, in the order of instances."""
    outputs: dict[str, list[str]] = {}
    for result in results.instances:
        for sink, paths in result.outputs.items():
            outputs.setdefault(sink, []).extend(paths)
        if result.dead_letters is not None:
            outputs.setdefault(DEAD_LETTERS, []).append(result.dead_letters)
    return outputs


def skipped_texts(batch: int, results: Results) -> list[str]:
    """Return a sentence for each source whose rows were deleted before the batch could read them."""
    return [
        f"source {source!r}: {rows:,} rows were deleted before batch {batch} read them; they are skipped "
        "(failOnDataLoss: false)"
        for source, rows in results.skipped_rows.items()
    ]


def stage_bad_rows(checkpoint: Checkpoint, attempt: Attempt, rows: Sequence[Mapping[str, str]]) -> str:
    """Stage rows that sources set aside as dead letters; return the file."""
    return checkpoint.stage_output("sources.dead", 0, attempt.number, attempt.attempt, [letters(rows)])
