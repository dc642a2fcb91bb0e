"""The driver: its single pod, the Service under which executors find it, and its disruption budget."""

from __future__ import annotations

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import (
    BLOCKS_PORT,
    DRIVER_GRACE_SECONDS,
    HTTP_PORT,
    HTTP_PORT_NAME,
    RPC_PORT,
    SECRET_FILE,
    SECRET_FOLDER,
    SECRET_VOLUME,
    WORKERS_PORT,
    driver_name,
)
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import (
    Object,
    Owner,
    from_field,
    limits,
    owned,
    pod_template,
    service_port,
    with_pull_secrets,
)
from streamtopology.topology import Topology, format_cpu, format_memory

# Of the driver's memory; the rest is for its Python, which keeps plans and reports, and the JVM's own.
HEAP_SHARE = 0.42

# The time that a driver may take until it answers: Spark's session, on a slow machine.
START_SECONDS = 300


def service(owner: Owner) -> Object:
    """The headless Service. It publishes the driver before it is ready: executors connect while the driver starts."""
    return owned(
        owner,
        names.SERVICE,
        driver_name(owner.name),
        "driver",
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.labels(owner.name, "driver"),
            "ports": [
                service_port("rpc", RPC_PORT),
                service_port("blocks", BLOCKS_PORT),
                service_port("workers", WORKERS_PORT),
                service_port(HTTP_PORT_NAME, HTTP_PORT, "http"),
            ],
        },
    )


def deployment(
    owner: Owner,
    topology: Topology,
    image: str,
    user: int | None,
    *,
    replicas: int,
    restart_generation: int,
    completed: str = "",
) -> Object:
    """The Deployment. `restart_generation`: the generation that last required a restart; another number makes another pod.

    `completed`: the record of a run that has come to its end, if it has: known also where the status is lost.
    """
    annotations = {names.RESTART_GENERATION: str(restart_generation)}
    mode = 0o444 if user is None else 0o440  # its group is the pod's, or root's where the platform gives the pod none
    secret = {"secretName": names.spark_secret(owner.name), "defaultMode": mode}
    template = pod_template(
        owner,
        "driver",
        _container(owner, topology, image),
        with_pull_secrets(topology, topology.driver.pod),
        user=user,
        annotations=annotations,
        storage_bytes=topology.driver.storage_bytes,
        volumes=[{"name": SECRET_VOLUME, "secret": {**secret, "items": [{"key": "secret", "path": SECRET_FILE}]}}],
        serviceAccountName=driver_name(owner.name),
        terminationGracePeriodSeconds=DRIVER_GRACE_SECONDS,
    )
    return owned(
        owner,
        names.DEPLOYMENT,
        driver_name(owner.name),
        "driver",
        labels=topology.driver.pod.labels,
        annotations={names.IMAGE: image, **({names.COMPLETED: completed} if completed else {})},
        spec={
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": names.labels(owner.name, "driver")},
            "template": template,
        },
    )


def disruption_budget(owner: Owner) -> Object:
    """Protect the driver when its node is drained: it would come back by itself, but all executors wait for it.

    One that is not ready, as it fails or starts, holds no drain up.
    """
    return owned(
        owner,
        names.DISRUPTION_BUDGET,
        driver_name(owner.name),
        "driver",
        spec={
            "maxUnavailable": 0,
            "selector": {"matchLabels": names.labels(owner.name, "driver")},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )


def _container(owner: Owner, topology: Topology, image: str) -> Object:
    ports = [("rpc", RPC_PORT), ("blocks", BLOCKS_PORT), ("workers", WORKERS_PORT), (HTTP_PORT_NAME, HTTP_PORT)]
    container: Object = {
        "name": "driver",
        "image": image,
        "args": ["streamtopology", "driver"],
        "env": [
            {"name": variables.TOPOLOGY, "value": owner.name},
            {"name": variables.NAMESPACE, "value": owner.namespace},
            {"name": variables.HEAP_MEBIBYTES, "value": str(_heap_mebibytes(topology.driver.memory_bytes))},
            from_field(variables.POD_IP, "status.podIP"),
            from_field(variables.POD_NAME, "metadata.name"),
        ],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports],
        "resources": limits(format_cpu(topology.driver.cpu), format_memory(topology.driver.memory_bytes)),
        "volumeMounts": [{"name": SECRET_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True}],
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
    get = {"path": path, "port": HTTP_PORT_NAME}
    return {"httpGet": get, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5}
