"""The options of a Kafka source that say which topics it reads, and where a stream begins; their names are Spark's."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, cast

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, known_options
from streamtopology.jobs.connectors.sources.errors import SourceError
from streamtopology.jobs.connectors.sources.kafka.positions import NextOffsets, Times, mismatch
from streamtopology.topology import Doubt, Problem

# Where a stream begins. Of those that are given the first counts, as in Spark.
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_STRATEGY = "startingOffsetsByTimestampStrategy"
_TIMES = STARTING[:2]
# The topics that brokers keep for themselves; no pattern is of them.
_OF_KAFKA = ("__consumer_offsets", "__transaction_state", "__share_group_state")

_ENDLESS = "a stream has no end; trigger.availableNow ends it at what its topics hold at the start"
_DEALT = "the planner deals offsets to the executors by their speed"
_GATHERED = "trigger.interval says for how long messages are gathered"
_PATIENT = "a broker is waited for, for 30 s"
# Options of Spark's reader that a source does not have, and why.
_OF_SPARK_ALONE = {
    "endingOffsets": _ENDLESS,
    "endingOffsetsByTimestamp": _ENDLESS,
    "endingTimestamp": _ENDLESS,
    "assign": "topics are read with all their partitions; name them in subscribe, and choose partitions by where",
    "minPartitions": _DEALT,
    "maxRecordsPerPartition": _DEALT,
    "minOffsetsPerTrigger": _GATHERED,
    "maxTriggerDelay": _GATHERED,
    "groupIdPrefix": "kafka.group.id is the whole name of the group",
    "fetchOffset.numRetries": _PATIENT,
    "fetchOffset.retryIntervalMs": _PATIENT,
    "kafkaConsumer.pollTimeoutMs": _PATIENT,
}


def only_in_spark(option: str) -> str | None:
    """A clause on an option that Spark's reader of Kafka has, and a source does not; None for any other."""
    same = next((name for name in _OF_SPARK_ALONE if name.lower() == option.lower()), None)
    return None if same is None else f"option {option} is not taken over from Spark: {_OF_SPARK_ALONE[same]}; leave it out"


def ignored_by_spark(options: Iterable[str]) -> list[str]:
    """Those of the options of a streaming frame that Spark's reader of Kafka neither uses nor refuses."""
    has = {name.lower() for name in (*known_options("kafka"), *_OF_SPARK_ALONE)} - {"endingtimestamp"}
    return [name for name in options if name.lower() not in has and not name.lower().startswith("kafka.")]


def topics_of(spec: SourceSpec) -> list[str]:
    """The topics of option subscribe; none of a source with a pattern."""
    return [name for text in spec.options.get("subscribe", "").split(",") if (name := text.strip())]


def pattern_of(spec: SourceSpec) -> re.Pattern[str] | None:
    """Option subscribePattern; None for a source without. Raises SourceError."""
    text = spec.options.get("subscribePattern")
    if text is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of sets in sets, which Java and Python read differently
            return re.compile(text.strip())
    except (re.error, FutureWarning) as error:
        why = f"is a regular expression that Java and Python must read alike: {error}; write it otherwise, or name the topics"
        raise SourceError(f"source {spec.name!r}: option subscribePattern {why} in subscribe") from error


def matching(pattern: re.Pattern[str], topics: Iterable[str]) -> list[str]:
    """The topics whose whole names match, without Kafka's own."""
    return sorted(topic for topic in topics if pattern.fullmatch(topic) and topic not in _OF_KAFKA)


def topic_problems(spec: SourceSpec) -> Iterator[Problem]:
    """Find what is wrong with the options that say which topics are read."""
    given = [name for name in ("subscribe", "subscribePattern") if name in spec.options]
    if len(given) != 1:
        wrong = (
            "takes option subscribe or subscribePattern, not both" if given else "needs option subscribe (or subscribePattern)"
        )
        yield Problem("options.subscribe", f"source {spec.name!r}: format kafka {wrong}")
    elif not spec.options[given[0]].replace(",", "").strip():
        yield Problem(f"options.{given[0]}", f"source {spec.name!r}: option {given[0]} names no topic")
    else:
        try:
            pattern_of(spec)
        except SourceError as error:
            yield Problem("options.subscribePattern", str(error))


def starting_at(spec: SourceSpec) -> Literal["earliest", "latest"] | NextOffsets | Times:
    """Where the stream begins: the end of its topics, unless an option says otherwise. Raises SourceError."""
    option, or_end = _first_of(spec), _or_end(spec)
    text = spec.options.get(option, "latest").strip()
    if option == "startingTimestamp":
        if not re.fullmatch("[0-9]{1,18}", text):
            raise SourceError(f"source {spec.name!r}: option {option} must be milliseconds since 1970, not {text!r}")
        return Times(int(text), or_end)
    if option == "startingOffsetsByTimestamp":
        example = '{"topic": {"0": 1767225600000}}, with milliseconds since 1970'
        return Times(_by_partition(spec, option, _time, f"must be JSON such as {example}"), or_end)
    if text in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text)
    return _by_partition(spec, option, _offset, 'must be earliest, latest or JSON such as {"topic": {"0": 23, "1": -2}}')


def starting_problems(spec: SourceSpec) -> Iterator[Problem]:
    """Find options of where a stream begins that are wrong, or of which another one takes the place."""
    for option, read in ((_STRATEGY, _or_end), (_first_of(spec), starting_at)):
        try:
            read(spec)
        except SourceError as error:
            yield Problem(f"options.{option}", str(error))
            return
    first, *others = [name for name in STARTING if name in spec.options] or ["none"]
    unused = [(name, f"as {first} takes its place") for name in others]
    if _STRATEGY in spec.options and first not in _TIMES:
        unused.append((_STRATEGY, f"without {' or '.join(_TIMES)}"))
    for name, why in unused:
        yield Doubt(f"options.{name}", f"source {spec.name!r}: option {name} is not used, {why}; leave it out")


def _first_of(spec: SourceSpec) -> str:
    return next((name for name in STARTING if name in spec.options), "startingOffsets")


def _or_end(spec: SourceSpec) -> bool:
    text = spec.options.get(_STRATEGY, "error")
    if text not in ("error", "latest"):
        raise SourceError(f"source {spec.name!r}: option {_STRATEGY} must be error or latest, not {text!r}")
    return text == "latest"


def _by_partition(spec: SourceSpec, option: str, of: Callable[[object], int], must: str) -> NextOffsets:
    """An option in Spark's JSON, `{"topic": {"0": 23, "1": -2}}`, that names all its topics."""
    text = spec.options[option]
    try:
        given = json.loads(text)
        parsed = {topic: {_partition(p): of(value) for p, value in parts.items()} for topic, parts in given.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceError(f"source {spec.name!r}: option {option} {must}, not {text!r}") from error
    topics = topics_of(spec) or parsed  # those of a pattern are known by the brokers
    if wrong := mismatch(option, [f"topic {topic}" for topic in parsed], [f"topic {topic}" for topic in topics]):
        raise SourceError(f"source {spec.name!r}: {wrong}")
    return parsed


def _partition(name: str) -> str:
    if not 0 <= int(name) < 2**31:
        raise ValueError(f"{name} is no partition")
    return str(int(name))


def _offset(value: object) -> int:
    """A whole number; -1 is the end of a partition, -2 its beginning."""
    return _whole(value, -2)


def _time(value: object) -> int:
    return _whole(value, 0)


def _whole(value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise ValueError(f"{value} is none")
    return value
