"""Measure each reconciliation of a topology: its seconds for the metrics and, where traces are on, its spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from streamtopology.k8s import names
from streamtopology.k8s.decide.steps import Event, Step
from streamtopology.k8s.io.api import Api, ApiError
from streamtopology.k8s.io.apply import Applier
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.tracing.span import Emit, TraceSpan, Value

# Characters of an error that a span has.
LONGEST_FAILURE = 1000

# Kinds whose objects OpenTelemetry has a name for.
_BY_CONVENTION = {kind.kind for kind in (names.POD, names.DEPLOYMENT, names.STATEFUL_SET, names.JOB)}


def _none() -> list[TraceSpan]:
    return []


@dataclass
class Reconciliation:
    """One reconciliation of one topology: its outcome, and the spans of its steps."""

    outcome: str = ""
    parts: list[TraceSpan] = field(default_factory=_none)


class ReconcileSpans:
    """Measures the reconciliations of all workers. `clock`: seconds since 1970; `emit`: None while traces are off."""

    def __init__(self, metrics: OperatorMetrics, clock: Callable[[], float], emit: Emit | None = None) -> None:
        self._metrics = metrics
        self._clock = clock
        self._emit = emit
        self._current: ContextVar[Reconciliation | None] = ContextVar(
            "reconciliation", default=None
        )  # each worker is a task, with its own

    @contextmanager
    def at(self, key: TopologyKey) -> Generator[Reconciliation]:
        """Measure the reconciliation in the block, which sets its outcome."""
        current, started, began_at = Reconciliation(), time.perf_counter(), self._clock()
        self._current.set(current)
        yield current
        self._metrics.reconcile_seconds.labels(current.outcome).observe(time.perf_counter() - started)
        if self._emit is not None:
            ended_at = self._clock()
            self._emit(lambda: _span(key, current, began_at, ended_at))

    @contextmanager
    def part(self, name: str, attributes: dict[str, Value]) -> Generator[None]:
        """Note what is done in the block as a part of the current reconciliation, if there is one. Its error is raised on."""
        began_at, problem = self._clock(), None
        try:
            yield
        except Exception as error:
            problem = error
            raise
        finally:
            current = self._current.get()
            if current is not None:
                failed = {} if problem is None else _of_error(problem)
                failure = None if problem is None else str(problem)[:LONGEST_FAILURE]
                current.parts.append(TraceSpan(name, began_at, self._clock(), attributes | failed, failure=failure))


class TracedApplier(Applier):
    """An applier whose calls are parts of the reconciliation that makes them."""

    def __init__(self, api: Api, cache: Cache, spans: ReconcileSpans) -> None:
        super().__init__(api, cache)
        self._spans = spans

    async def take(self, step: Step, owner: Owner) -> Object | None:
        kind, name = step.place
        with self._spans.part(step.point.replace("-", " ", 1), _of_object(kind, name)):
            return await super().take(step, owner)

    async def write_status(self, manifest: Object, status: Object) -> Object:
        with self._spans.part("write status", {}):
            return await super().write_status(manifest, status)

    async def recall_secret(self, owner: Owner) -> None:
        with self._spans.part("look for the Secret", {}):
            await super().recall_secret(owner)

    async def post(self, body: Object, key: TopologyKey, event: Event, now: float, kind: Kind = names.TOPOLOGY) -> bool:
        with self._spans.part("post event", {"streamtopology.reason": event.reason}):
            return await super().post(body, key, event, now, kind)


def _span(key: TopologyKey, current: Reconciliation, began_at: float, ended_at: float) -> TraceSpan:
    attributes: dict[str, Value] = {
        "k8s.namespace.name": key.namespace,
        "streamtopology.topology": key.name,
        "streamtopology.outcome": current.outcome,
    }
    failure = None if current.outcome == "done" else current.outcome
    return TraceSpan("reconcile", began_at, ended_at, attributes, children=current.parts, failure=failure)


def _of_object(kind: str, name: str) -> dict[str, Value]:
    if kind in _BY_CONVENTION:
        return {f"k8s.{kind.lower()}.name": name}
    return {"streamtopology.object": f"{kind}/{name}"}


def _of_error(error: Exception) -> dict[str, Value]:
    named: dict[str, Value] = {"error.type": type(error).__name__}
    return named | {"http.response.status_code": error.status} if isinstance(error, ApiError) else named
