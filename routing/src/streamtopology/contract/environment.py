"""The environment variables that the operator gives the containers of driver, executors and migrations."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

# Of our own variables; users' `env` may name none with it but those in `FOR_USERS`.
PREFIX = "STREAMTOPOLOGY_"

# The form of a container's log lines, one of `LOG_FORMATS`.
LOG_FORMAT = "STREAMTOPOLOGY_LOG_FORMAT"

LOG_FORMATS = ("text", "json")

# Host names by which browsers may open a driver's page, separated by commas; addresses and localhost always may.
PAGE_HOSTS = "STREAMTOPOLOGY_PAGE_HOSTS"

# `true`: a driver shows hashes in the place of the stream's keys, wherever it shows any.
HIDE_KEYS = "STREAMTOPOLOGY_HIDE_KEYS"

# A folder: a driver has Spark log its jobs there, for Spark's history server.
SPARK_EVENTS = "STREAMTOPOLOGY_SPARK_EVENTS"

# The variables of our own that users may set.
FOR_USERS = (LOG_FORMAT, PAGE_HOSTS, HIDE_KEYS, SPARK_EVENTS)

TOPOLOGY = "STREAMTOPOLOGY_NAME"
NAMESPACE = "STREAMTOPOLOGY_NAMESPACE"
# Heap of the container's JVM.
HEAP_MEBIBYTES = "STREAMTOPOLOGY_MEMORY"

DRIVER_HOST = "STREAMTOPOLOGY_DRIVER"
EXECUTOR_CLASS = "STREAMTOPOLOGY_CLASS"

POD_IP = "POD_IP"
POD_NAME = "POD_NAME"

# Spark's secret, base64 of what the driver reads from its file.
SPARK_AUTH_SECRET = "_SPARK_AUTH_SECRET"

# By these Spark passes an executor's class and pod on to the driver.
SPARK_ATTRIBUTE_CLASS = "SPARK_EXECUTOR_ATTRIBUTE_CLASS"
SPARK_ATTRIBUTE_POD = "SPARK_EXECUTOR_ATTRIBUTE_POD_NAME"

# Set by Kubernetes in every container.
API_SERVER_HOST = "KUBERNETES_SERVICE_HOST"

# Those of other names than `PREFIX`; users' `env` may name none of them either.
RESERVED = (POD_IP, POD_NAME, SPARK_AUTH_SECRET, SPARK_ATTRIBUTE_CLASS, SPARK_ATTRIBUTE_POD)


def exempt_api_server(environ: MutableMapping[str, str]) -> None:
    """Add the cluster's API server to the hosts that no proxy is for: a proxy for what is outside (HTTPS_PROXY) cannot reach
    it. Python's clients and Spark's look at these variables. Nothing is changed outside of a cluster or without a proxy."""
    proxies = [name for name in environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and environ[name]]
    if API_SERVER_HOST not in environ or not proxies:
        return
    known = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    exempt = ",".join([*filter(None, known.split(",")), environ[API_SERVER_HOST], "kubernetes.default.svc"])
    environ["no_proxy"] = environ["NO_PROXY"] = exempt  # programs differ in the one that they look at


def page_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names by which browsers may open a page, as the user gave them in `PAGE_HOSTS`."""
    return tuple(filter(None, (name.strip().lower() for name in environ.get(PAGE_HOSTS, "").split(","))))
