"""A real single-node Kafka broker (KRaft) for tests: its jars come once from Maven Central, its data is removed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from streamtopology.jobs.connectors.kafka_retry import retried
from streamtopology.jobs.spark.java import find_java

VERSION = "3.9.1"
_START_SECONDS = 60


@dataclass(frozen=True)
class Broker:
    """A running broker; topics are made with `topic`, messages written and read with plain clients.

    `secured`: its address for `user` with `password`.
    """

    servers: str
    secured: str
    user = "flights"
    password = "well-kept"

    def topic(self, partitions: int = 1) -> str:
        """A new topic of that many partitions."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        self.create(name, partitions)
        return name

    def create(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(topic, partitions, config=config or {})]).values():
            made.result(timeout=60)

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(timeout=60)
        deadline = time.monotonic() + 60
        while topic in admin.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline, f"{topic} is still there"
            time.sleep(0.05)

    def create_again(self, topic: str, partitions: int = 1) -> None:
        """Another topic of this name, without messages."""
        self.delete(topic)
        self.create(topic, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_partitions([NewPartitions(topic, total)]).values():
            made.result(timeout=60)

    def send(self, topic: str, values: list[bytes], partition: int = 0, times: list[int] | None = None) -> None:
        """Send messages, of these times in milliseconds; without any, of now."""
        producer = Producer({"bootstrap.servers": self.servers})
        for value, at in zip(values, times or [0] * len(values), strict=True):  # 0: of now
            producer.produce(topic, value, value[:4], partition, timestamp=at)
        assert producer.flush(30) == 0

    def delete_before(self, topic: str, offsets: dict[int, int]) -> None:
        """Delete the messages of partitions below these offsets, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for deleted in admin.delete_records([TopicPartition(topic, *place) for place in offsets.items()]).values():
            deleted.result(timeout=60)

    def group_offsets(self, group: str, topic: str, partitions: int = 1) -> list[int | None]:
        """The offset of a consumer group in each partition, as a lag monitor sees it; None without one."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition) for partition in range(partitions)])
        admin = AdminClient({"bootstrap.servers": self.servers})  # kept: without it the answer would never come
        answer = retried(lambda: admin.list_consumer_group_offsets([asked])[group].result(60), seconds=60)
        offsets = {mark.partition: mark.offset for mark in answer.topic_partitions}
        return [None if offsets[partition] < 0 else offsets[partition] for partition in range(partitions)]

    @contextmanager
    def member_of(self, group: str, topic: str) -> Iterator[None]:
        """While entered, somebody consumes the topic in that group, and Kafka takes no offsets of anyone else for it."""
        member = Consumer({"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False})
        member.subscribe([topic])
        try:
            deadline = time.monotonic() + 60
            while not member.assignment():
                assert time.monotonic() < deadline, f"no member of {group} in 30 s"
                member.poll(0.1)
            yield
        finally:
            member.close()

    def committed(self, topic: str, partition: int = 0) -> list[Message]:
        """Every message of a partition that a read_committed consumer sees, from the beginning."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
             "enable.partition.eof": True, "enable.auto.commit": False}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0)])
        seen: list[Message] = []
        try:
            while True:
                message = consumer.poll(30)
                assert message is not None, "no message and no end of partition in 30 s"
                if message.error() is not None:
                    return seen
                seen.append(message)
        finally:
            consumer.close()


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """One broker for the test session."""
    with running_broker() as broker:
        yield broker


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A broker of its own, with an empty folder, while entered."""
    home = Path(tempfile.mkdtemp(prefix="kafka-"))
    broker_port, secured_port, controller_port = _free_ports(3)
    settings = home / "server.properties"
    settings.write_text(_properties(home / "data", broker_port, secured_port, controller_port))
    classpath = f"{kafka_jars()}/*"
    log = (home / "broker.log").open("wb")
    java = str(find_java().binary)  # the one that Spark runs on
    subprocess.run(
        [java, "-Xmx256m", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtdG9wb2xvZ3kxMQ",
         "-c", str(settings)], check=True, stdout=log, stderr=log,
    )  # fmt: skip
    process = subprocess.Popen(
        [java, "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-cp", classpath, "kafka.Kafka", str(settings)],
        stdout=log,
        stderr=log,
    )
    try:
        broker = Broker(f"127.0.0.1:{broker_port}", f"127.0.0.1:{secured_port}")
        _wait_until_up(broker, process, home / "broker.log")
        yield broker
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(home)


def kafka_jars() -> Path:
    """The folder of the broker's jars, downloaded on first use (46 MB, under a minute).

    By Ivy, which PySpark ships, so that Java is all that is needed. Fails the test where Maven Central does not answer.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopology" / f"kafka-{VERSION}"
    jars = cache / "jars"
    if not jars.exists():
        cache.mkdir(parents=True, exist_ok=True)
        print("the Kafka broker of the tests: downloading 46 MB (under a minute, once)", flush=True)
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            _download(Path(draft))
            Path(draft, "jars").rename(jars)
    return jars


def _download(folder: Path) -> None:
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [
        find_java().binary, "-cp", ivy, "org.apache.ivy.Main", "-cache", folder / "cache", "-confs", "default",
        "-dependency", "org.apache.kafka", "kafka_2.13", VERSION,
        "-retrieve", folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-12:])
        pytest.fail(f"the Kafka broker of the tests cannot be downloaded from Maven Central; is it reachable? Ivy says:\n{end}")


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _properties(data: Path, broker_port: int, secured_port: int, controller_port: int) -> str:
    secured = f"SECURED://127.0.0.1:{secured_port}"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{Broker.user}="{Broker.password}";'
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{broker_port},{secured},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker_port},{secured}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config={login}
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def _wait_until_up(broker: Broker, process: subprocess.Popen, log: Path) -> None:
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 0})
    member = Consumer({"bootstrap.servers": broker.servers, "group.id": "is-it-up", "log_level": 0})
    deadline = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"Kafka did not come up:\n{log.read_text(errors='replace')[-3000:]}")
        try:
            admin.list_topics(timeout=2)
            (mark,) = member.committed([TopicPartition("any", 0)], timeout=2)  # the first one makes the groups' coordinator
            if mark.error is None:
                return
        except KafkaException:
            pass
        time.sleep(0.1)


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["run"]:  # for a benchmark, until the end of its input
            with running_broker() as running:
                print(running.servers, flush=True)
                sys.stdin.read()
        else:
            print(kafka_jars())
    except pytest.fail.Exception as missing:
        sys.exit(f"{missing}")
