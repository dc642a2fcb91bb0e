"""Positions in Kafka topics as values: of which topic they are, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.kafka.options import ignored_by_spark, matching, pattern_of
from streamtopology.jobs.connectors.sources.kafka.positions import (
    NextOffsets,
    TopicNow,
    TopicPosition,
    further,
    limited,
    next_in,
    refuse_loss,
    resolved,
)
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.jobs.runtime.carried_positions import created_again
from streamtopology.topology import Doubt, Source

NOW = TopicNow("new", {"0": (0, 8), "1": (2, 9)})


def at(topic_id: str, **offsets: int) -> TopicPosition:
    return {"id": topic_id, "next": {name.removeprefix("p"): offset for name, offset in offsets.items()}}


@pytest.mark.parametrize(("was", "continues"), [("new", True), ("", True), ("old", False)])
def test_position_continues_in_the_topic_of_its_id_alone(was: str, continues: bool) -> None:
    """Of brokers without ids the name is all that is known."""
    position = at(was, p0=5, p1=5)
    assert next_in(NOW.id, position) == (position["next"] if continues else {})
    assert next_in("", position) == position["next"]
    if continues:
        refuse_loss("s", "t", position, NOW)
    else:
        with pytest.raises(SourceError, match=r"source 's': topic t is not the one that was read: .*failOnDataLoss: false"):
            refuse_loss("s", "t", position, NOW)


@pytest.mark.parametrize(
    ("position", "sentence"),
    [
        (at("", p0=5, p2=0, p3=0), "topic t has no partition 2; 3 any more: it was created again"),
        (at("new", p0=9, p1=2), "partition 0 holds offsets 0 to 8, but the stream is at 9"),
        (at("new", p0=0, p1=1), "partition 1 holds offsets 2 to 9, but the stream is at 1"),
    ],
)
def test_what_is_gone_is_named(position: TopicPosition, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        refuse_loss("s", "t", position, NOW)


def test_position_learns_the_id_of_its_topic() -> None:
    assert further(at("", p0=5, p1=2), at("new", p0=3, p2=1)) == at("new", p0=5, p1=2, p2=1)
    assert further(at("new", p0=5), at("", p0=6)) == at("new", p0=6)


def test_topic_that_was_created_again_is_said() -> None:
    files = {"f": 5}
    before = {**files, "s": {"t": at("old", p0=5), "u": at("", p0=5), "v": at("v", p0=5)}}
    after = {"f": [6, 0, 1], "s": {"t": at("new", p0=1), "u": at("u", p0=6), "v": at("v", p0=6)}, "x": {"t": at("new", p0=1)}}
    (text,) = created_again(before, after)
    assert text.startswith("source 's': topic t was deleted and created again; it is read from its first message")
    assert not list(created_again(files, after))


def test_stream_begins_where_each_partition_says() -> None:
    there = {"t": NOW}
    assert resolved("s", "earliest", there) == {"t": at("new", p0=0, p1=2)}
    assert resolved("s", "latest", there) == {"t": at("new", p0=8, p1=9)}
    assert resolved("s", {"t": {"0": 3, "1": -1}}, there) == {"t": at("new", p0=3, p1=9)}


offsets = st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(-2, 3)))


@given(
    offsets, st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["0", "1", "2"]), st.just((0, 3))))
)
def test_starting_offsets_are_those_of_all_that_is_there_or_refused(
    starting: NextOffsets, ranges: dict[str, dict[str, tuple[int, int]]]
) -> None:
    there = {topic: TopicNow("", of_topic) for topic, of_topic in ranges.items()}
    named = {(topic, partition) for topic, partitions in starting.items() for partition in partitions}
    known = {(topic, partition) for topic, partitions in ranges.items() for partition in partitions}
    if named == known:
        begun = resolved("s", starting, there)
        assert {(topic, p) for topic, position in begun.items() for p in position["next"]} == known
        return
    with pytest.raises(SourceError) as refused:
        resolved("s", starting, there)
    for topic, partition in named ^ known:
        assert f"topic {topic}, partition {partition}" in str(refused.value)


@pytest.mark.parametrize(
    ("starting", "sentence"),
    [
        ('{"t": {"0": 1}, "zzz": {"0": 3}}', "names topic zzz, which is not there and lacks topic u"),
        ('{"t": {"0": 1}}', "lacks topic u"),
        ("{}", "lacks topic t; topic u"),
    ],
)
def test_starting_offsets_name_the_topics_that_are_read(starting: str, sentence: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t, u", "startingOffsets": starting}
    (problem,) = check(Source("s", "kafka", None, options)).findings
    assert (problem.path, isinstance(problem, Doubt)) == ("options.startingOffsets", False)
    assert sentence in str(problem)


@pytest.mark.parametrize(
    ("option", "text", "sentence"),
    [
        ("startingTimestamp", "2026-01-01", "must be milliseconds since 1970, not '2026-01-01'"),
        ("startingTimestamp", "-1", "must be milliseconds since 1970, not '-1'"),
        ("startingOffsetsByTimestamp", "5", "must be JSON such as"),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', "must be JSON such as"),
        ("startingOffsetsByTimestamp", '{"u": {"0": 1}}', "names topic u, which is not there and lacks topic t"),
        ("startingOffsetsByTimestampStrategy", "earliest", "must be error or latest, not 'earliest'"),
    ],
)
def test_time_to_begin_at_that_is_none_is_refused(option: str, text: str, sentence: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", option: text}
    (problem,) = check(Source("s", "kafka", None, options)).findings
    assert (problem.path, isinstance(problem, Doubt)) == (f"options.{option}", False)
    assert str(problem).startswith(f"options.{option}: source 's': option {option} {sentence}")


@pytest.mark.parametrize(
    ("options", "path", "sentence"),
    [
        ({}, "subscribe", "format kafka needs option subscribe (or subscribePattern)"),
        ({"subscribe": "t", "subscribePattern": "t"}, "subscribe", "takes option subscribe or subscribePattern, not both"),
        ({"subscribePattern": " "}, "subscribePattern", "option subscribePattern names no topic"),
        (
            {"subscribePattern": "t["},
            "subscribePattern",
            "is a regular expression that Java and Python must read alike: unterm",
        ),
        ({"subscribePattern": "[a-z&&[^t]]"}, "subscribePattern", "must read alike: Possible set intersection"),
        ({"subscribePattern": r"\Qt.u\E"}, "subscribePattern", r"must read alike: bad escape \Q"),
    ],
)
def test_topics_that_cannot_be_are_refused(options: dict[str, str], path: str, sentence: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", **options}
    (problem,) = check(Source("s", "kafka", None, given)).findings
    assert (problem.path, isinstance(problem, Doubt)) == (f"options.{path}", False)
    assert sentence in problem.message


def test_pattern_matches_whole_names_and_none_of_kafkas_own() -> None:
    topics = ["rides", "rides-2", "my-rides", "Rides", "__consumer_offsets", "__transaction_state", "__mine"]
    for pattern, found in (("rides", ["rides"]), ("rides.*", ["rides", "rides-2"]), (".*s", ["Rides", "my-rides", "rides"])):
        assert matching(pattern_of_text(pattern), topics) == found
    assert matching(pattern_of_text("__.*"), topics) == ["__mine"]


def pattern_of_text(text: str) -> re.Pattern[str]:
    pattern = pattern_of(SourceSpec("s", "kafka", None, {"subscribePattern": text}))
    assert pattern is not None
    return pattern


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("endingOffsets", "a stream has no end; trigger.availableNow ends it at what its topics hold at the start"),
        ("endingTimestamp", "a stream has no end"),
        ("assign", "name them in subscribe"),
        ("minPartitions", "the planner deals offsets to the executors"),
        ("minpartitions", "the planner deals offsets to the executors"),
        ("minOffsetsPerTrigger", "trigger.interval says"),
        ("groupIdPrefix", "kafka.group.id is the whole name"),
        ("kafkaConsumer.pollTimeoutMs", "a broker is waited for"),
    ],
)
def test_option_that_only_spark_has_is_refused_with_its_reason(option: str, why: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", option: "1"}
    (problem,) = check(Source("s", "kafka", None, options)).findings
    assert (problem.path, isinstance(problem, Doubt)) == (f"options.{option}", False)
    assert f"source 's': option {option} is not taken over from Spark: " in problem.message
    assert why in problem.message


def test_options_that_sparks_streams_ignore_are_known() -> None:
    """Names have no case in Spark."""
    used = ["SUBSCRIBE", "subscribepattern", "assign", "startingTimestamp", "endingOffsets", "minPartitions", "includeHeaders"]
    ignored = ["startingOffset", "endingTimestamp", "kafkaBootstrapServers"]
    assert ignored_by_spark([*used, *ignored, "kafka.acks", "Kafka.group.id"]) == ignored


def test_options_to_begin_at_that_are_not_used_are_named() -> None:
    options = {"startingTimestamp": "5", "startingOffsets": "latest", "startingOffsetsByTimestampStrategy": "latest"}
    assert unused_of(options) == ["startingOffsets"]
    assert unused_of({**options, "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}) == [
        "startingOffsetsByTimestamp",
        "startingOffsets",
    ]
    del options["startingTimestamp"]
    assert unused_of(options) == ["startingOffsetsByTimestampStrategy"]


def unused_of(options: dict[str, str]) -> list[str]:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    findings = check(Source("s", "kafka", None, given)).findings
    assert all(isinstance(finding, Doubt) for finding in findings)
    return [name for finding in findings if (name := finding.path.removeprefix("options.")).startswith("starting")]


def test_source_without_a_topic_is_refused() -> None:
    (problem,) = check(Source("s", "kafka", None, {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": " , "})).findings
    assert (problem.path, str(problem).partition(": ")[2]) == (
        "options.subscribe",
        "source 's': option subscribe names no topic",
    )


def test_descriptor_keeps_the_id_of_its_topic() -> None:
    descriptor = Descriptor("s", "kafka", "t", 0, 0, 10, 10, 100, "new")
    assert Descriptor.from_json(descriptor.between(2, 5).to_json()) == Descriptor("s", "kafka", "t", 0, 2, 5, 3, 30, "new")


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=4), st.integers(1, 500))
@example([1, 1, 4], 3)
def test_limit_is_dealt_over_partitions(sizes: list[int], limit: int) -> None:
    begin = {"t": {str(p): 7 for p in range(len(sizes))}}
    end = {"t": {str(p): 7 + size for p, size in enumerate(sizes)}}
    taken = [at - 7 for at in limited(begin, end, limit)["t"].values()]
    assert all((count > 0) == (size > 0) and count <= size for count, size in zip(taken, sizes, strict=True))
    assert sum(taken) <= limit + len(sizes), "each partition that has any gives one at least"
