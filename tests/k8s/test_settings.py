"""The operator's flags: what cannot be is refused with a message, before anything is started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streamtopology.k8s.__main__ import configuration
from streamtopology.k8s.io.api import NoCluster
from streamtopology.k8s.settings import Settings, read_settings


def test_flags_win_over_variables_and_variables_over_defaults():
    variables = {"STREAMTOPOLOGY_WORKERS": "3", "STREAMTOPOLOGY_PROBE_PORT": "81", "STREAMTOPOLOGY_LOG_LEVEL": "debug"}
    settings = read_settings(["--workers", "4", "--lease-seconds", "5"], variables)
    found = (settings.workers, settings.probe_port, settings.log_level, settings.lease_seconds, settings.drain_seconds)
    assert found == (4, 81, "DEBUG", 5, Settings.drain_seconds)


@pytest.mark.parametrize(("text", "user"), [("", None), ("2000", 2000)])
def test_pods_have_the_user_of_the_settings_or_none(text: str, user: int | None):
    assert read_settings([], {"STREAMTOPOLOGY_POD_USER": text}).pod_user == user
    assert read_settings(["--pod-user", text], {}).pod_user == user
    assert read_settings([], {}).pod_user == 10001


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("log-level", "nope", "one of DEBUG, INFO, WARNING"),
        ("probe-port", "99999999", "a number from 0 to 65535"),
        ("metrics-port", "-1", "a number from 0 to 65535"),
        ("workers", "0", "a number of at least 1"),
        ("workers", "2.5", "a number of at least 1"),
        ("lease-seconds", "4", "a number of at least 5"),
        ("drain-seconds", "nan", "a number of at least 0"),
        ("drain-seconds", "inf", "a number of at least 0"),
        ("pod-user", "0", "a number from 1 to 2147483647"),
        ("pod-user", "root", "a number from 1 to 2147483647"),
        ("leader-election", "yes", "one of true, false"),
        ("disruption-budget", "", "one of true, false"),
        ("log-format", "yaml", "one of text, json"),
        ("driver-url", "http://{host}:{port}", "a URL with no other placeholders than {ip}, {port}, {namespace}, {name}"),
        ("driver-url", "http://{}:9090", "a URL with no other placeholders"),
        ("driver-url", "http://{ip:9090", "a URL with no other placeholders"),
    ],
)
def test_wrong_values_are_usage_errors(flag: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]):
    variable = f"STREAMTOPOLOGY_{flag.upper().replace('-', '_')}"
    for arguments, environment in (([f"--{flag}={value}"], {}), ([], {variable: value})):
        with pytest.raises(SystemExit) as ended:
            read_settings(arguments, environment)
        assert ended.value.code == 2
        assert f"--{flag}: found '{value}', expected {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "leads_alone"), [("True", False), ("TRUE", False), ("false", True), ("False", True)])
def test_words_are_read_in_any_case_from_flags_and_variables(text: str, leads_alone: bool):
    variables = {"STREAMTOPOLOGY_LEADER_ELECTION": text, "STREAMTOPOLOGY_DISRUPTION_BUDGET": text}
    flags = [f"--leader-election={text}", f"--disruption-budget={text}"]
    for settings in (read_settings([], variables), read_settings(flags, {})):
        assert (settings.leader_election, settings.disruption_budget) == (not leads_alone, not leads_alone)
    assert read_settings([], {"STREAMTOPOLOGY_LOG_FORMAT": "JSON"}).log_format == "json"


@pytest.mark.parametrize("content", [None, b"\x80\xff", b"a: [", b"7"])
def test_without_a_usable_kubeconfig_there_is_no_cluster(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "config"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    with pytest.raises(NoCluster, match=r"no cluster to operate: .* set KUBECONFIG"):
        asyncio.run(configuration())
