"""A look at a topic before anything starts: whether a broker answers, and has it. What is missing may still come."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.kafka.options import matching, pattern_of, starting_at, topics_of
from streamtopology.jobs.connectors.sources.kafka.positions import Times, mismatch, partition_names
from streamtopology.jobs.connectors.sources.kafka.stream import client_settings, consumer_settings
from streamtopology.topology import Doubt, Problem, did_you_mean

_CONNECT_SECONDS = 0.5
_ANSWER_SECONDS = 2.0
_DEFAULT_PORT = 9092


def check_topics(spec: SourceSpec) -> Iterator[Problem]:
    """Findings about the brokers and topics of a source with valid options; paths are below the source."""
    try:
        settings = client_settings(spec)
        client = AdminClient({**settings, "log_level": 0})
    except SourceError as missing:
        yield Problem("options", str(missing))
        return
    except KafkaException as error:  # a setting librdkafka does not know or take
        yield Problem("options", f"source {spec.name!r}: {error.args[0].str()}; correct its kafka.* options")
        return
    servers = settings["bootstrap.servers"]
    if not any(_accepts(server.strip()) for server in servers.split(",")):
        yield _unreachable(spec, f"no broker at {servers} accepts connections from here")
        return
    try:
        there = client.list_topics(timeout=_ANSWER_SECONDS).topics
    except KafkaException as error:
        yield _unreachable(spec, f"{servers} did not answer ({error.args[0].str()})")
        return
    pattern = pattern_of(spec)
    topics = topics_of(spec) if pattern is None else matching(pattern, there)
    if not topics:
        sentence = f"no topic at {servers} matches it; those that are created later are read from their first messages"
        yield Doubt("options.subscribePattern", f"source {spec.name!r}: option subscribePattern: {sentence}")
    for topic in topics:
        if topic not in there:
            near = did_you_mean(topic, there)
            sentence = f"topic {topic!r} is not at {servers}; create it, or correct option subscribe{near}"
            yield Doubt("options.subscribe", f"source {spec.name!r}: {sentence}")
    starting, option = starting_at(spec), "startingOffsets"
    if isinstance(starting, Times):
        starting, option = starting.by_partition, "startingOffsetsByTimestamp"
    if isinstance(starting, Mapping) and all(topic in there for topic in topics):
        named = {topic: sorted(map(str, there[topic].partitions)) for topic in topics}
        if wrong := mismatch(option, partition_names(starting), partition_names(named)):
            yield Doubt(f"options.{option}", f"source {spec.name!r}: {wrong}; a checkpoint that has begun does not ask")


def unused_settings(spec: SourceSpec) -> Iterator[Doubt]:
    """Find kafka.* options that a source's consumers take and do not use: of producers, or of a security that is not on."""
    said = _Said()
    with suppress(SourceError, KafkaException):  # which `check_topics` names
        client = Consumer(consumer_settings(spec), logger=said.logger)
        client.poll(0)
        client.close()
    for text in said.of_settings:
        yield Doubt("options", f"source {spec.name!r}: {text}; correct its kafka.* options")


class _Said(logging.Handler):
    """Takes what a client logs. `of_settings`: its sentences on them."""

    def __init__(self) -> None:
        super().__init__()
        self.of_settings: list[str] = []
        self.logger = logging.Logger("the settings of a source")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        kind, _, text = record.getMessage().partition(" ")
        if kind == "CONFWARN":
            self.of_settings.append(text.rpartition("]: ")[2])


def _accepts(server: str) -> bool:
    host, _, port = server.rpartition(":") if ":" in server else (server, "", str(_DEFAULT_PORT))
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _unreachable(spec: SourceSpec, finding: str) -> Doubt:
    sentence = f"{finding}, so its topics were not checked; a run from here needs one"
    return Doubt("options.kafka.bootstrap.servers", f"source {spec.name!r}: {sentence}")
