"""The CronJob of examples/schedule.yaml on a real API server: what its pod runs starts a run and waits for its end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.binaries import binary
from support.kube.flow import an_operator
from support.kube.running_operator import Topologies
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "schedule.yaml"


@pytest.fixture
def ending(drivers: FakeDrivers) -> Iterator[None]:
    """The input of every topology has come to its end."""
    drivers.phase = "done"
    yield
    drivers.phase = "running"


def test_each_job_is_one_run_and_succeeds_when_it_has_completed(
    topologies: Topologies, api_server: ApiServer, drivers: FakeDrivers, ending: None, tmp_path: Path
) -> None:
    def kubectl(*arguments: str) -> str:
        return api_server.kubectl(*arguments, f"--namespace={topologies.namespace}")

    kubectl("apply", "-f", str(EXAMPLE))
    kubectl("create", "job", "now", "--from=cronjob/visits")
    pod = json.loads(kubectl("get", "job", "now", "--output=json"))["spec"]["template"]["spec"]
    environment = {
        "PATH": f"{binary('kubectl').parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),  # of kubectl's cache
        "KUBECONFIG": str(api_server.kubeconfig_of(topologies.namespace, pod["serviceAccountName"])),
    }
    with an_operator(api_server, (topologies.namespace,), drivers):
        eventually(lambda: topologies.status("visits").get("phase") == "Completed", 120)
        for generation in (3, 5):
            ran = subprocess.run(
                pod["containers"][0]["command"], env=environment, capture_output=True, text=True, check=False, timeout=300
            )
            assert ran.returncode == 0, ran.stderr
            assert topologies.status("visits")["completed"] == generation
            assert topologies.condition("visits", "Ready") == ("True", "Completed")
        eventually(lambda: topologies.driver_pods("visits") == [])
