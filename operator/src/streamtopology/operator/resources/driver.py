"""The driver: one pod that is never there twice, the Service under which executors find it, and its disruption budget."""

from __future__ import annotations

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, from_field, limits, owned, pod_template
from streamtopology.routing.topology import Topology, format_cpu, format_memory

SECRET_FOLDER = "/etc/streamtopology/spark"

GRACE_SECONDS = 75
"""The driver finishes the batch at work within 60 s of SIGTERM."""

HEAP_SHARE = 0.42
"""Of the driver's memory; the rest is for its Python, which keeps plans and reports, and the JVM's own."""

START_SECONDS = 300
"""How long a driver may take until it answers: Spark's session, on a slow machine."""


def service(owner: Owner) -> Object:
    """Headless, and it knows the driver before it is ready: executors are there while the driver starts."""
    ports = [("rpc", names.RPC_PORT), ("blocks", names.BLOCKS_PORT), ("http", names.DRIVER_HTTP_PORT)]
    return owned(
        owner, names.SERVICE, names.driver(owner.name), "driver",
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.labels(owner.name, "driver"),
            "ports": [{"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports],
        },
    )  # fmt: skip


def deployment(owner: Owner, topology: Topology, image: str, *, replicas: int, restart_generation: int) -> Object:
    """`restart_generation`: the generation that last asked for a restart; another number is another pod."""
    annotations = {names.RESTART_GENERATION: str(restart_generation)}
    secret = {"secretName": names.spark_secret(owner.name), "defaultMode": 0o440}
    template = pod_template(
        owner, "driver", _container(owner, topology, image), topology.driver.pod,
        annotations=annotations,
        volumes=[{"name": "spark-secret", "secret": {**secret, "items": [{"key": "secret", "path": "secret"}]}}],
        serviceAccountName=names.driver(owner.name),
        terminationGracePeriodSeconds=GRACE_SECONDS,
    )  # fmt: skip
    return owned(
        owner, names.DEPLOYMENT, names.driver(owner.name), "driver",
        spec={
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.labels(owner.name, "driver")},
            "template": template,
        },
    )  # fmt: skip


def disruption_budget(owner: Owner) -> Object:
    """A node is not drained of the driver without asking: it comes back by itself, but everyone waits for it."""
    return owned(
        owner, names.DISRUPTION_BUDGET, names.driver(owner.name), "driver",
        spec={"maxUnavailable": 0, "selector": {"matchLabels": names.labels(owner.name, "driver")}},
    )  # fmt: skip


def _container(owner: Owner, topology: Topology, image: str) -> Object:
    ports = [("rpc", names.RPC_PORT), ("blocks", names.BLOCKS_PORT), ("http", names.DRIVER_HTTP_PORT)]
    container: Object = {
        "name": "driver",
        "image": image,
        "args": ["streamtopology", "driver"],
        "env": [
            {"name": "STREAMTOPOLOGY_NAME", "value": owner.name},
            {"name": "STREAMTOPOLOGY_NAMESPACE", "value": owner.namespace},
            {"name": "STREAMTOPOLOGY_MEMORY", "value": str(_heap_mebibytes(topology.driver.memory_bytes))},
            from_field("POD_IP", "status.podIP"),
            from_field("POD_NAME", "metadata.name"),
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        "resources": limits(format_cpu(topology.driver.cpu), format_memory(topology.driver.memory_bytes)),
        "volumeMounts": [{"name": "spark-secret", "mountPath": SECRET_FOLDER, "readOnly": True}],
        "startupProbe": _probe("/healthz", period=2, failures=START_SECONDS // 2),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, failures=3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if topology.image_pull_policy:
        container["imagePullPolicy"] = topology.image_pull_policy
    return container


def _heap_mebibytes(memory_bytes: int) -> int:
    return int(memory_bytes * HEAP_SHARE) // 2**20


def _probe(path: str, period: int, failures: int) -> Object:
    get = {"path": path, "port": "http"}
    return {"httpGet": get, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5}
