"""Executors as Spark names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class ExecutorRef:
    """The executor that a partition is pinned to: id and host as Spark names them."""

    executor_id: str
    host: str


@dataclass(frozen=True)
class ExecutorInfo:
    """A live executor. `attributes` come from the environment it was started with (`SPARK_EXECUTOR_ATTRIBUTE_*`)."""

    id: str
    host: str
    attributes: Mapping[str, str]

    @property
    def ref(self) -> ExecutorRef:
        return ExecutorRef(self.id, self.host)


def in_order(executors: Iterable[ExecutorInfo]) -> list[ExecutorInfo]:
    """Return `executors` by host, then id: the order of an attempt's partitions."""
    return sorted(executors, key=lambda executor: (_host_order(executor.host), executor.id))


def _host_order(host: str) -> tuple[tuple[int, str], ...]:
    """127.0.1.9 before 127.0.1.10, and executor-2 before executor-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in host.replace("-", ".").split("."))
