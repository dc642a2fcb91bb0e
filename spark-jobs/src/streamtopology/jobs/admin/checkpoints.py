"""`streamtopology state clone | rollback | check`: whole checkpoints; all but `clone` while their topology does not run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord, open_store
from streamtopology.jobs.checkpoint.copying import copy_checkpoint
from streamtopology.jobs.checkpoint.publications import Exported
from streamtopology.jobs.connectors.sinks.dead_letters import file_of
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.state import StateFileError, StateSchema
from streamtopology.topology import combinable, groupings, poured

# The state schemas of the manifest's operators, by node.
Schemas = Mapping[str, StateSchema]

NONE_KNOWN: Schemas = {}


@dataclass(frozen=True)
class Damage:
    """A file that the newest commit names and that cannot be used: why, and the newest batch to go back to, if any."""

    path: str
    why: str
    usable: int | None


def clone(source: str, target: str, topology: str | None = None) -> str:
    """Copy the checkpoint at `source`, as its newest commit has it, to `target`, for `topology` (default: the same).

    The copy is a checkpoint of its own: sinks take its batches for others than the original's. One that was cut short is
    continued. Raises CheckpointError.
    """
    original = Checkpoint.attach(source)
    user = topology or original.topology
    made = copy_checkpoint(original, open_store(target), user)
    return f"{target}: {original.topology!r} as of batch {made.batch}, for topology {user!r}"


def rollback(uri: str, batch: int) -> str:
    """Make the commit of `batch` the newest one: later batches are read again, as they were recorded.

    Sinks keep what they were given of them. Their dead letters are deleted, as their tuples are processed again, and the notes
    on their publication: a batch that was exported for a sink is published to it. Raises CheckpointError.
    """
    checkpoint = Checkpoint.attach(uri)
    kept = checkpoint.commits()
    if batch not in kept:
        raise CheckpointError(f"batch {batch} is not kept in {uri}; kept are {_listed(kept)}")
    commit = checkpoint.read_commit(batch)
    damaged = damage(checkpoint, commit)
    if damaged:
        raise CheckpointError(f"batch {batch} cannot be gone back to: {damaged[0].path} {damaged[0].why}")
    later = [number for number in kept if number > batch]
    if not later:
        checkpoint.publications.forget_after(batch)  # what a rollback that died has left
        return f"{uri} is at batch {batch} already"
    dropped: list[CommitRecord] = []
    for number in later:
        with suppress(CheckpointError):  # a damaged record may be the reason for going back
            dropped.append(checkpoint.read_commit(number))
    if len(dropped) < len(later) or any(record.spark_batch != commit.spark_batch for record in dropped):
        _refuse_unless_replayed(checkpoint, commit)
    rows = sum(record.rows_in for record in dropped)
    for lease in checkpoint.precopies.leases():
        checkpoint.precopies.release(lease.epoch)
    for number in reversed(later):  # newest first: at any moment the newest left is a whole commit
        checkpoint.discard(file_of(number))  # before the commit: a start after a death in between publishes them again
        checkpoint.forget_commit(number)
    exported = checkpoint.publications.forget_after(batch)  # after the commits: one that is there keeps its notes
    return (
        f"{uri} is back at batch {batch}; {len(later)} later batches are read again, at least {rows:,} rows of the sources; "
        f"sinks keep what they have of them{_on_other_numbers(dropped)}{_on_divided_keys(checkpoint, commit)}"
        f"{_on_exported(exported)}"
    )


def _on_exported(exported: Sequence[Exported]) -> str:
    """A clause on the batches that are in a folder of the user's, and that their sinks get when they are read again."""
    places = [f"batch {one.batch} for sink {one.sink!r}, in {one.place}" for one in exported if Path(one.place).is_absolute()]
    return f". Sinks get what was exported before, too, once it is read again: {'; '.join(places)}" if places else ""


def _on_other_numbers(dropped: Sequence[CommitRecord]) -> str:
    """A clause if the batches after a commit will not be the same again under their numbers, by which sinks know them.

    What a batch without rows closes depends on pauses, and on whether the input was said to be at its end.
    """
    odd = [record.batch for record in dropped if not record.rows_in]
    if not odd:
        return ""
    return (
        f", and refuse batches up to {dropped[-1].batch} that are not the same again. Some may not be: batch {odd[0]} had no "
        "rows. Give parquet, json and kafka sinks other places before the next "
        "start"
    )


def _on_divided_keys(checkpoint: Checkpoint, commit: CommitRecord) -> str:
    """A clause if rows of a batch depend on the instances that its keys are at: a batch says nothing of parts on their way."""
    operators = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch)).topology.operators
    in_parts = combinable(operators)
    pouring = poured(operators)
    divided = [
        one.name
        for one in operators
        if in_parts.get(one.name) and (one.name in pouring or groupings.get(one.grouping.policy).splits_keys)
    ]
    if not divided:
        return ""
    return (
        f". Keys of {' and '.join(map(repr, divided))} may be at several instances, and what a batch says of them depends on "
        "where: where their last words count, give their sinks other places"
    )


def check(uri: str, schemas: Schemas = NONE_KNOWN) -> list[Damage]:
    """Read every file that the newest commit names; what is damaged or gone, or does not fit the node's schema.

    Raises CheckpointError for records.
    """
    checkpoint = Checkpoint.attach(uri)
    commit = _newest(checkpoint)
    earlier = [checkpoint.read_commit(number) for number in checkpoint.commits() if number < commit.batch]
    usable = next((kept.batch for kept in reversed(earlier) if not damage(checkpoint, kept, schemas)), None)
    return [Damage(found.path, found.why, usable) for found in damage(checkpoint, commit, schemas)]


def damage(checkpoint: Checkpoint, commit: CommitRecord, schemas: Schemas = NONE_KNOWN) -> list[Damage]:
    """The state files of `commit` that cannot be used."""
    found: list[Damage] = []
    for node, path in _state_files(commit):
        try:
            parts = checkpoint.read_fitted(path, schemas[node]) if node in schemas else checkpoint.read_parts(path)
            for _ in parts:
                """Each part is checked as it is read."""
        except (StateFileError, CheckpointError) as error:
            found.append(Damage(path, str(error), None))
    return found


def written_before(uri: str, schemas: Schemas) -> list[str]:
    """The state files of the newest commit that an old version of their operator wrote, to be upgraded when they are read."""
    checkpoint = Checkpoint.attach(uri)
    files = [(node, path) for node, path in _state_files(_newest(checkpoint)) if node in schemas]
    return [path for node, path in files if not all(map(schemas[node].fits, checkpoint.read_parts(path)))]


def _state_files(commit: CommitRecord) -> list[tuple[str, str]]:
    """Node and path of each state file that `commit` names."""
    return sorted({(node, path) for node, refs in commit.state.items() for ref in refs.values() for path in ref.paths})


def findings_text(arguments: str, found: Sequence[Damage], before: Sequence[str] = ()) -> str:
    """The findings of `check` and `written_before` as text, with the remedy; `arguments`: of `state check`."""
    if not found:
        whole = "every state file of the newest commit is there and undamaged"
        old = f"; {len(before)} of them are of a former version of their operator, which upgrades them as it reads them"
        return whole + (old if before else "")
    lines = [f"{item.path}: {item.why}" for item in found]
    usable = found[0].usable
    todo = "no kept commit is whole: put the files back from a copy, or start with an empty checkpoint"
    if usable is not None:
        command = f"streamtopology state rollback {arguments} --to {usable}"
        todo = f"batch {usable} is whole: `{command}` goes back to it"
    return "\n".join([*lines, todo])


def _newest(checkpoint: Checkpoint) -> CommitRecord:
    commit = checkpoint.last_commit()
    if commit is None:
        raise CheckpointError(f"{checkpoint.uri} has no committed batch yet")
    return commit


def _refuse_unless_replayed(checkpoint: Checkpoint, commit: CommitRecord) -> None:
    """Batches that Spark itself reads are replayed by Spark, which goes back by one batch at most."""
    sources = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch)).topology.sources
    by_spark = [source.name for source in sources if not source.reads_descriptors]
    if by_spark:
        raise CheckpointError(
            f"sources that Spark reads itself cannot be read again from an earlier batch: {', '.join(by_spark)}; only files "
            "and Kafka can"
        )


def _listed(batches: Sequence[int]) -> str:
    return json.dumps(list(batches))[1:-1] or "none"
