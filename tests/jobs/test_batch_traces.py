"""The trace of a batch has its parts at the times at which they ran, and nothing of it can fail the batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.collector import Collector, Received, collecting
from support.stages import SLOTS, Flow, Loss, Routes, manifest, random_table

from streamtopology.jobs.driver import batch_trace
from streamtopology.jobs.driver.batch_trace import MOST_PARTS
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.tracing.opening import traces
from streamtopology.tracing.settings import ENDPOINT, HEADERS, PROTOCOL, TracesUnusable
from streamtopology.tracing.span import TraceSpan

OURS = "streamtopology."
SECRET = "a-customers-name"
STEPS = ["choose plan", "attempt", "commit", "publish", "learn and judge"]


def counting() -> dict[str, Any]:
    counts = {"name": "counts", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    more = {"name": "more", "inputs": ["counts"], "grouping": {"policy": "fields", "key": "k"}, "run": "count"}
    return manifest([counts, more], {"s": "k STRING"})


def rows(number: int) -> pa.Table:
    return pa.table({"k": [f"{SECRET}-{i % 97}" for i in range(number)]})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def traced(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, played: Callable[[Flow], object]) -> tuple[Flow, list[str]]:
    """A flow whose traces went to `url`, and what was reported of that."""
    monkeypatch.setenv(ENDPOINT, url)
    reported: list[str] = []
    with traces({ENDPOINT: url}, {"service.name": "flow"}, reported.append) as emit:
        flow = Flow(folder, counting(), trace=emit)
        played(flow)
    return flow, reported


def test_each_batch_is_a_trace_with_its_steps_in_their_order(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(flow: Flow) -> None:
        flow.batch(s=rows(600))
        flow.batch(s=rows(300))
        flow.driver.batch_without_rows()

    flow, reported = traced(tmp_path, collector.url, monkeypatch, played)
    assert reported == []
    batches = collector.roots("batch")
    assert [root.attributes[f"{OURS}batch"] for root in batches] == [0, 1, 2]
    assert [root.attributes[f"{OURS}rows"] for root in batches] == [600, 300, 0]
    assert [root.attributes[f"{OURS}attempt"] for root in batches] == [1, 1, 1]
    assert {root.attributes[f"{OURS}topology"] for root in batches} == {"flow"}
    assert {root.attributes[f"{OURS}epoch"] for root in batches} == {flow.last.epoch}
    assert [root.events for root in batches] == [(), (), ()]
    for root in batches:
        steps = collector.children(root)
        assert [step.name for step in steps] == STEPS
        assert_in_order(root, steps)
        stages = collector.children(steps[1])
        assert [stage.name for stage in stages] == ["read", "operator counts", "operator more"]
        assert_in_order(steps[1], stages)


def assert_in_order(whole: Received, parts: Sequence[Received]) -> None:
    """The parts follow each other within the whole."""
    instants = [whole.began_at, *(instant for part in parts for instant in (part.began_at, part.ended_at)), whole.ended_at]
    assert all(before <= after + 1e-6 for before, after in pairwise(instants)), instants


def test_steps_of_a_batch_add_up_to_its_seconds_lost_attempts_included(tmp_path: Path) -> None:
    flow = Flow(tmp_path, counting())
    flow.batch(s=rows(300))
    flow.losses = [Loss(1, 0)]
    flow.batch(s=rows(300))
    assert isinstance(flow.router, Routes)
    for done, attempt in zip(flow.router.done, (1, 2), strict=True):
        assert done.attempt.attempt == attempt
        assert done.steps is not None
        took = vars(done.steps)
        assert all(seconds >= 0 for seconds in took.values()), took
        assert 0 < sum(took.values()) <= done.seconds, took


def test_operators_span_has_its_instances_with_rows_and_executors(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, _ = traced(tmp_path, collector.url, monkeypatch, lambda flow: flow.batch(s=rows(900)))
    (batch,) = collector.roots("batch")
    read, counts, _ = collector.children(collector.children(batch)[1])
    assert read.attributes == {f"{OURS}rows": 900, f"{OURS}tasks": SLOTS, f"{OURS}prefetched": False}
    assert counts.attributes == {f"{OURS}operator": "counts", f"{OURS}rows": 900, f"{OURS}instances": SLOTS}
    tasks = collector.children(counts)
    assert {task.attributes[f"{OURS}instance"] for task in tasks} == set(range(SLOTS))
    assert {task.attributes[f"{OURS}executor"] for task in tasks} == {f"slot-{slot}" for slot in range(SLOTS)}
    assert sum(task.attributes[f"{OURS}rows"] for task in tasks) == 900
    (done,) = flow.router.done
    busy = sorted(result.report.busy_seconds for result in done.results.instances if result.report.operator == "counts")
    assert sorted(task.attributes[f"{OURS}busy_seconds"] for task in tasks) == busy


def test_rerouting_is_an_event_with_cause_keys_and_bytes_moved(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(flow: Flow) -> None:
        flow.batch(s=rows(600))
        flow.router.reroute({"counts": random_table(np.random.default_rng(1), SLOTS)})
        flow.batch(s=rows(300))

    flow, _ = traced(tmp_path, collector.url, monkeypatch, played)
    before, after = collector.roots("batch")
    assert before.events == ()
    ((name, attributes),) = after.events
    moved = flow.router.done[1].results
    assert name == "rerouted"
    assert attributes[f"{OURS}keys_moved"] == sum(moved.keys_moved.values()) > 0
    assert attributes[f"{OURS}bytes_moved"] == sum(moved.bytes_moved.values()) > 0
    assert (attributes[f"{OURS}previous_epoch"], attributes[f"{OURS}epoch"]) == (1, 2)
    assert attributes[f"{OURS}cause"] == str(flow.router.plan.epoch.reason.cause)


def test_lost_attempts_are_spans_that_failed(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    def played(flow: Flow) -> None:
        flow.losses = [Loss(1, 2), Loss(2, None)]
        flow.batch(s=rows(300))

    traced(tmp_path, collector.url, monkeypatch, played)
    (batch,) = collector.roots("batch")
    steps = collector.children(batch)
    assert [step.name for step in steps] == ["choose plan", "attempt", "attempt", *STEPS[1:]]
    assert_in_order(batch, steps)
    assert [(step.attributes.get("error.type"), step.failure) for step in steps[1:4]] == [
        ("ExecutorLost", "executor slot-2 was lost"),
        ("ShuffleLost", "an executor could not fetch the output of another"),
        (None, None),
    ]


def test_no_key_of_the_stream_is_in_a_trace(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    traced(tmp_path, collector.url, monkeypatch, lambda flow: flow.batch(s=rows(600)))
    assert collector.spans
    assert SECRET not in repr(collector.spans)


def test_spans_of_many_instances_are_bounded(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_trace, "MOST_PARTS", 2)
    traced(tmp_path, collector.url, monkeypatch, lambda flow: flow.batch(s=rows(600)))
    (batch,) = collector.roots("batch")
    stages = collector.children(collector.children(batch)[1])
    assert [len(collector.children(stage)) for stage in stages] == [2, 2, 2]
    assert stages[1].ended_at == max(task.ended_at for task in collector.children(stages[1]))
    assert MOST_PARTS > SLOTS


def results_of(flow: Flow) -> str:
    """The state of all operators and the rows of all sinks."""
    rows = [sorted(map(json.dumps, flow.state(name))) for name in ("counts", "more")]
    published = [sorted(map(json.dumps, flow.published(name).to_pylist())) for name in ("counts", "more")]
    return json.dumps([rows, published, flow.last.batch])


def three_batches(flow: Flow) -> None:
    flow.batch(s=rows(600))
    flow.router.reroute({"counts": random_table(np.random.default_rng(1), SLOTS)})
    flow.losses = [Loss(1, 2)]
    flow.batch(s=rows(300))
    flow.batch(s=rows(200))


@pytest.mark.parametrize("fault", ["down", "refusing", "raising"])
def test_batches_are_the_same_whatever_happens_to_their_traces(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for folder in ("plain", "traced"):
        (tmp_path / folder).mkdir()
    plain = Flow(tmp_path / "plain", counting())
    three_batches(plain)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.status = 500
    url = collector.url
    if fault == "down":
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
    if fault == "raising":
        monkeypatch.setattr(batch_trace, "TraceSpan", broken)
    flow, reported = traced(tmp_path / "traced", url, monkeypatch, three_batches)
    assert results_of(flow) == results_of(plain)
    if fault == "raising":
        assert reported == ["traces: a trace could not be made (RuntimeError: no span); please report this"] * 3
    else:
        assert reported[-1].startswith("traces: ")
        assert f"spans did not reach {url}" in reported[-1]


def broken(*_: object, **__: object) -> TraceSpan:
    raise RuntimeError("no span")


def test_batches_make_no_spans_while_nobody_wants_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_trace, "TraceSpan", broken)
    flow = Flow(tmp_path, counting())
    flow.batch(s=rows(100))
    assert flow.last.batch == 0


@pytest.mark.parametrize(
    ("endpoint", "without", "sentence"),
    [
        ("collector", "", "expected the URL of a collector, such as http://collector:4318"),
        ("http://c:4318", "opentelemetry", "install streamtopology[traces], or unset the variable"),
    ],
)
def test_run_whose_traces_cannot_be_made_is_refused_first(tmp_path: Path, endpoint: str, without: str, sentence: str) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(counting()))
    code = (
        f"import sys; sys.modules.update({{name: None for name in '{without}'.split()}}); sys.argv[1:] = ['run', 'flow.yaml']\n"
        "from streamtopology.jobs.cli.process import main; sys.exit(main())"
    )
    environ = {**os.environ, ENDPOINT: endpoint}
    run = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith(f"streamtopology: {ENDPOINT}")
    assert sentence in run.stderr
    assert run.stderr.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["flow.yaml"]


def test_driver_in_a_pod_names_itself_to_collectors_and_shows_no_header() -> None:
    pod = {
        "STREAMTOPOLOGY_NAME": "flow",
        "STREAMTOPOLOGY_NAMESPACE": "space",
        "POD_NAME": "flow-driver-1",
        "POD_IP": "10.0.0.1",
    }
    given = {**pod, ENDPOINT: "http://c:4318", HEADERS: f"authorization={SECRET}"}
    environment = DriverEnvironment.read(given)
    assert environment.traces[ENDPOINT] == "http://c:4318"
    assert environment.resource == {
        "service.name": "flow",
        "service.namespace": "space",
        "service.instance.id": "flow-driver-1",
        "k8s.namespace.name": "space",
        "k8s.pod.name": "flow-driver-1",
    }
    assert SECRET not in repr(environment)
    with pytest.raises(TracesUnusable, match="only http/protobuf is spoken"):
        DriverEnvironment.read({**given, PROTOCOL: "grpc"})
