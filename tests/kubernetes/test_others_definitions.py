"""What we ship for other operators, against the definitions that those publish: a wrong field is refused, not ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from support.kube.apiserver import ApiServer
from support.kube.binaries import binary, require
from support.kube.neighbours import KEDA, PROMETHEUS_OPERATOR
from support.kube.processes import ProcessFailed, run

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "streamtopology"
KEDA_EXAMPLE = ROOT / "examples" / "autoscale-keda.yaml"

DEFINITIONS = {
    "podmonitors.monitoring.coreos.com": (PROMETHEUS_OPERATOR, "monitoring.coreos.com_podmonitors.yaml"),
    "prometheusrules.monitoring.coreos.com": (PROMETHEUS_OPERATOR, "monitoring.coreos.com_prometheusrules.yaml"),
    "scaledobjects.keda.sh": (KEDA, "keda.sh_scaledobjects.yaml"),
}


@pytest.fixture(scope="module")
def neighbours(api_server: ApiServer) -> Iterator[None]:
    for module, file in DEFINITIONS.values():
        api_server.kubectl("apply", "--server-side", "-f", str(module.definition(file)))
    names = [f"crd/{name}" for name in DEFINITIONS]
    api_server.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    yield
    api_server.kubectl("delete", *names, "--timeout=30s")


def tried(api_server: ApiServer, namespace: str, document: dict[str, Any]) -> str:
    """What the API server says to it, every field known."""
    how = ("--dry-run=server", "--validate=strict", f"--namespace={namespace}")
    return api_server.kubectl("create", *how, "-f", "-", stdin=json.dumps(document))


def the_charts(kind: str) -> list[dict[str, Any]]:
    require(["helm"])
    where = ("--kube-version", "1.30.0", "--api-versions", "monitoring.coreos.com/v1")
    rendered = run([str(binary("helm")), "template", "streamtopology", str(CHART), *where], 60)
    found = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] == kind]
    for each in found:
        each["metadata"].pop("namespace", None)
    return found


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_prometheus_operator_takes_what_the_chart_brings(
    api_server: ApiServer, namespace: str, neighbours: None, kind: str
) -> None:
    documents = the_charts(kind)
    assert documents
    for document in documents:
        assert "created (server dry run)" in tried(api_server, namespace, document)


def test_keda_takes_the_example(api_server: ApiServer, namespace: str, neighbours: None) -> None:
    _, scaled_object = yaml.safe_load_all(KEDA_EXAMPLE.read_text())
    assert "created (server dry run)" in tried(api_server, namespace, scaled_object)
    scaled_object["spec"]["minReplicas"] = 1
    with pytest.raises(ProcessFailed, match=r'unknown field "spec\.minReplicas"'):
        tried(api_server, namespace, scaled_object)


def queries() -> list[str]:
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    board = json.loads((CHART / "files" / "dashboard.json").read_text())
    _, scaled_object = yaml.safe_load_all(KEDA_EXAMPLE.read_text())
    triggers = [trigger["metadata"].get("query") for trigger in scaled_object["spec"]["triggers"]]
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*asked, *filter(None, triggers), *(query.replace("$__interval", "1m") for query in shown)]


def test_queries_are_promql() -> None:
    for query in queries():
        promql_parser.parse(query)
    with pytest.raises(ValueError, match="rate"):
        promql_parser.parse("rate(streamtopology_rows_total)")
