"""The executors: a StatefulSet for each class, which has its own CPU, stable pod names and ordinary scaling."""

from __future__ import annotations

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import (
    BLOCKS_PORT,
    EXECUTOR_GRACE_SECONDS,
    LEAST_EXECUTOR_HEAP_MEBIBYTES,
    WORKERS_PORT,
    driver_host,
    executor_labels,
)
from streamtopology.k8s import names
from streamtopology.k8s.resources.objects import (
    Object,
    Owner,
    digest,
    from_field,
    limits,
    owned,
    pod_template,
    service_port,
    with_pull_secrets,
)
from streamtopology.topology import ExecutorClass, Topology, format_cpu, format_memory, write_pod

MEBIBYTE = 2**20

# Of an executor's memory; the rest is for its Python worker, which holds the state, and the JVM's own.
HEAP_SHARE = 0.6


def service(owner: Owner) -> Object:
    """The headless Service that names the StatefulSets' pods."""
    return owned(
        owner,
        names.SERVICE,
        names.executors(owner.name),
        "executor",
        spec={
            "clusterIP": "None",
            "selector": names.labels(owner.name, "executor"),
            "ports": [service_port("blocks", BLOCKS_PORT), service_port("workers", WORKERS_PORT)],
        },
    )


def stateful_set(
    owner: Owner, topology: Topology, executor: ExecutorClass, image: str, user: int | None, replicas: int
) -> Object:
    """The StatefulSet of a class. OnDelete: a changed template restarts no pod; CPU changes in place, other changes replace
    pods one by one."""
    account = {"serviceAccountName": names.executor_account(owner.name), "automountServiceAccountToken": False}
    template = pod_template(
        owner,
        "executor",
        _container(owner, topology, executor, image),
        with_pull_secrets(topology, executor.pod),
        user=user,
        annotations={},
        class_name=executor.name,
        labels=executor_labels(owner.name),
        storage_bytes=executor.storage_bytes,
        terminationGracePeriodSeconds=EXECUTOR_GRACE_SECONDS,
        **account,
    )
    return owned(
        owner,
        names.STATEFUL_SET,
        names.executor_class(owner.name, executor.name),
        "executor",
        executor.name,
        labels=executor.pod.labels,
        annotations={names.IMAGE: image, names.POD_SETTINGS: digest(_settings(executor))},
        spec={
            "replicas": replicas,
            "serviceName": names.executors(owner.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": names.labels(owner.name, "executor", executor.name)},
            "template": template,
        },
    )


def _settings(executor: ExecutorClass) -> Object:
    """All settings of the class that only other pods can have."""
    return {**write_pod(executor.pod), "storage": executor.storage_bytes, "heap": heap_mebibytes(executor.memory_bytes)}


def _resources(executor: ExecutorClass) -> Object:
    """Requests and limits of an executor that a resize in place can change."""
    return limits(format_cpu(executor.cpu), format_memory(executor.memory_bytes))


def heap_mebibytes(memory_bytes: int) -> int:
    return max(LEAST_EXECUTOR_HEAP_MEBIBYTES, int(memory_bytes * HEAP_SHARE) // MEBIBYTE)


def _container(owner: Owner, topology: Topology, executor: ExecutorClass, image: str) -> Object:
    secret = {"name": names.spark_secret(owner.name), "key": "secret-base64"}
    container: Object = {
        "name": "executor",
        "image": image,
        "args": ["streamtopology", "executor"],
        "env": [
            {"name": variables.TOPOLOGY, "value": owner.name},
            {"name": variables.DRIVER_HOST, "value": driver_host(owner.name, owner.namespace)},
            {"name": variables.EXECUTOR_CLASS, "value": executor.name},
            {"name": variables.HEAP_MEBIBYTES, "value": str(heap_mebibytes(executor.memory_bytes))},
            from_field(variables.POD_IP, "status.podIP"),
            from_field(variables.POD_NAME, "metadata.name"),
            {"name": variables.SPARK_ATTRIBUTE_CLASS, "value": executor.name},
            from_field(variables.SPARK_ATTRIBUTE_POD, "metadata.name"),
            {"name": variables.SPARK_AUTH_SECRET, "valueFrom": {"secretKeyRef": secret}},
        ],
        "resources": _resources(executor),
        "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "NotRequired"},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if topology.image_pull_policy:
        container["imagePullPolicy"] = topology.image_pull_policy
    return container
