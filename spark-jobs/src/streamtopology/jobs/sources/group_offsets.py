"""How far committed batches have read, told to Kafka for those who watch a consumer group's lag: KEDA, Burrow, people.

Nothing of ours reads it: the checkpoint alone says where a run goes on. So no batch waits for it, and none fails by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streamtopology.jobs.sources.descriptors import SourceSpec
from streamtopology.jobs.sources.stream import DescriptorLog

if TYPE_CHECKING:
    from streamtopology.jobs.sources.kafka import KafkaGroup


class GroupOffsets:
    """Commits the end of each batch to the consumer groups of Kafka sources, one batch after the other in a thread of its own.

    A batch that is outdated when its turn comes is passed over. The first failure of a source is told, and no other.
    """

    def __init__(self, specs: Iterable[SourceSpec], log: DescriptorLog, tell: Callable[[str], None]) -> None:
        self._specs = [spec for spec in specs if spec.format == "kafka"]
        self._log = log
        self._tell = tell
        self._groups: dict[str, KafkaGroup] = {}
        self._failed: set[str] = set()
        self._newest = -1
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="group-offsets")

    def committed(self, spark_batch: int) -> None:
        """What Spark numbers `spark_batch` is committed. Returns at once."""
        if self._specs:
            self._newest = spark_batch
            self._thread.submit(self._commit, spark_batch)

    def close(self) -> None:
        """Wait until the newest batch was told or could not be: some seconds for each source at most."""
        self._thread.shutdown(wait=True)

    def _commit(self, spark_batch: int) -> None:
        if spark_batch != self._newest:
            return
        for spec in self._specs:
            try:
                self._commit_of(spec, spark_batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, a monitor's figures are no reason to stop
                self._tell_once(spec, error)

    def _commit_of(self, spec: SourceSpec, spark_batch: int) -> None:
        from streamtopology.jobs.sources.kafka import KafkaGroup  # keeps librdkafka out of topologies without Kafka

        end = self._log.end_of(spark_batch)
        if end is None or spec.name not in end:
            return
        if spec.name not in self._groups:
            self._groups[spec.name] = KafkaGroup(spec)
        self._groups[spec.name].commit(end[spec.name])

    def _tell_once(self, spec: SourceSpec, error: Exception) -> None:
        if spec.name in self._failed:
            return
        self._failed.add(spec.name)
        self._tell(
            f"source {spec.name!r}: {error}. Batches go on, but lag monitors do not see how far they have read. The user of "
            "its kafka.* options needs the right to read that group, and nobody else may consume in it"
        )
