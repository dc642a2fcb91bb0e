"""A short chaos run under an operator, whose process and ConfigMap are killed, too: every row counts once."""

from __future__ import annotations

import pytest
from support.kube.apiserver import ApiServer
from support.kube.fake_kubelet import FakeKubelet

from streamtopology.lab.bench.chaos import run

pytestmark = pytest.mark.timeout(900)

SEED, KILLED = 3, 5


def test_every_row_counts_once_when_the_operator_is_killed_too(
    api_server: ApiServer, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    result = run(runs=1, seed=SEED, kills=KILLED, operator=True)
    assert result["check"] == {"lost": 0, "duplicated": 0}
    killed = {row["case"] for row in result["results"] if row["case"].startswith("killed")}
    assert {"killed: operator", "killed: config map"} <= killed
