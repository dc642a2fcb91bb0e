"""Names, ports and folders that the operator gives its pods and the processes in them go by."""

from __future__ import annotations

# Of the driver: Spark's scheduler.
RPC_PORT = 7078

# Of the driver and of each executor: Spark's block manager.
BLOCKS_PORT = 7079

# Of the driver and of each executor, with trigger.realTime: orders and envelopes.
WORKERS_PORT = 7080

# Of the driver: /stats, /metrics, /healthz, /readyz.
HTTP_PORT = 9090

HTTP_PORT_NAME = "http"

# The folder with Spark's secret for the driver, in the file `SECRET_FILE`.
SECRET_FOLDER = "/etc/streamtopology/spark"

SECRET_FILE = "secret"

# A folder that lives as long as the pod; the root file system is read-only.
SCRATCH = "/var/streamtopology"

# The volumes that every container of ours writes to, and where they are.
WRITABLE = {"tmp": "/tmp", "scratch": SCRATCH}

SECRET_VOLUME = "spark-secret"

# User and group of every process in our images, unless the platform gives another.
USER = 10001

# The time in which the Job of a pre-copy has to be done, its tries included.
PRECOPY_SECONDS = 3600

# The driver finishes its batch within 60 s of SIGTERM.
DRIVER_GRACE_SECONDS = 75

# The time in which an executor hands over and ends; 1.7 s measured.
EXECUTOR_GRACE_SECONDS = 30

# Spark refuses to start an executor that sees less than 450 MiB, and of -Xmx450m it sees 435.
LEAST_EXECUTOR_HEAP_MEBIBYTES = 480


def driver_name(topology: str) -> str:
    """The driver's Deployment and Service."""
    return f"{topology}-driver"


def driver_host(topology: str, namespace: str) -> str:
    """The host under which executors find the driver, whichever pod it is."""
    return f"{driver_name(topology)}.{namespace}.svc"


def routing_map_name(topology: str) -> str:
    """The ConfigMap that gives the driver its topology and its newest epoch."""
    return f"{topology}-routing"


def app_id(topology: str) -> str:
    """Spark's id of the application, the same after a restart."""
    return f"streamtopology-{topology}"


def executor_labels(topology: str) -> dict[str, str]:
    """The labels by which Spark finds its executors' pods; it drops an executor whose pod has not got them."""
    return {"spark-app-selector": app_id(topology), "spark-role": "executor"}
