"""The environment of a container that the operator starts, and the folders of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import LEAST_EXECUTOR_HEAP_MEBIBYTES, SECRET_FOLDER
from streamtopology.contract.pods import SCRATCH as SCRATCH_FOLDER
from streamtopology.contract.pods import SECRET_FILE as SECRET_FILE_NAME
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.spark.history_log import history_log
from streamtopology.jobs.view.hidden_keys import hides_keys
from streamtopology.tracing.opening import check_traces

SECRET_FILE = Path(SECRET_FOLDER, SECRET_FILE_NAME)
CODE_FOLDER = Path("/opt/streamtopology/code")
SCRATCH = Path(SCRATCH_FOLDER)
TERMINATION_LOG = Path("/dev/termination-log")

DEFAULT_DRIVER_HEAP_MEBIBYTES = 1024


@dataclass(frozen=True)
class DriverEnvironment:
    """`heap_mebibytes`: of the driver's JVM. `page_hosts`: names by which browsers may open its page. `hides_keys`: from all
    who ask for its figures. `history_log`: Spark's settings for one. `traces`: OpenTelemetry's variables."""

    topology: str
    namespace: str
    pod: str
    pod_ip: str
    heap_mebibytes: int
    page_hosts: tuple[str, ...] = ()
    hides_keys: bool = False
    history_log: Mapping[str, str] = field(default_factory=dict[str, str])
    traces: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # with the headers, which may hold a token

    @property
    def resource(self) -> dict[str, str]:
        """The driver by OpenTelemetry's names."""
        return {
            "service.name": self.topology,
            "service.namespace": self.namespace,
            "service.instance.id": self.pod,
            "k8s.namespace.name": self.namespace,
            "k8s.pod.name": self.pod,
        }

    @staticmethod
    def read(environ: Mapping[str, str]) -> DriverEnvironment:
        """Read the environment. Raises WrongUse or TracesUnusable with the names of missing or wrong variables."""
        check_traces(environ, "streamtopology")
        values = _needed(environ, variables.TOPOLOGY, variables.NAMESPACE, variables.POD_NAME, variables.POD_IP)
        heap = environ.get(variables.HEAP_MEBIBYTES, str(DEFAULT_DRIVER_HEAP_MEBIBYTES))
        return DriverEnvironment(
            *values,
            heap_mebibytes=_mebibytes(heap),
            page_hosts=variables.page_hosts(environ),
            hides_keys=hides_keys(environ),
            history_log=history_log(environ),
            traces={name: value for name, value in environ.items() if name.startswith("OTEL_")},
        )


@dataclass(frozen=True)
class ExecutorEnvironment:
    """`driver`: its host. `heap_mebibytes`: of the executor's JVM, at least what Spark needs."""

    topology: str
    driver: str
    class_name: str
    pod: str
    pod_ip: str
    heap_mebibytes: int

    @staticmethod
    def read(environ: Mapping[str, str]) -> ExecutorEnvironment:
        """Read the environment. Raises WrongUse with the names of missing variables."""
        *values, heap, _ = _needed(
            environ,
            variables.TOPOLOGY,
            variables.DRIVER_HOST,
            variables.EXECUTOR_CLASS,
            variables.POD_NAME,
            variables.POD_IP,
            variables.HEAP_MEBIBYTES,
            variables.SPARK_AUTH_SECRET,
        )
        return ExecutorEnvironment(*values, heap_mebibytes=max(_mebibytes(heap), LEAST_EXECUTOR_HEAP_MEBIBYTES))


def logs_json(environ: Mapping[str, str]) -> bool:
    """Return whether log lines are JSON objects. Raises WrongUse."""
    asked = environ.get(variables.LOG_FORMAT, "text")
    if asked not in variables.LOG_FORMATS:
        raise WrongUse(f"{variables.LOG_FORMAT}={asked!r}: expected one of {', '.join(variables.LOG_FORMATS)}")
    return asked == "json"


def _needed(environ: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if not environ.get(name)]
    if missing:
        raise WrongUse(f"this command runs in a pod that the operator makes, which sets {', '.join(missing)}: not set here")
    return [environ[name] for name in names]


def _mebibytes(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise WrongUse(f"{variables.HEAP_MEBIBYTES}={text!r} is not a number of mebibytes above 0")
    return int(text)
