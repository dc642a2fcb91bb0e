"""Small random topologies: one source of files, or two that are joined, and one or two stages of operators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from streamtopology.lab.faults.rows import COLUMNS

TOPOLOGY = "flow"
LATE = "late"
DELAY = 20
_NEVER_IDLE = "1000h"
# Of counts; of several aggregates no key is in memory.
_ON_DISK = {"backend": "disk", "memory": 8192 + 4 * 25}
_TOTALS = {"n": "count()", "total": "sum(v)"}


@dataclass(frozen=True)
class Windowed:
    """A windowed operator in seconds: windows of `size`, one each `slide`, or rows `within` a time of each other."""

    size: int = 30
    slide: int = 30
    within: int | None = None
    lateness: int = 0


WINDOWED = {
    "windows": Windowed(),
    "sliding": Windowed(slide=10, lateness=15),
    "pairs": Windowed(),
    "near": Windowed(within=12),
}
JOINS = ("pairs", "near")
# Operators whose keys are at several instances: by a grouping that splits all, and by routers that pour some.
SPLIT = ("split", "poured")
_OPERATORS = ("counts", "sums", "windows", "split", "chain", "sliding", "pairs", "near", "thirds")
_POURED_SHARE = 0.25


@dataclass(frozen=True)
class Shape:
    """A topology: its operators by name, the replicas of its executors, sizes.

    It may run in `pods`, where an operator plans, and have its checkpoint in a `bucket`. `idle_seconds`: silence after which
    a source no longer holds back the watermark; None: never.
    """

    operators: tuple[str, ...]
    replicas: int
    files_per_batch: int
    portion: int
    every: int
    formats: tuple[str, ...]
    pods: bool
    bucket: bool
    idle_seconds: int | None

    @staticmethod
    def draw(random: Random) -> Shape:
        operators = tuple(random.sample(_OPERATORS, random.choice((1, 1, 1, 2))))
        shape = Shape(
            operators=operators,
            replicas=random.choice((2, 2, 3)),
            files_per_batch=random.choice((1, 1, 2)),
            portion=random.choice((64, 200, 1 << 19)),
            every=random.choice((1, 2, 3)),
            formats=tuple(random.choice(("json", "json", "parquet", "kafka")) for _ in operators),
            pods=random.random() < 0.4,
            bucket=random.random() < 0.2,
            idle_seconds=random.choice((None, 2, 60)),
        )
        aside = Random()  # the draws of former versions are those of this one, so that their seeds are the same stories
        aside.setstate(random.getstate())
        if aside.random() < _POURED_SHARE:
            return replace(shape, operators=(*operators, "poured"), formats=(*shape.formats, "json"))
        return shape

    def of(self, operators: Collection[str]) -> Shape:
        """The shape with no others than these of its operators."""
        kept = [pair for pair in zip(self.operators, self.formats, strict=True) if pair[0] in operators]
        return replace(self, operators=tuple(name for name, _ in kept), formats=tuple(how for _, how in kept))

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of its sources."""
        return ("s", "t") if set(self.operators) & set(JOINS) else ("s",)

    @property
    def task_bytes(self) -> int:
        """Bytes of rows that a task may read in a batch; in some topologies so few that most ranges are read in parts."""
        return 64 if self.every == 2 else 1 << 20

    @property
    def on_disk(self) -> bool:
        """True if the state of those operators that can have it there is on disk, but for four keys of each instance."""
        return self.portion == 200

    @property
    def publishes_to_bucket(self) -> bool:
        """True if its sinks of files are in the bucket, too."""
        return self.bucket and self.files_per_batch == 1

    @property
    def late_of(self) -> str | None:
        """The operator whose late rows go to a sink: the first that has windows."""
        return next((name for name in self.operators if name in WINDOWED and name not in JOINS), None)

    def manifest(self, source: str, sinks: str, checkpoint: str, replicas: int | None = None) -> dict[str, Any]:
        """The manifest, with `replicas` executors if they are not the first number. `source`: the folder of all sources."""
        operators = [spec for name in self.operators for spec in self._specs(name)]
        if self.on_disk:
            operators = [spec | {"state": _ON_DISK} if spec["run"] in ("count", "aggregate") else spec for spec in operators]
        published = [
            {"name": name, "input": node_of(name), "format": how, "options": _options(name, how, sinks)}
            for name, how in zip(self.operators, self.formats, strict=True)
        ]
        if self.late_of is not None:
            published.append({"name": LATE, "input": self.late_of, "format": "json", "options": {"path": f"{sinks}/{LATE}"}})
        idle = _NEVER_IDLE if self.idle_seconds is None else f"{self.idle_seconds}s"
        return {
            "apiVersion": "streamtopology.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": TOPOLOGY},
            "spec": {
                "checkpoint": checkpoint,
                "sources": [
                    {
                        "name": name, "format": "json", "schema": COLUMNS,
                        "options": {"path": f"{source}/{name}", "maxFilesPerTrigger": str(self.files_per_batch)},
                        "watermark": {"column": "ts", "delay": f"{DELAY}s", "idleTimeout": idle},
                    }
                    for name in self.sources
                ],
                "operators": operators,
                "sinks": published,
                "executors": [{"name": "slot", "replicas": replicas or self.replicas, "cpu": "1"}],
                "migration": {"portion": str(self.portion)},
                "rebalance": {"mode": "Off"},
                "onRemove": "drop",
                "onBadTuple": "deadLetter",
            },
        }  # fmt: skip

    def _specs(self, name: str) -> list[dict[str, Any]]:
        by_key, by_group = {"policy": "mixed", "key": "k"}, {"policy": "mixed", "key": "g"}
        late = {"late": LATE} if name == self.late_of else {}
        match name:
            case "counts":
                return [_operator(name, by_key, "count")]
            case "sums":
                aggregates = {"n": "count()", "total": "sum(v)", "most": "max(v)"}
                return [_operator(name, by_key, "aggregate", {"aggregates": aggregates})]
            case "windows" | "sliding":
                return [_operator(name, by_group, "window-aggregate", _window_options(name)) | late]
            case "pairs" | "near":
                options = _join_options(name)
                return [_operator(name, by_key, "window-join", options) | {"inputs": ["s", "t"]}]
            case "thirds":
                return [_operator(name, by_key, "streamtopology.lab.faults.thirds:Thirds")]
            case "poured":
                return [_operator(name, {"policy": "auto", "key": "k"}, "aggregate", {"aggregates": _TOTALS})]
            case "split":
                partial = _operator(name, {"policy": "partial-key", "key": "k"}, "aggregate", {"aggregates": _TOTALS})
                return [partial | {"aggregateEvery": self.every}]
            case _:
                passing = _operator("passing", by_key, "count", {"emit": "tuples"})
                return [passing, _operator("groups", by_group, "count") | {"inputs": ["passing"]}]


def node_of(name: str) -> str:
    """The operator whose rows are published, and whose state is compared."""
    return "groups" if name == "chain" else name


def _operator(name: str, grouping: dict[str, str], run: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "inputs": ["s"], "grouping": grouping, "run": run}
    return made if options is None else made | {"with": options}


def _window_options(name: str) -> dict[str, Any]:
    window = WINDOWED[name]
    return {
        "time": "ts",
        "size": f"{window.size}s",
        "slide": f"{window.slide}s",
        "allowedLateness": f"{window.lateness}s",
        "aggregates": {"n": "count()", "total": "sum(v)"},
    }


def _join_options(name: str) -> dict[str, Any]:
    window = WINDOWED[name]
    distance = {"size": f"{window.size}s"} if window.within is None else {"within": f"{window.within}s"}
    return {"time": "ts", **distance, "select": ["s.k AS k", "s.v AS left", "t.v AS right"]}


def _options(name: str, how: str, sinks: str) -> dict[str, str]:
    if how == "kafka":
        return {"kafka.bootstrap.servers": "simulated:9092", "topic": name}
    return {"path": f"{sinks}/{name}"}
