"""The chart's dashboard and alerts, asked of a real Prometheus that scrapes a running driver and the operator's metrics."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import start_http_server
from support.feeding import Feed
from support.manifests import counting, files, manifest, memory_sink
from support.waiting import eventually

from streamtopology.k8s.io.metrics import OperatorMetrics

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(600)

CHART = Path(__file__).parents[2] / "charts" / "streamtopology" / "files"
# As the chart's PodMonitor gives them to what a driver serves.
LABELS = {"namespace": "streams", "topology": "shown"}
# Of a Kafka source, and of one that has lost rows.
ELSEWHERE = "streamtopology_(lag_rows|skipped_rows_total)"


class Prometheus:
    """A Prometheus of its own. `targets`: job -> address and labels."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}"

    def is_up(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=60) as answer:
                return answer.status == 200
        except URLError:
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of a query now."""
        with urlopen(f"{self._url}/api/v1/query?query={quote(query)}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    def rules(self) -> list[dict[str, Any]]:
        with urlopen(f"{self._url}/api/v1/rules", timeout=60) as answer:
            return [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]


@contextmanager
def scraping(folder: Path, targets: dict[str, tuple[str, dict[str, str]]]) -> Iterator[Prometheus]:
    """Scrape these each second, and judge the chart's alerts, until the block ends."""
    command = shutil.which("prometheus")
    if command is None:
        pytest.skip("no prometheus: scripts/prometheus-packages.sh installs it (Debian: apt-get install prometheus)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    jobs = [
        {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [address], "labels": labels}]}
        for job, (address, labels) in targets.items()
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": jobs,
        "rule_files": [str(CHART / "rules.yaml")],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    arguments = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/tsdb"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([command, *arguments, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            prometheus = Prometheus(folder, port)
            eventually(prometheus.is_up, 120)
            yield prometheus
        finally:
            process.terminate()
            process.wait(60)


def panels() -> Iterator[tuple[str, str]]:
    """Title and query of each panel, as Grafana asks for one topology."""
    board = json.loads((CHART / "dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$namespace", LABELS["namespace"]).replace("$topology", LABELS["topology"])
            if not re.search(ELSEWHERE, query):
                yield panel["title"], query.replace("$__interval", "1m").replace("$__range", "1h")


def variables() -> list[str]:
    """The metrics by which Grafana fills the dashboard's choices."""
    listed = json.loads((CHART / "dashboard.json").read_text())["templating"]["list"]
    asked = [one["query"]["query"] for one in listed if isinstance(one.get("query"), dict)]
    return [re.sub(r"label_values\((.*), \w+\)", r"\1", query).replace("$namespace", LABELS["namespace"]) for query in asked]


def has_figures(series: list[dict[str, Any]]) -> bool:
    return any(one["value"][1] != "NaN" for one in series)


def operator_metrics() -> tuple[OperatorMetrics, str]:
    """Serve the metrics of an operator that has looked at a topology once, and has copied it."""
    metrics = OperatorMetrics()
    ready = {"type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": "2026-11-28T00:00:00Z"}
    metrics.show_conditions(*LABELS.values(), [ready])
    status = {"phase": "Completed", "conditions": [ready]}
    metrics.snapshots.follow(lambda: [{"metadata": {"namespace": "streams"}, "spec": {"topology": "shown"}, "status": status}])
    metrics.reconcile_seconds.labels("done").observe(0.01)
    metrics.queue_length.set(0)
    metrics.leading.set(1)
    server, _ = start_http_server(0, "127.0.0.1", metrics.registry)
    return metrics, f"127.0.0.1:{server.server_port}"


def test_each_panel_of_the_dashboard_has_series_of_a_running_driver(runner: Runner) -> None:
    feed = Feed(runner.folder / "rows", 6_000)
    operator = counting("words", **{"with": {"costPerTuple": "20us"}})
    sinks = [memory_sink("shown", "words")]
    timed = files(feed.folder) | {"watermark": {"column": "value", "delay": "1h"}}  # values as epoch seconds
    shown = manifest("shown", [timed], [operator], sinks, trigger={}, rebalance={"interval": "3s"})
    metrics, operator_address = operator_metrics()
    with runner.running(shown) as running:
        running.wait_until(lambda: running.history.is_ready())
        targets = {
            "driver": (urlsplit(running.history.address).netloc, LABELS),
            "operator": (operator_address, {"namespace": "operators"}),
        }
        with scraping(runner.folder, targets) as prometheus:
            unanswered = {*panels(), *(("choices", query) for query in variables())}

            def all_answered() -> bool:
                metrics.reconcile_seconds.labels("done").observe(0.01)
                metrics.api_answered("GET", "200")
                answered = {one for one in unanswered if has_figures(prometheus.ask(one[1]))}
                unanswered.difference_update(answered)
                return not unanswered

            runner.embedded.resize("small", 0.1)  # so that rows are re-routed, and state moves
            feed.until(running, all_answered)
            assert unanswered == set()
            eventually(lambda: all(rule["lastEvaluation"] > "1" for rule in prometheus.rules()), 120)
            assert {rule["health"] for rule in prometheus.rules()} == {"ok"}
            alerts = [rule for rule in prometheus.rules() if rule["type"] == "alerting"]
            firing = [rule["name"] for rule in alerts if rule["state"] == "firing" and rule["duration"]]
            assert firing == []
