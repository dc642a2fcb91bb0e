"""Variables of containers: a proxy for what is outside of the cluster is none for its API server."""

from __future__ import annotations

from urllib.request import proxy_bypass_environment

import pytest
from kubernetes.client.rest import should_bypass_proxies

from streamtopology.contract.environment import exempt_api_server

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize("given", [{}, {"NO_PROXY": "example.com"}, {"no_proxy": "example.com"}])
@pytest.mark.parametrize("host", ["10.96.0.1", "kubernetes.default.svc", "fd00:10:96::1"])
def test_api_server_is_reached_past_a_proxy(given: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python's clients read the variables; Spark's reads NO_PROXY."""
    environ = {**IN_POD, **given}
    if ":" in host:
        environ["KUBERNETES_SERVICE_HOST"] = host
    exempt_api_server(environ)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, environ[name])
        assert ("example.com" in environ[name]) is bool(given)
    url = f"https://[{host}]:443" if ":" in host else f"https://{host}:443"
    assert should_bypass_proxies(url, environ["NO_PROXY"])
    assert proxy_bypass_environment(host)
    assert not proxy_bypass_environment("s3.amazonaws.com")
    assert environ["HTTPS_PROXY"] == "http://proxy:3128"


@pytest.mark.parametrize("environ", [{"HTTPS_PROXY": "http://proxy:3128"}, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, {}])
def test_nothing_changes_outside_of_a_cluster_or_without_a_proxy(environ: dict[str, str]) -> None:
    before = dict(environ)
    exempt_api_server(environ)
    assert environ == before
