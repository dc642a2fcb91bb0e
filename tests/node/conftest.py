"""Fixtures of a whole Kubernetes node, on which containers run. `tests/kubernetes` has an API server alone."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from kubernetes import client
from support.kube.binaries import KubernetesMissing
from support.kube.chart import KeptOperator
from support.kube.node import Node, NodeUnsupported
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# Of the Dockerfile.
TARGETS = ("operator", "spark")


# Files of topologies that re-route by the speed of their executors. One after the other: two at a time need more CPU than two
# cores have, so that no limit is in force and all executors are as slow.
MEASURED = ("test_example", "test_from_nothing", "test_topology")


class InTwo(LoadScopeScheduling):
    """Gives one process the measured tests and another all others. By name: groups of xdist 3.8 do nothing with pytest 9.2."""

    def _split_scope(self, nodeid: str) -> str:
        return "measured" if Path(nodeid.partition("::")[0]).stem in MEASURED else "others"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return InTwo(config, log)


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """One node for the session."""
    try:
        cluster = Node()
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    except NodeUnsupported as unsupported:
        pytest.skip(str(unsupported))
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> list[Path]:
    """Archives of the images; built by the first of the processes that asks, or taken from the cache if nothing changed."""
    folder = tmp_path_factory.getbasetemp()
    listed = (folder if worker_id == "master" else folder.parent) / "archives"  # the parent is that of all processes
    with listed.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not listed.exists():
            build = [sys.executable, str(ROOT / "images" / "build.py"), *TARGETS, "--archive"]
            listed.write_text(subprocess.run(build, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return [Path(archive) for archive in listed.read_text().split()]


@pytest.fixture(scope="session")
def images(node: Node, archives: list[Path]) -> dict[str, str]:
    """Target of the Dockerfile -> name of its image on the node."""
    for archive in archives:
        node.import_image(archive)
    return {target: f"streamtopology/{target}:{VERSION}" for target in TARGETS}


@pytest.fixture(scope="session")
def kept_operator(node: Node, images: dict[str, str]) -> KeptOperator:
    """The operator that tests have in common; `remove` it to install another."""
    return KeptOperator(node)


@pytest.fixture
def operator(node: Node, kept_operator: KeptOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator is installed, and the test's commands find the node."""
    monkeypatch.setenv("KUBECONFIG", str(node.kubeconfig))
    kept_operator.install()


@pytest.fixture
def namespace(node: Node) -> Iterator[str]:
    """A namespace of the test's own; its pods end with the test."""
    name = node.new_namespace()
    yield name
    with node.client() as api:
        client.CoreV1Api(api).delete_namespace(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The node is gone when somebody reads about a failure: its story goes into the report."""
    report = yield
    node = item.funcargs.get("node")
    if report.failed and isinstance(node, Node):
        report.sections.append(("the node", node.story()))
    return report
