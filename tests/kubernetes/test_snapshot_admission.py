"""The CRD of StreamTopologySnapshot on a real API server: names, places, and a spec that stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.kube.apiserver import ApiServer
from support.kube.processes import ProcessFailed
from support.kube.running_operator import Topologies
from support.kube.snapshots import install_snapshots, snapshot

EXAMPLE = Path(__file__).parents[2] / "examples" / "snapshot.yaml"


def apply(api_server: ApiServer, body: object, tmp_path: Path, *arguments: str) -> str:
    """The output of `kubectl apply`, or the refusal."""
    file = tmp_path / "object.json"
    file.write_text(json.dumps(body), encoding="utf-8")
    try:
        return api_server.kubectl("apply", "-f", str(file), *arguments)
    except ProcessFailed as refused:
        return str(refused)


@pytest.fixture
def served(api_server: ApiServer) -> None:
    install_snapshots(api_server)


def test_example_is_taken_as_it_is(topologies: Topologies, api_server: ApiServer, served: None) -> None:
    dry = ("apply", "--server-side", "--dry-run=server", "--validate=strict", f"--namespace={topologies.namespace}")
    output = api_server.kubectl(*dry, "-f", str(EXAMPLE))
    assert "streamtopologysnapshot.streamtopology.dev/flights-before-upgrade serverside-applied" in output


def test_snapshot_is_admitted_once_and_refused_where_it_cannot_be_made(
    topologies: Topologies, api_server: ApiServer, served: None, tmp_path: Path
) -> None:
    space = f"--namespace={topologies.namespace}"
    assert "created" in apply(api_server, snapshot(), tmp_path, space)
    moved = snapshot(to="s3://backup/elsewhere")
    assert "a snapshot is made once" in apply(api_server, moved, tmp_path, space)
    for wrong in ("backup/nightly", "ftp://backup/nightly"):
        assert "expected an absolute path" in apply(api_server, snapshot("other", wrong), tmp_path, space)
    assert "expected s3://BUCKET/PREFIX" in apply(api_server, snapshot("other", "s3://B"), tmp_path, space)
    assert "at most 54 characters" in apply(api_server, snapshot("n" * 55), tmp_path, space)
