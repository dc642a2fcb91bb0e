"""Names, ports and folders that the operator gives its pods and the processes in them go by."""

from __future__ import annotations

RPC_PORT = 7078
"""Of the driver: Spark's scheduler."""

BLOCKS_PORT = 7079
"""Of the driver and of each executor: Spark's block manager."""

HTTP_PORT = 9090
"""Of the driver: /stats, /metrics, /healthz, /readyz."""

HTTP_PORT_NAME = "http"

SECRET_FOLDER = "/etc/streamtopology/spark"
"""The folder with Spark's secret for the driver, in the file `SECRET_FILE`."""

SECRET_FILE = "secret"

SCRATCH = "/var/streamtopology"
"""A folder that lives as long as the pod; the root file system is read-only."""

WRITABLE = {"tmp": "/tmp", "scratch": SCRATCH}
"""The volumes that every container of ours writes to, and where they are."""

SECRET_VOLUME = "spark-secret"

USER = 10001
"""User and group of every process in our images, unless the platform gives another."""

PRECOPY_SECONDS = 3600
"""The time in which the Job of a pre-copy has to be done, its tries included."""

DRIVER_GRACE_SECONDS = 75
"""The driver finishes its batch within 60 s of SIGTERM."""

EXECUTOR_GRACE_SECONDS = 30
"""The time in which an executor hands over and ends; 1.7 s measured."""

LEAST_EXECUTOR_HEAP_MEBIBYTES = 480
"""Spark refuses to start an executor that sees less than 450 MiB, and of -Xmx450m it sees 435."""


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
