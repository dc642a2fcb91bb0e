"""The one fake of the operator's tests: drivers that answer `/stats` as real ones do, with switches for what goes wrong.

Each reads its topology's routing ConfigMap through the API, takes changed topologies and epochs as the seam says, and
commits one batch for each time it is asked, on executors as fast as their class's CPU. No Spark, no clock.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlparse

import numpy as np
from kubernetes import client

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings import first_table
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport
from streamtopology.routing.table.table import BUCKETS
from streamtopology.topology import Level, Topology, difference, parse
from support.kube.cluster import Cluster
from support.wire_stats import whole

# `slow`: answers too late; `gone`: hangs up; `endless`: a rate without end; `refuses-epochs`, `deaf`: does not take epochs,
# saying so or not.
Fault = Literal["none", "slow", "500", "gone", "garbage", "old-version", "endless", "refuses-epochs", "deaf"]

ROWS, KEYS, RATE, FIXED_SECONDS, KEPT = 50_000, 2_000, 100_000.0, 0.05, 64
Key = tuple[str, str]


@dataclass
class Driver:
    """One driver's process and its checkpoint; a new pod keeps the checkpoint (`newest`, `committed`, `history`)."""

    pod: str
    topology: Topology
    generation: int
    newest: Epoch
    active: int | None = None
    committed: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, Any] | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an operator that hangs up, as a killed one does."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FakeDrivers:
    """Serves every topology's driver at `url`; a context manager. `faults`: by (namespace, name), changed at any time.

    `missing`: executors that never came. `rows`: per batch. `now`: what dates the batches. `idle_seconds`: for how long no
    rows have come, None while there are some; `phase`: as drivers report it.
    """

    def __init__(self, cluster: Cluster, rows: int = ROWS) -> None:
        self.faults: dict[Key, Fault] = {}
        self.asked: dict[Key, int] = {}
        self.missing: dict[Key, set[str]] = {}
        self.drivers: dict[Key, Driver] = {}
        self.rows = rows
        self.now = time.time
        self.idle_seconds: float | None = None
        self.phase = "running"
        self._cluster = cluster
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake drivers", daemon=True)

    @property
    def url(self) -> str:
        """For the operator's --driver-url."""
        return f"http://127.0.0.1:{self._server.server_port}/{{namespace}}/{{name}}"

    def __enter__(self) -> Self:
        self._api = self._cluster.client()
        self._core = client.CoreV1Api(self._api)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._api.close()

    @contextmanager
    def failing(self, namespace: str, name: str, fault: Fault) -> Iterator[None]:
        self.faults[namespace, name] = fault
        try:
            yield
        finally:
            del self.faults[namespace, name]

    def stats(self, key: Key, since: int) -> dict[str, Any] | None:
        """One more batch, and what the driver says then; None while there is no ConfigMap."""
        with self._lock:
            driver = self._current(key)
            if driver is None:
                return None
            self._listen(key, driver)
            if self.idle_seconds is None or driver.active != driver.newest.number:
                self._commit(driver)
            answer = _answer(driver, since, self.missing.get(key, set()), self.now())
            return {**answer, "phase": self.phase, "idle_seconds": self.idle_seconds}

    def _current(self, key: Key) -> Driver | None:
        """The driver's process: another one if the pod is another."""
        namespace, name = key
        selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/component=driver"
        pods = self._core.list_namespaced_pod(namespace, label_selector=selector).items
        alive = sorted(pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None)
        routing = self._routing(key)
        if not alive or routing is None:
            return None
        driver = self.drivers.get(key)
        if driver is None or driver.pod not in alive:
            topology = parse(json.loads(routing.data["topology"]))
            before = driver.newest if driver else None
            newest = _first_routes(topology, before.number + 1 if before else 1, before)
            restarted = Driver(alive[-1], topology, int(routing.data["generation"]), newest)
            if driver is not None:
                restarted = replace(restarted, committed=driver.committed, history=driver.history, active=driver.active)
            driver = self.drivers[key] = restarted
        return driver

    def _routing(self, key: Key) -> Any:
        try:
            return self._core.read_namespaced_config_map(f"{key[1]}-routing", key[0])
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def _listen(self, key: Key, driver: Driver) -> None:
        """Takes what the ConfigMap has, as the seam says."""
        routing = self._routing(key)
        if routing is None:
            return
        wanted, generation = parse(json.loads(routing.data["topology"])), int(routing.data["generation"])
        change = difference(driver.topology, wanted)
        if change.level is Level.RESTART:
            driver.refused = {"epoch": None, "generation": generation, "why": "; ".join(change.sentences)}
            return
        if change.level in (Level.ROUTE, Level.SCALE):
            driver.newest = _first_routes(wanted, driver.newest.number + 1, driver.newest)
        driver.topology, driver.generation, driver.refused = wanted, generation, None
        self._take_epoch(key, driver, routing)

    def _take_epoch(self, key: Key, driver: Driver, routing: Any) -> None:
        number = int(routing.data.get("epochNumber", 0))
        fault = self.faults.get(key, "none")
        if number <= driver.newest.number or routing.data["epochState"] != "ready" or fault == "deaf":
            return
        if fault == "refuses-epochs" or int(routing.data["epochGeneration"]) != driver.generation:
            driver.refused = {"epoch": number, "generation": driver.generation, "why": "asked to refuse"}
            return
        driver.newest = Epoch.from_json(gzip.decompress(b64decode(routing.binary_data["epoch"])).decode())

    def _commit(self, driver: Driver) -> None:
        epoch = driver.newest
        number = driver.committed[-1]["number"] + 1 if driver.committed else 0
        reports, sources = _loads(driver.topology, epoch, self.rows)
        seconds = max((report.task_seconds for report in (*reports, *sources)), default=0.0)
        if driver.active is not None and driver.active != epoch.number:
            driver.history.append(
                {
                    "epoch": epoch.number, "batch": number, "operator": next(iter(epoch.routes)),
                    "reason": describe(epoch.reason),
                    "keys_moved": 7, "bytes_moved": 700, "plan_seconds": 0.0, "published_to_active_seconds": 0.1,
                    "predicted_gain": 0.2, "measured_gain": None, "batches": 1,
                }
            )  # fmt: skip
        driver.active = epoch.number
        imbalance = _imbalance(driver.topology, reports)
        driver.committed.append(
            {
                "number": number, "epoch": epoch.number, "rows": self.rows, "seconds": seconds,
                "committed_at": self.now(), "attempt": 1, "imbalance": imbalance, "capacities": [],
                "reports": [report.to_wire() for report in reports],
                "source_reports": [report.to_wire() for report in sources],
            }
        )  # fmt: skip
        del driver.committed[:-KEPT]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        drivers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                asked = urlparse(self.path)
                _, namespace, name, *_ = asked.path.split("/")
                key = (namespace, name)
                drivers.asked[key] = drivers.asked.get(key, 0) + 1
                fault = drivers.faults.get(key, "none")
                if fault == "gone":
                    self.close_connection = True
                    return
                if fault == "slow":
                    drivers._released.wait(30)
                if fault == "500":
                    return self._say(500, b"broken")
                if fault == "garbage":
                    return self._say(200, b'{"format": 1, "batches": [')
                stats = drivers.stats(key, int(parse_qs(asked.query)["since"][0]))
                if stats is not None and fault == "old-version":
                    stats["format"] = 0
                if stats is not None and fault == "endless":
                    stats["rows_per_second"] = float("inf")
                self._say(200 if stats else 503, json.dumps(stats).encode())

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _slots(topology: Topology) -> list[tuple[str, str, float]]:
    """(class, executor, CPU) of each slot, in the order of the seam."""
    return [(one.name, f"{one.name}-{n}", one.cpu) for one in topology.executors for n in range(one.replicas)]


def _first_routes(topology: Topology, number: int, before: Epoch | None) -> Epoch:
    """Keep tables that still fit; start others with hashing."""
    routes: dict[str, Route] = {}
    for operator in topology.operators:
        instances = tuple(range(operator.parallelism))
        table = first_table(operator.grouping.policy, instances, operator.grouping.options)
        known = before.routes.get(operator.name) if before else None
        if known is not None and known.table is not None and table is not None and known.instances == instances:
            table = known.table
        routes[operator.name] = Route(operator.grouping.policy, table, instances, operator.grouping.options)
    return Epoch(number, routes, (), EpochReason(EpochCause.FIRST if before is None else EpochCause.APPLIED))


def _keys() -> tuple[np.ndarray, np.ndarray]:
    hashes = np.sort(np.random.default_rng(7).integers(0, 2**64, KEYS, dtype=np.uint64))
    weights = np.random.default_rng(8).permutation(1 / np.arange(1, KEYS + 1))
    return hashes, weights / weights.sum()


_HASHES, _SHARES = _keys()


def _loads(topology: Topology, epoch: Epoch, rows: int) -> tuple[list[LoadReport], list[SourceReport]]:
    """The reports of each instance and source task: Zipf keys, time by rows and the CPU of its slot."""
    slots = _slots(topology)
    per_key = (rows * _SHARES).astype(np.int64)
    reports: list[LoadReport] = []
    for name, route in epoch.routes.items():
        owners = None if route.table is None else route.table.lookup(_HASHES)
        for instance in route.instances:
            mine = per_key // len(route.instances) if owners is None else np.where(owners == instance, per_key, 0)
            slot = instance % len(slots)
            reports.append(_report(name, instance, slot, mine, slots[slot][2]))
    each = rows / max(len(slots), 1)
    sources = [
        SourceReport(slot, int(each), each / (20 * RATE * cpu), each / (20 * RATE * cpu) + FIXED_SECONDS / 10)
        for slot, (_, _, cpu) in enumerate(slots)
    ]
    return reports, sources


def _report(name: str, instance: int, slot: int, rows: np.ndarray, cpu: float) -> LoadReport:
    heavy = np.sort(np.argsort(-rows, kind="stable")[: min(100, np.count_nonzero(rows))])
    light = rows.copy()
    light[heavy] = 0
    busy = float(rows.sum()) / (RATE * cpu)
    return LoadReport(
        operator=name, instance=instance, slot=slot, rows=int(rows.sum()), busy_seconds=busy,
        task_seconds=busy + FIXED_SECONDS, state_keys=int((rows > 0).sum()), state_bytes=48 * int((rows > 0).sum()),
        heavy_hashes=_HASHES[heavy], heavy_rows=rows[heavy], heavy_seconds=np.zeros(len(heavy)),
        heavy_bytes=np.full(len(heavy), 48, np.int64), heavy_labels=tuple(str(key) for key in heavy),
        bucket_rows=BucketRows.of_keys(_HASHES, light, BUCKETS),
    )  # fmt: skip


def _imbalance(topology: Topology, reports: list[LoadReport]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for operator in topology.operators:
        busy = [report.busy_seconds for report in reports if report.operator == operator.name]
        mean = sum(busy) / len(busy)
        worst[operator.name] = max(busy) / mean - 1 if mean else 0.0
    return worst


def _answer(driver: Driver, since: int, missing: set[str], now: float) -> dict[str, Any]:
    last = driver.committed[-1]
    slots = [
        {"index": index, "executor": executor, "class": name, "cpu": cpu}
        for index, (name, executor, cpu) in enumerate(_slots(driver.topology))
        if executor not in missing
    ]
    return whole({
        "topology": driver.topology.name, "phase": "running", "generation": driver.generation,
        "replicas": {one.name: one.replicas for one in driver.topology.executors},
        "epoch": last["epoch"], "newest_epoch": driver.newest.number, "batch": last["number"],
        "answered_at": now,
        "rows_per_second": last["rows"] / last["seconds"] if last["seconds"] else None, "bound_rows_per_second": 0.0,
        "slots": slots, "policies": {one.name: one.grouping.policy for one in driver.topology.operators},
        "routing": driver.newest.to_wire(), "checkpoint": "file:///checkpoint", "refused": driver.refused,
        "last_batch": last, "batches": [batch for batch in driver.committed if batch["number"] > since],
        "reconfigurations": driver.history,
        "executors": [
            {
                "executor": str(slot["index"] + 1), "class": slot["class"], "pod": f"{driver.topology.name}-{slot['executor']}",
                "slot": slot["index"], "admitted": True,
            }
            for slot in slots
        ],
    })  # fmt: skip
