"""How this operator is run: by its environment, each setting also a flag of `streamtopology-operator`."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """`namespaces`: those it looks after, none means all. `image`: of driver and executors where a manifest names none."""

    namespaces: tuple[str, ...] = ()
    image: str | None = None
    namespace: str = "default"
    identity: str = "operator"
    leader_election: bool = True
    lease_seconds: int = 15
    drain_seconds: float = 120.0
    driver_url: str = "http://{ip}:{port}"
    workers: int = 16
    probe_port: int = 8080
    metrics_port: int = 9091
    log_level: str = "INFO"


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings; a flag wins over its variable. Wrong use ends the process with a sentence and exit code 2."""
    variable = environment.get
    parser = argparse.ArgumentParser("streamtopology-operator", description="Runs StreamTopologies on this cluster.")
    parser.add_argument(
        "--namespaces", default=variable("STREAMTOPOLOGY_WATCH_NAMESPACES", ""),
        help="those to look after, with commas between; none means all",
    )  # fmt: skip
    parser.add_argument(
        "--image", default=variable("STREAMTOPOLOGY_IMAGE"), help="image of drivers and executors that name none"
    )  # fmt: skip
    parser.add_argument(
        "--leader-election", default=variable("STREAMTOPOLOGY_LEADER_ELECTION", "true"), choices=["true", "false"]
    )
    parser.add_argument("--lease-seconds", type=int, default=int(variable("STREAMTOPOLOGY_LEASE_SECONDS", "15")))
    parser.add_argument(
        "--drain-seconds", type=float, default=float(variable("STREAMTOPOLOGY_DRAIN_SECONDS", "120")),
        help="how long a driver or an executor may take to hand over before it is taken away all the same",
    )  # fmt: skip
    parser.add_argument(
        "--driver-url", default=variable("STREAMTOPOLOGY_DRIVER_URL", Settings.driver_url),
        help="where a driver's HTTP is, with {ip}, {port}, {namespace}, {name}: for an operator outside the cluster's network",
    )  # fmt: skip
    parser.add_argument("--workers", type=int, default=int(variable("STREAMTOPOLOGY_WORKERS", "16")))
    parser.add_argument("--probe-port", type=int, default=int(variable("STREAMTOPOLOGY_PROBE_PORT", "8080")))
    parser.add_argument("--metrics-port", type=int, default=int(variable("STREAMTOPOLOGY_METRICS_PORT", "9091")))
    parser.add_argument("--log-level", default=variable("STREAMTOPOLOGY_LOG_LEVEL", "INFO"), type=str.upper)
    given = parser.parse_args(arguments)
    if given.lease_seconds < 5:
        parser.error(
            f"--lease-seconds: found {given.lease_seconds}, expected at least 5: a lease is renewed five times in its life"
        )
    return Settings(
        namespaces=tuple(name.strip() for name in given.namespaces.split(",") if name.strip()),
        image=given.image or None,
        namespace=variable("POD_NAMESPACE", "default"),
        identity=variable("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        leader_election=given.leader_election == "true",
        lease_seconds=given.lease_seconds,
        drain_seconds=given.drain_seconds,
        driver_url=given.driver_url,
        workers=given.workers,
        probe_port=given.probe_port,
        metrics_port=given.metrics_port,
        log_level=given.log_level,
    )
