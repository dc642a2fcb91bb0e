"""Runs as the page draws them: the topology of `support.histories`, runs of many executors, and keys of any content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamtopology.contract.phases import Phase
from streamtopology.contract.stats import Slot
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import Standing
from streamtopology.jobs.view.page.record import PageRecord
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import LoadReport, Onward, SourceReport
from streamtopology.topology import Topology, parse
from support.histories import Clock, run

NOW = 1_700_000_100.0

FLIGHTS: dict[str, Any] = {
    "apiVersion": "streamtopology.dev/v1alpha1",
    "kind": "StreamTopology",
    "metadata": {"name": "flights"},
    "spec": {
        "sources": [{"name": "flights", "format": "parquet", "schema": "tail string", "options": {"path": "/data"}}],
        "operators": [
            {"name": "tail", "inputs": ["flights"], "grouping": {"policy": "mixed", "key": ["tail"]}, "run": "count"},
        ],
        "sinks": [{"name": "totals", "input": "tail", "format": "parquet", "options": {"path": "/results"}}],
        "executors": [{"name": "large", "replicas": 3, "cpu": 1}, {"name": "small", "replicas": 1, "cpu": 0.3}],
    },
}

HOSTILE = (
    *("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "__proto__", "", "    ", "trailing "),
    *("k" * 10_240, "مرحبا بالعالم", "admin\u202egpj.exe", "line\nbreak\tand\u0000nul", "&lt;b&gt;&amp;", "日本語のキー"),
    *("👩‍👩‍👧‍👦 ‮abc", "\ud800 alone"),
)


def flights() -> Topology:
    """The topology of the runs of `support.histories`."""
    return parse(FLIGHTS)


def recorded(history: History, topology: Topology | None = None, run_id: str = "run-1") -> PageRecord:
    """The record of the history from now on."""
    return PageRecord(history, lambda: topology, run_id, Clock(NOW))


def served(record: PageRecord, since: int = -1, standing: Standing = Standing()) -> dict[str, Any]:  # noqa: B008 - immutable
    """The value as a browser gets it."""
    return json.loads(json.dumps(record.page(standing, since), allow_nan=False))


def played(batches: int, reroute_at: int | None = None, topology: Topology | None = None) -> tuple[History, PageRecord]:
    """A run of `support.histories.run` that a record has followed from its first batch."""
    whole, followed = run(batches, reroute_at=reroute_at, noise=0.02), run(0)
    record = recorded(followed, topology)
    for batch in whole.batches:
        for change in whole.reconfigurations:
            if change.batch == batch.number:
                followed.rerouted(change)
        followed.batch_done(batch)
    return followed, record


def many(executors: int, batches: int, slow: int = 0, stages: Sequence[str] = ("tail",), keys: Sequence[str] = ()) -> History:
    """A run of executors with equal shares of the rows, of which the last `slow` take twice as long; `keys` are heavy."""
    slots = [Slot(n, f"large-{n}", f"class-{n % 4}", 1.0) for n in range(executors)]
    history = History("flights", tuple(slots), dict.fromkeys(stages, "mixed"))
    history.enter(Phase.RUNNING)
    made = many_batch(0, executors, slow, stages, keys)
    for number in range(batches):
        history.batch_done(BatchOutcome(**{**vars(made), "number": number, "committed_at": 1_700_000_000.0 + number}))
    return history


def many_batch(number: int, executors: int, slow: int, stages: Sequence[str], keys: Sequence[str] = ()) -> BatchOutcome:
    """One batch of `many`."""
    rows, hashes = 40_000, np.arange(len(keys), dtype=np.uint64)
    seconds = [0.5 * (2 if n >= executors - slow else 1) * (1 + n / executors / 50) for n in range(executors)]
    reports = [
        LoadReport(
            operator=stage,
            instance=n,
            slot=n,
            rows=rows,
            busy_seconds=seconds[n],
            task_seconds=seconds[n],
            state_keys=1_000_000,
            state_bytes=2_000_000_000,
            heavy_hashes=hashes,
            heavy_rows=np.full(len(keys), 1000, np.int64),
            heavy_seconds=np.zeros(len(keys)),
            heavy_bytes=np.full(len(keys), 64, np.int64),
            heavy_labels=tuple(keys),
            onward={to: Onward(rows, 10) for to in stages if to != stage},
        )
        for stage in stages
        for n in range(executors)
    ]
    sources = tuple(SourceReport(slot=n, rows=rows, busy_seconds=0.05, task_seconds=0.05) for n in range(executors))
    return BatchOutcome(
        number=number,
        epoch=1,
        rows=rows * executors,
        seconds=1.5,
        committed_at=1_700_000_000.0,
        reports=tuple(reports),
        source_reports=sources,
        bound=2.1e7,
    )


def standing_of(routing: Epoch | None = None) -> Standing:
    """A run that is served with a bound and the epoch it runs under."""
    return Standing(routing=routing, newest_epoch=2, bound=132_000.0)
