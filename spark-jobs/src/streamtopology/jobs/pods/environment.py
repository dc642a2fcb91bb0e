"""What the operator tells a container by its environment, and the names and ports that both sides agree on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamtopology.jobs.failures import WrongUse

RPC_PORT, BLOCK_PORT, HTTP_PORT = 7078, 7079, 9090
SECRET_FILE = Path("/etc/streamtopology/spark/secret")
CODE_FOLDER = Path("/opt/streamtopology/code")
SCRATCH = Path("/var/streamtopology")
TERMINATION_LOG = Path("/dev/termination-log")

DEFAULT_DRIVER_HEAP_MEBIBYTES = 1024
LEAST_EXECUTOR_HEAP_MEBIBYTES = 480
"""Spark refuses to start an executor that sees less than 450 MiB, and of -Xmx450m it sees 435."""


def app_id(topology: str) -> str:
    """Spark's id of the application, the same after a restart; executor pods carry it as the label `spark-app-selector`."""
    return f"streamtopology-{topology}"


def service_host(topology: str, namespace: str) -> str:
    """Under which name executors find the driver, whatever pod it is."""
    return f"{topology}-driver.{namespace}.svc"


def routing_map_name(topology: str) -> str:
    return f"{topology}-routing"


@dataclass(frozen=True)
class DriverEnvironment:
    """`heap_mebibytes`: of the driver's JVM."""

    topology: str
    namespace: str
    pod: str
    pod_ip: str
    heap_mebibytes: int

    @staticmethod
    def read(environ: Mapping[str, str]) -> DriverEnvironment:
        """WrongUse names what is missing."""
        values = _needed(environ, "STREAMTOPOLOGY_NAME", "STREAMTOPOLOGY_NAMESPACE", "POD_NAME", "POD_IP")
        heap = environ.get("STREAMTOPOLOGY_MEMORY", str(DEFAULT_DRIVER_HEAP_MEBIBYTES))
        return DriverEnvironment(*values, heap_mebibytes=_mebibytes(heap))


@dataclass(frozen=True)
class ExecutorEnvironment:
    """`driver`: the host it is found at. `heap_mebibytes`: of the executor's JVM, at least what Spark needs."""

    topology: str
    driver: str
    class_name: str
    pod: str
    pod_ip: str
    heap_mebibytes: int

    @staticmethod
    def read(environ: Mapping[str, str]) -> ExecutorEnvironment:
        """WrongUse names what is missing."""
        *values, heap, _ = _needed(
            environ, "STREAMTOPOLOGY_NAME", "STREAMTOPOLOGY_DRIVER", "STREAMTOPOLOGY_CLASS", "POD_NAME", "POD_IP",
            "STREAMTOPOLOGY_MEMORY", "_SPARK_AUTH_SECRET",
        )  # fmt: skip
        return ExecutorEnvironment(*values, heap_mebibytes=max(_mebibytes(heap), LEAST_EXECUTOR_HEAP_MEBIBYTES))


def _needed(environ: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise WrongUse(f"this command runs in a pod that the operator makes, which sets {', '.join(missing)}: not set here")
    return [environ[name] for name in names]


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise WrongUse(f"STREAMTOPOLOGY_MEMORY={text!r} is not a number of mebibytes above 0")
    return int(text)
