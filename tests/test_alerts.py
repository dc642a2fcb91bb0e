"""The chart's alerts and dashboard: they ask for metrics that exist, and each alert has its section in the docs."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from support.histories import run

from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.k8s.io.metrics import OperatorMetrics

ROOT = Path(__file__).parents[1]
FILES = ROOT / "charts" / "streamtopology" / "files"
RUNBOOK = "https://streamtopology.dev/run/alerts/#"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FILES / "rules.yaml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
PANELS: list[dict[str, Any]] = json.loads((FILES / "dashboard.json").read_text())["panels"]


def queries() -> list[str]:
    """Of the rules and of the dashboard."""
    return [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_queries_are_promql():
    for query in queries():
        promql_parser.parse(query.replace("$__interval", "1m").replace("$__range", "1h"))  # which Grafana puts in
    with pytest.raises(ValueError, match="rate"):
        promql_parser.parse("rate(streamtopology_rows_total)")


def test_queries_ask_for_metrics_that_exist():
    families = [*OperatorMetrics().registry.collect(), *Metrics(run(1)).registry.collect()]
    known = {f"{each.name}_total" if each.type == "counter" else each.name for each in families} | RECORDED
    for query in queries():
        for name in re.findall(r"streamtopology[_:]\w+", query):
            assert re.sub(r"_(bucket|count)$", "", name) in known, f"{name} in {query}"


def test_pages_name_every_metric_that_is_served():
    for metrics, page in ((Metrics(run(1)), "docs/reference/stats.md"), (OperatorMetrics(), "docs/run/operations.md")):
        text = (ROOT / page).read_text()
        served = [f"{each.name}_total" if each.type == "counter" else each.name for each in metrics.registry.collect()]
        assert [name for name in served if f"`{name}`" not in text] == []


def test_each_alert_says_what_to_do_and_has_a_section_of_its_own():
    page = (ROOT / "docs" / "run" / "alerts.md").read_text()
    sections = re.findall(r"^### (StreamTopology\w+)$", page, re.MULTILINE)
    assert Counter(sections) == Counter(alert["alert"] for alert in ALERTS)
    for alert in ALERTS:
        assert alert["annotations"]["runbook_url"] == RUNBOOK + alert["alert"].lower()
        assert len(alert["annotations"]["description"]) > 80
        assert alert["labels"]["severity"] in ("critical", "warning")


def test_dashboard_shows_conditions_what_waits_and_backups():
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    asked = {
        "streamtopology_operator_condition",
        "streamtopology_lag_rows",
        "streamtopology_watermark_timestamp_seconds",
        "streamtopology_operator_snapshots",
        "streamtopology_operator_snapshot_completed_timestamp_seconds",
        "streamtopology_operator_api_requests_total",
    }
    assert {metric for metric in asked if metric not in shown} == set()
