"""The KEDA example against the definition that KEDA publishes: a wrong field is refused, not ignored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from support.kube.apiserver import ApiServer
from support.kube.neighbours import KEDA
from support.kube.processes import ProcessFailed

_, SCALED_OBJECT = yaml.safe_load_all((Path(__file__).parents[2] / "examples" / "autoscale-keda.yaml").read_text())
CRD = "crd/scaledobjects.keda.sh"


@pytest.fixture(scope="module")
def keda(api_server: ApiServer) -> Iterator[None]:
    api_server.kubectl("apply", "--server-side", "-f", str(KEDA.definition("keda.sh_scaledobjects.yaml")))
    api_server.served(CRD)
    yield
    api_server.kubectl("delete", CRD, "--timeout=30s")


def tried(api_server: ApiServer, namespace: str, document: dict[str, Any]) -> str:
    how = ("--dry-run=server", "--validate=strict", f"--namespace={namespace}")
    return api_server.kubectl("create", *how, "-f", "-", stdin=json.dumps(document))


def test_keda_takes_the_example(api_server: ApiServer, namespace: str, keda: None) -> None:
    assert "created (server dry run)" in tried(api_server, namespace, SCALED_OBJECT)
    misspelt = SCALED_OBJECT | {"spec": SCALED_OBJECT["spec"] | {"minReplicas": 1}}
    with pytest.raises(ProcessFailed, match=r'unknown field "spec\.minReplicas"'):
        tried(api_server, namespace, misspelt)


def test_its_query_is_promql() -> None:
    (query,) = (
        trigger["metadata"]["query"] for trigger in SCALED_OBJECT["spec"]["triggers"] if trigger["type"] == "prometheus"
    )
    promql_parser.parse(query)
