"""Spark's settings in pods: a client-mode driver that makes no executors, and executors that the operator's pods start.

Tried on a real node; each has its reason in a comment. Executors get Spark's own settings from the driver when they
register; those that they need before are on their command line.
"""

from __future__ import annotations

import os
from pathlib import Path

from streamtopology.contract import environment as variables
from streamtopology.contract.pods import BLOCKS_PORT, RPC_PORT, app_id, driver_host
from streamtopology.jobs.pods.environment import SCRATCH, SECRET_FILE, DriverEnvironment, ExecutorEnvironment
from streamtopology.jobs.spark.java import Java
from streamtopology.jobs.spark.java_options import DRIVER_JAVA, EXECUTOR_JAVA, MODULE_OPTIONS, log4j
from streamtopology.jobs.spark.processes import DriverAddress, backend_command

MASTER = "k8s://https://kubernetes.default.svc"
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_DRIVER_LOGS, _EXECUTOR_LOGS = (Path(__file__).parent / f"{part}-log4j2.properties" for part in ("driver", "executor"))


def driver_settings(environment: DriverEnvironment) -> dict[str, str]:
    """Return the settings of a driver in a pod, in addition to `spark_conf`."""
    return {
        "spark.app.id": app_id(environment.topology),  # executors of an earlier driver find the next one by it
        "spark.submit.deployMode": "client",
        "spark.kubernetes.namespace": environment.namespace,
        **_ADDRESSES,
        "spark.driver.host": driver_host(environment.topology, environment.namespace),
        "spark.driver.bindAddress": environment.pod_ip,
        "spark.driver.memory": f"{environment.heap_mebibytes}m",
        # As a setting Spark refuses it; as a property of the JVM it holds: no executor is Spark's to start.
        "spark.driver.extraJavaOptions": " ".join([*DRIVER_JAVA, log4j(_DRIVER_LOGS), "-Dspark.executor.instances=0"]),
        **_OWNED_BY_THE_OPERATOR,
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": str(SECRET_FILE),
        "spark.local.dir": str(SCRATCH / "spark"),
        "spark.sql.warehouse.dir": str(SCRATCH / "warehouse"),
        **environment.history_log,
    }


_ADDRESSES = {"spark.driver.port": str(RPC_PORT), "spark.driver.blockManager.port": str(BLOCKS_PORT)}

_OWNED_BY_THE_OPERATOR = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.kubernetes.container.image": "none",  # required, and never used: Spark makes no pod
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.executor.deleteOnTermination": "false",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    # An executor killed in a living pod is dropped so late only where no other comes in its slot, which we notice ourselves.
    # Sooner is wrong on a busy machine: Spark labels the pod of a new executor, and drops one whose label it does not see.
    "spark.kubernetes.executor.missingPodDetectDelta": "30s",
    "spark.kubernetes.executor.apiPollingInterval": "5s",
    "spark.executor.maxNumFailures": "1000000",  # executors come and go as long as the topology runs
    "spark.decommission.enabled": "true",  # a decommissioned executor finishes its task first
}


def executor_command(java: Java, environment: ExecutorEnvironment) -> list[str]:
    """Return the command of Spark's own executor backend, one task slot. EXECID requests an id from the driver."""
    heap, logs = f"-Xmx{environment.heap_mebibytes}m", log4j(_EXECUTOR_LOGS)
    options = [*MODULE_OPTIONS, *EXECUTOR_JAVA, logs, heap, "-Dspark.authenticate=true"]
    driver = DriverAddress(f"{environment.driver}:{RPC_PORT}", app_id(environment.topology))
    return [
        *backend_command(java, _BACKEND, options, driver, "EXECID", environment.pod_ip),
        "--podName", environment.pod,
    ]  # fmt: skip


def executor_process_environment(java: Java, spark_home: Path, environment: ExecutorEnvironment) -> dict[str, str]:
    """Return the environment of the JVM: attributes that show class and pod to the driver, and folders for writing."""
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_DIRS": str(SCRATCH / "spark"),
        variables.SPARK_ATTRIBUTE_CLASS: environment.class_name,
        variables.SPARK_ATTRIBUTE_POD: environment.pod,
    }
