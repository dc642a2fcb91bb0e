"""The executors: a StatefulSet for each class, so each has its own CPU, its pods stable names, and scaling ordinary pods."""

from __future__ import annotations

from streamtopology.operator import names
from streamtopology.operator.resources.objects import Object, Owner, from_field, limits, owned, pod_template
from streamtopology.routing.topology import ExecutorClass, Topology, format_cpu, format_memory

MEBIBYTE = 2**20

LEAST_HEAP = 480
"""MiB: Spark's memory manager refuses to start below 450, and the JVM keeps some of its heap to itself."""

HEAP_SHARE = 0.6
"""Of an executor's memory; the rest is for its Python worker, which holds the state, and the JVM's own."""

GRACE_SECONDS = 30
"""An executor hands over and leaves within this; measured 1.7 s."""


def service(owner: Owner) -> Object:
    """The headless Service that a StatefulSet's pods are named by."""
    return owned(
        owner, names.SERVICE, names.executors(owner.name), "executor",
        spec={
            "clusterIP": "None",
            "selector": names.labels(owner.name, "executor"),
            "ports": [{"name": "blocks", "port": names.BLOCKS_PORT, "targetPort": names.BLOCKS_PORT, "protocol": "TCP"}],
        },
    )  # fmt: skip


def stateful_set(owner: Owner, topology: Topology, executor: ExecutorClass, image: str, replicas: int) -> Object:
    """OnDelete: a changed template restarts nobody; CPU changes in place, and other pods are replaced one by one."""
    account = {"serviceAccountName": names.executor_account(owner.name), "automountServiceAccountToken": False}
    template = pod_template(
        owner, "executor", _container(owner, topology, executor, image), executor.pod,
        annotations={}, class_name=executor.name, labels=names.spark_labels(owner.name),
        terminationGracePeriodSeconds=GRACE_SECONDS, **account,
    )  # fmt: skip
    return owned(
        owner, names.STATEFUL_SET, names.executor_class(owner.name, executor.name), "executor", executor.name,
        spec={
            "replicas": replicas,
            "serviceName": names.executors(owner.name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": names.labels(owner.name, "executor", executor.name)},
            "template": template,
        },
    )  # fmt: skip


def resources(executor: ExecutorClass) -> Object:
    """Requests and limits of an executor, for its template and for a resize in place."""
    return limits(format_cpu(executor.cpu), format_memory(executor.memory_bytes))


def heap_mebibytes(memory_bytes: int) -> int:
    return max(LEAST_HEAP, int(memory_bytes * HEAP_SHARE) // MEBIBYTE)


def _container(owner: Owner, topology: Topology, executor: ExecutorClass, image: str) -> Object:
    secret = {"name": names.spark_secret(owner.name), "key": "secret-base64"}
    container: Object = {
        "name": "executor",
        "image": image,
        "args": ["streamtopology", "executor"],
        "env": [
            {"name": "STREAMTOPOLOGY_NAME", "value": owner.name},
            {"name": "STREAMTOPOLOGY_DRIVER", "value": f"{names.driver(owner.name)}.{owner.namespace}.svc"},
            {"name": "STREAMTOPOLOGY_CLASS", "value": executor.name},
            {"name": "STREAMTOPOLOGY_MEMORY", "value": str(heap_mebibytes(executor.memory_bytes))},
            from_field("POD_IP", "status.podIP"),
            from_field("POD_NAME", "metadata.name"),
            {"name": "SPARK_EXECUTOR_ATTRIBUTE_CLASS", "value": executor.name},
            from_field("SPARK_EXECUTOR_ATTRIBUTE_POD_NAME", "metadata.name"),
            {"name": "_SPARK_AUTH_SECRET", "valueFrom": {"secretKeyRef": secret}},
        ],
        "resources": resources(executor),
        "resizePolicy": [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "NotRequired"},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if topology.image_pull_policy:
        container["imagePullPolicy"] = topology.image_pull_policy
    return container
