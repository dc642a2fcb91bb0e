"""The level of a test: which command runs it, and whether it holds a change back (CONTRIBUTING.md)."""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum


class Level(IntEnum):
    """A test has the highest level that its folder, its fixtures or its marks ask for."""

    # Python and Java, no server, no real clock: `make test`, which holds a change back.
    GATE = 0
    # Real Spark clusters, Kafka, S3, a browser, killed processes: `make test-clusters`.
    CLUSTERS = 1
    # A real API server, helm: `make test-kubernetes`.
    KUBERNETES = 2
    # A real Kubernetes node with containers: `make test-node`.
    NODE = 3
    # Many cases, new seeds, minutes each: `make test-long`.
    LONG = 4

    @property
    def mark(self) -> str:
        """The name of the pytest mark and of `--level`."""
        return self.name.lower()


# The mark of a test that gates although it needs a real part: one for each part.
SMOKE = "smoke"

_BY_FOLDER = {"runs": Level.CLUSTERS, "kubernetes": Level.KUBERNETES, "node": Level.NODE}
_BY_FIXTURE = {
    "cluster": Level.CLUSTERS,
    "kafka_broker": Level.CLUSTERS,
    "s3_server": Level.CLUSTERS,
    "browser": Level.CLUSTERS,
    "api_server": Level.KUBERNETES,
}
_BY_MARK = {level.mark: level for level in Level}


def level_of(folder: str, fixtures: Collection[str], marks: Collection[str]) -> Level:
    """`folder`: that of tests/ in which the test's file is; `marks`: names of the marks that it has."""
    if SMOKE in marks:
        return Level.GATE
    asked = [_BY_FOLDER.get(folder, Level.GATE)]
    asked += [_BY_FIXTURE[name] for name in fixtures if name in _BY_FIXTURE]
    asked += [_BY_MARK[name] for name in marks if name in _BY_MARK]
    return max(asked)
