"""`streamtopology executor`: keeps one Spark executor running in its container while drivers come and go.

An executor ends with its driver. If the container ended, too, Kubernetes' back-off would soon exceed the time of a restart.
So the launcher starts the JVM again.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping

from streamtopology.contract.pods import RPC_PORT
from streamtopology.jobs.log_tags import tag_all
from streamtopology.jobs.pods.environment import SCRATCH, ExecutorEnvironment, logs_json
from streamtopology.jobs.pods.spark_settings import executor_command, executor_process_environment
from streamtopology.jobs.spark.java import find_java
from streamtopology.jobs.spark.launcher import Launcher, answers
from streamtopology.jobs.spark.processes import SPARK_HOME


def run_executor(environ: Mapping[str, str]) -> int:
    """Run executors one after the other until SIGTERM; return the exit code."""
    environment = ExecutorEnvironment.read(environ)
    tag_all(as_json=logs_json(environ))
    java = find_java()
    (SCRATCH / "spark").mkdir(parents=True, exist_ok=True)
    command = executor_command(java, environment)
    of_process = executor_process_environment(java, SPARK_HOME, environment)
    launcher = Launcher(
        lambda: subprocess.Popen(command, env=of_process, stdin=subprocess.DEVNULL),  # its output goes where ours does
        lambda: answers(environment.driver, RPC_PORT),
        f"{environment.driver}:{RPC_PORT}",
        lambda text: print(text, flush=True),
    )
    signal.signal(signal.SIGTERM, lambda *_: launcher.end())
    launcher.run()
    return 0
