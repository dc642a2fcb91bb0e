"""The positions of sources across changes of a manifest: each belongs to the name of a source, and is never lost.

A source that was removed and comes back continues where it was left: what it brought is in the state of operators. Spark keeps
the positions of sources that it reads itself by their order, so these stay the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.connectors.sources.kafka.positions import is_same
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.topology import Source, Topology

_MOST_SHOWN = 3


def refuse_other_sources(before: Topology, topology: Topology, last: CommitRecord) -> None:
    """Raise TopologyFailed if a source of `topology` cannot continue after `last`, the newest commit, which ran `before`."""
    for source in topology.sources:
        position = _positions(last).get(source.name)
        if position is not None and source.reads_descriptors and _is_of_kafka(position) != (source.format == "kafka"):
            raise TopologyFailed(
                f"source {source.name!r} is of format {source.format}, but the checkpoint has read it up to "
                f"{_shown(position)}: a position belongs to the name of a source. Give this one another name, under which "
                "it is read from its start, or go back to the former format"
            )
    if (now := _read_by_spark(topology)) != (then := _read_by_spark(before)):
        raise TopologyFailed(
            f"the sources that Spark reads itself were {then}, and are {now}: Spark keeps their positions by their order, "
            "without names. Go back to the former ones in their order, or start with an empty checkpoint"
        )


def returns(before: Topology, topology: Topology, last: CommitRecord) -> Iterator[str]:
    """Return a sentence for each source of `topology` that `before` did not have and that a previous run has read."""
    known = {source.name for source in before.sources}
    for source in topology.sources:
        if source.name not in known and source.name in _positions(last):
            where = _shown(_positions(last)[source.name])
            yield (
                f"source {source.name!r} was added again: it continues where it was left, after {where}; under another name it "
                "is read from its start"
            )


def created_again(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Return a sentence for each topic whose position in `after` is in another topic of its name than the one in `before`."""
    for source, position in after.items():
        was = before.get(source, {})
        for topic in position.keys() & was.keys() if _is_of_kafka(position) else ():
            if not is_same(was[topic]["id"], position[topic]["id"]):
                yield (
                    f"source {source!r}: topic {topic} was deleted and created again; it is read from its first message, and "
                    "what was not read of the former one is gone (failOnDataLoss: false)"
                )


def _positions(last: CommitRecord) -> Mapping[str, Any]:
    return last.end.positions


def _is_of_kafka(position: Any) -> bool:
    """True for offsets by topic and partition; the position in a folder is a number of files."""
    return isinstance(position, Mapping)


def _shown(position: Any) -> str:
    if not _is_of_kafka(position):
        return "1 file" if position == 1 else f"{position:,} files"
    read = {topic: of_topic["next"] for topic, of_topic in position.items()}
    offsets = [f"offset {at} of {topic}/{partition}" for topic, parts in read.items() for partition, at in parts.items()]
    return ", ".join([*offsets[:_MOST_SHOWN], *(["..."] if len(offsets) > _MOST_SHOWN else [])])


def _read_by_spark(topology: Topology) -> str:
    """The sources that Spark counts, in its order: those that it reads itself, and one for all others."""
    names = [_named(source) for source in topology.sources if not source.reads_descriptors]
    others = [] if len(names) == len(topology.sources) else ["files or Kafka"]
    return ", ".join([*names, *others]) if names else "none"


def _named(source: Source) -> str:
    return f"{source.name!r} ({source.format})"
