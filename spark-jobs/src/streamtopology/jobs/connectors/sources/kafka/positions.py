"""How far topics are read, as values: the next offset of each partition, and the id of the topic that these are offsets of.

A topic that was deleted and created again has other messages at the offsets of the former one. Kafka gives it another id
(KIP-516), which tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

from streamtopology.jobs.connectors.sources.errors import SourceError

# Topic -> partition (JSON keys are strings) -> next offset to read.
NextOffsets = dict[str, dict[str, int]]

_MOST_SHOWN = 10
_WAY_ON = (
    "If this is the topic that is wanted, option failOnDataLoss: false reads it from its first message; after a batch the "
    "option can be true again"
)


class TopicPosition(TypedDict):
    """How far a topic is read. `id` is Kafka's, "" where the broker has none; `next` is by partition."""

    id: str
    next: dict[str, int]


Offsets = dict[str, TopicPosition]


@dataclass(frozen=True)
class Times:
    """A stream begins at the first message of each partition that is of a time or later, in milliseconds since 1970.

    by_partition: the time of all partitions, or of each. or_end: where no message is that new, a partition begins at its end;
    False: that is refused.
    """

    by_partition: int | Mapping[str, Mapping[str, int]]
    or_end: bool

    def of(self, topic: str, partition: str) -> int:
        """The time of a partition."""
        return self.by_partition if isinstance(self.by_partition, int) else self.by_partition[topic][partition]


@dataclass(frozen=True)
class TopicNow:
    """A topic as the broker has it. `ranges`: by partition the first offset, and the one after the last stable message."""

    id: str
    ranges: Mapping[str, tuple[int, int]]


def is_same(one: str, other: str) -> bool:
    """True unless both ids are known and differ: brokers before Kafka 2.8 have none, and the name is all that is known."""
    return one == other or not one or not other


def next_in(topic_id: str, position: TopicPosition | None) -> dict[str, int]:
    """The next offsets of a position in the topic of that id; none if it is a position in a former one, or there is none."""
    return position["next"] if position is not None and is_same(position["id"], topic_id) else {}


def further(one: TopicPosition, other: TopicPosition) -> TopicPosition:
    """The position in one topic at which all is read that is read at either."""
    both = {**one["next"], **other["next"]}
    return {"id": other["id"] or one["id"], "next": {p: max(at, one["next"].get(p, at)) for p, at in both.items()}}


def limited(begin: NextOffsets, available: NextOffsets, limit: int) -> NextOffsets:
    """At most `limit` offsets, dealt to partitions in proportion to what they hold, at least one where there is any."""
    waiting = sum(end - begin[t][p] for t, partitions in available.items() for p, end in partitions.items())
    if waiting <= limit:
        return available
    return {
        topic: {
            p: begin[topic][p] + min(end - begin[topic][p], max(1, (end - begin[topic][p]) * limit // waiting))
            for p, end in partitions.items()
        }
        for topic, partitions in available.items()
    }


def refuse_loss(source: str, topic: str, was: TopicPosition, now: TopicNow) -> None:
    """Raise SourceError if messages after `was` are not in the topic any more."""
    if not is_same(was["id"], now.id):
        raise SourceError(another_topic(source, topic))
    if gone := [partition for partition in was["next"] if partition not in now.ranges]:
        raise SourceError(
            f"source {source!r}: topic {topic} has no partition {_listed(gone)} any more: it was created again. What was not "
            f"read of the former one is not there. {_WAY_ON}"
        )
    for partition, at in was["next"].items():
        low, high = now.ranges[partition]
        if not low <= at <= high:
            raise SourceError(lost_messages(source, topic, partition, at, low, high))


def another_topic(source: str, topic: str) -> str:
    """The sentence on a topic that has another id than the one that was read."""
    return (
        f"source {source!r}: topic {topic} is not the one that was read: it was deleted and created again, or is in another "
        f"cluster. What was not read of the former one is not there. {_WAY_ON}"
    )


def lost_messages(source: str, topic: str, partition: int | str, at: int, low: int, high: int) -> str:
    """The sentence on a partition that does not have the next offset to read."""
    return (
        f"source {source!r}: topic {topic}, partition {partition} holds offsets {low} to {high}, but the stream is at {at}: "
        "rows were deleted before they were read (retention, or the topic was created again). Option failOnDataLoss: false "
        "continues with the remaining rows"
    )


def resolved(source: str, starting: str | NextOffsets, there: Mapping[str, TopicNow]) -> Offsets:
    """The offsets at which a stream begins. Raises SourceError unless `starting` names each partition that is there alone."""
    if not isinstance(starting, str):
        refuse_mismatch(source, "startingOffsets", starting, there)
    offsets: Offsets = {}
    for topic, now in there.items():
        offsets[topic] = {"id": now.id, "next": {}}
        for partition, (low, high) in now.ranges.items():
            at = _offset(starting if isinstance(starting, str) else starting[topic][partition], low, high)
            if at > high:
                raise SourceError(
                    f"source {source!r}: option startingOffsets has offset {at} of topic {topic}, partition {partition}, which "
                    f"holds offsets {low} to {high}; name one of these"
                )
            offsets[topic]["next"][partition] = at
    return offsets


def resolved_times(source: str, times: Times, found: NextOffsets, there: Mapping[str, TopicNow]) -> Offsets:
    """The offsets at which a stream begins by time. found: of each partition the first message of its time or later, -1: none.

    Raises SourceError for a partition without one, unless such begin at their ends.
    """
    offsets: Offsets = {}
    for topic, now in there.items():
        none = [partition for partition, at in found[topic].items() if at < 0]
        if none and not times.or_end:
            raise SourceError(
                f"source {source!r}: topic {topic}, partition {none[0]} has no message of time {times.of(topic, none[0])} "
                "(milliseconds since 1970) or later; name an earlier time, or let such a partition begin at its end by option "
                "startingOffsetsByTimestampStrategy: latest"
            )
        offsets[topic] = {"id": now.id, "next": {p: at if at >= 0 else now.ranges[p][1] for p, at in found[topic].items()}}
    return offsets


def refuse_mismatch(source: str, option: str, named: Mapping[str, Iterable[str]], there: Mapping[str, TopicNow]) -> None:
    """Raise SourceError unless an option names each partition that is there alone."""
    partitions = partition_names({topic: now.ranges for topic, now in there.items()})
    if wrong := mismatch(option, partition_names(named), partitions):
        raise SourceError(f"source {source!r}: {wrong}")


def mismatch(option: str, named: Iterable[str], there: Iterable[str]) -> str | None:
    """A sentence on the names in an option that are not `there`, and on those that it lacks; None if none is."""
    unknown, missing = [name for name in named if name not in there], [name for name in there if name not in named]
    if not unknown and not missing:
        return None
    clauses = [f"names {_listed(unknown)}, which is not there"] if unknown else []
    clauses += [f"lacks {_listed(missing)}"] if missing else []
    numbers = " (-2: from its first message, -1: from its end)" if option == "startingOffsets" else ""
    return (
        f"option {option} {' and '.join(clauses)}; it must name every partition of the topics that are read, and no "
        f"other{numbers}"
    )


def partition_names(offsets: Mapping[str, Iterable[str]]) -> list[str]:
    """The partitions of topics, as errors name them."""
    return [f"topic {topic}, partition {partition}" for topic, partitions in offsets.items() for partition in partitions]


def _listed(names: list[str]) -> str:
    return "; ".join([*names[:_MOST_SHOWN], *(["..."] if len(names) > _MOST_SHOWN else [])])


def _offset(wanted: str | int, low: int, high: int) -> int:
    if wanted in ("earliest", -2):
        return low
    return high if wanted in ("latest", -1) else cast(int, wanted)
