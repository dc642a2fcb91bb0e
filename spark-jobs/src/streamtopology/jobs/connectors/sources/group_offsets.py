"""Commit the offsets of committed batches to Kafka consumer groups, for monitors of lag such as KEDA and Burrow.

The project reads only its checkpoint, never these offsets. So no batch waits for them, and none fails by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from streamtopology.jobs.connectors.sources.descriptor_stream import Positions
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec

if TYPE_CHECKING:
    from streamtopology.jobs.connectors.sources.kafka.stream import KafkaGroup

# For how long a source's commit is tried.
COMMIT_SECONDS = 5.0


class GroupOffsets:
    """Commits the end of each batch to the consumer groups of Kafka sources, batch by batch in a thread of its own.

    A batch that a newer one has overtaken is skipped. Only the first failure of a source is reported. seconds: for how long a
    source's commit is tried.
    """

    def __init__(self, specs: Iterable[SourceSpec], tell: Callable[[str], None], seconds: float = COMMIT_SECONDS) -> None:
        self._seconds = seconds
        self._specs = [spec for spec in specs if spec.format == "kafka"]
        self._tell = tell
        self._groups: dict[str, KafkaGroup] = {}
        self._failed: set[str] = set()
        self._newest: Positions = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="group-offsets")

    def committed(self, end: Positions) -> None:
        """Note that a batch which ends there is committed. Returns at once."""
        if self._specs:
            self._newest = end
            self._thread.submit(self._commit, end)

    def close(self) -> None:
        """Wait until the newest batch's offsets are committed or have failed: some seconds for each source at most."""
        self._thread.shutdown(wait=True)

    def _commit(self, end: Positions) -> None:
        if end is not self._newest:
            return
        for spec in self._specs:
            try:
                self._commit_of(spec, end)
            except Exception as error:  # noqa: BLE001 - any failure: a monitor's figures are no reason to stop
                self._tell_once(spec, error)

    def _commit_of(self, spec: SourceSpec, end: Positions) -> None:
        from streamtopology.jobs.connectors.sources.kafka.stream import KafkaGroup  # loads librdkafka only for Kafka

        if spec.name not in end:
            return
        if spec.name not in self._groups:
            self._groups[spec.name] = KafkaGroup(spec, self._seconds)
        self._groups[spec.name].commit(end[spec.name])

    def _tell_once(self, spec: SourceSpec, error: Exception) -> None:
        if spec.name in self._failed:
            return
        self._failed.add(spec.name)
        self._tell(
            f"source {spec.name!r}: {error}. Batches continue, but lag monitors do not see how far they have read. The user of "
            "its kafka.* options needs the right to read that group, and nobody else may consume in it"
        )
