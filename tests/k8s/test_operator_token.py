"""Tokens expire: the operator takes the next one of its kubeconfig, in the calls and in the watches."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from pathlib import Path

import pytest
from kubernetes.aio.client import Configuration

from streamtopology.k8s.__main__ import TOKEN_SECONDS, Tokens


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the kubeconfig names."""
    file, kubeconfig = tmp_path / "token", tmp_path / "config"
    parts = {
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "one", "user": {"tokenFile": str(file)}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    }
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "one", **parts}))
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    return file


def sent(configuration: Configuration) -> str | None:
    return asyncio.run(configuration.get_api_key_with_prefix("BearerToken"))


def test_next_token_of_the_kubeconfig_is_sent_by_calls_and_watches(token: Path) -> None:
    clock, calls = Clock(), Configuration()
    calls.refresh_api_key_hook = Tokens({"BearerToken": "Bearer first"}, clock).renew  # type: ignore[assignment]
    watches = deepcopy(calls)
    token.write_text("second")
    assert sent(calls) == sent(watches) == "Bearer first"
    clock.now += TOKEN_SECONDS
    assert sent(calls) == sent(watches) == "Bearer second"


def test_token_is_kept_while_there_is_no_other(token: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, calls = Clock(), Configuration()
    calls.refresh_api_key_hook = Tokens({"BearerToken": "Bearer first"}, clock).renew  # type: ignore[assignment]
    clock.now += TOKEN_SECONDS
    assert sent(calls) == "Bearer first"
    assert "the kubeconfig cannot be read again" in caplog.text
    token.write_text("second")
    clock.now += TOKEN_SECONDS
    assert sent(calls) == "Bearer second"
