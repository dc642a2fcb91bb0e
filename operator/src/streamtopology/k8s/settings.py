"""The operator's settings: environment variables, each also a flag of `streamtopology-operator`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamtopology.contract.environment import LOG_FORMAT, LOG_FORMATS, page_hosts
from streamtopology.contract.pods import USER

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True)
class Settings:
    """`namespaces`: those whose topologies it runs, none means all. `release`: Helm's name of it, "" where nobody has said it.
    `image`: for manifests that name none. `pod_user`: user and group of topologies' pods; None: the platform gives them.
    `page_port`: of the page with all topologies; None: there is none.
    """

    namespaces: tuple[str, ...] = ()
    image: str | None = None
    namespace: str = "default"
    identity: str = "operator"
    release: str = ""
    leader_election: bool = True
    lease_seconds: int = 15
    drain_seconds: float = 120.0
    upgrade_seconds: float = 60.0
    node_loss_seconds: float = 300.0
    disruption_budget: bool = True
    driver_url: str = "http://{ip}:{port}"
    pod_user: int | None = USER
    workers: int = 16
    probe_port: int = 8080
    metrics_port: int = 9091
    page_port: int | None = None
    page_hosts: tuple[str, ...] = ()
    log_level: str = "INFO"
    log_format: str = "text"

    @property
    def resource(self) -> dict[str, str]:
        """This replica by OpenTelemetry's names."""
        return {
            "service.name": "streamtopology-operator",
            "service.namespace": self.namespace,
            "service.instance.id": self.identity,
            "k8s.namespace.name": self.namespace,
        }


@dataclass(frozen=True)
class _Flag:
    """`--name`, or the environment variable where the flag is not given. `kind` reads either: argparse holds no default
    against `choices` of its own."""

    name: str
    variable: str
    default: object
    kind: Callable[[str], object] = str
    help: str | None = None
    shown: str | None = None


def _number(lowest: float, highest: float = float("inf"), kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """Reads a number within bounds; what argparse reports of any other names them."""
    wanted = f"a number from {lowest} to {highest}" if highest < float("inf") else f"a number of at least {lowest}"

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = float("nan")
        if not lowest <= number <= highest or number == float("inf"):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected {wanted}")
        return number

    return read


def _one_of(allowed: Sequence[str]) -> Callable[[str], str]:
    """Reads one of the `allowed` words, in any case; what argparse reports of any other names them."""

    def read(text: str) -> str:
        for word in allowed:
            if word.lower() == text.lower():
                return word
        raise argparse.ArgumentTypeError(f"found {text!r}, expected one of {', '.join(allowed)}")

    return read


_TRUE_OR_FALSE = ("true", "false")


def _is_true(text: str) -> bool:
    return _one_of(_TRUE_OR_FALSE)(text) == "true"


def _shown(words: Sequence[str]) -> str:
    return f"{{{','.join(words)}}}"


def _driver_url(text: str) -> str:
    """Refuses at the start what would fail at each look at a topology."""
    try:
        text.format(ip="10.0.0.1", port=0, namespace="", name="")
    except (LookupError, ValueError, AttributeError):
        expected = "a URL with no other placeholders than {ip}, {port}, {namespace}, {name}"
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}") from None
    return text


_port = _number(0, 65535)


def _port_or_none(text: str) -> int | None:
    return int(_port(text)) if text else None


def _user(text: str) -> int | None:
    return int(_number(1, 2**31 - 1)(text)) if text else None


_FLAGS = (
    _Flag("namespaces", "STREAMTOPOLOGY_WATCH_NAMESPACES", "", help="namespaces to watch, separated by commas; none means all"),
    _Flag("image", "STREAMTOPOLOGY_IMAGE", None, help="image of drivers and executors whose manifest names none"),
    _Flag(
        "release", "STREAMTOPOLOGY_RELEASE", Settings.release,
        help="the Helm release of this operator, which its Lease names: a namespace has one",
    ),
    _Flag(
        "leader-election", "STREAMTOPOLOGY_LEADER_ELECTION", "true", _is_true, shown=_shown(_TRUE_OR_FALSE),
        help="whether replicas agree on one that works; false is for a single process",
    ),
    _Flag(
        "lease-seconds", "STREAMTOPOLOGY_LEASE_SECONDS", Settings.lease_seconds, _number(5),
        help="how long a lease lasts, which is renewed five times in its life",
    ),
    _Flag(
        "drain-seconds", "STREAMTOPOLOGY_DRAIN_SECONDS", Settings.drain_seconds, _number(0, kind=float),
        help="how long a driver or an executor may take to hand over before its pod is deleted all the same",
    ),
    _Flag(
        "upgrade-seconds", "STREAMTOPOLOGY_UPGRADE_SECONDS", Settings.upgrade_seconds, _number(0, kind=float),
        help="how long between two running topologies that get the pods and the default image of this version, 0 for none: "
        "each then keeps its own until its manifest restarts it",
    ),
    _Flag(
        "node-loss-seconds", "STREAMTOPOLOGY_NODE_LOSS_SECONDS", Settings.node_loss_seconds, _number(0, kind=float),
        help="how long a pod whose node is gone may be overdue to end before it is removed all the same, so that another takes "
        "its place, 0 for never: it then waits for the node to come back or to be removed",
    ),
    _Flag(
        "disruption-budget", "STREAMTOPOLOGY_DISRUPTION_BUDGET", "true", _is_true, shown=_shown(_TRUE_OR_FALSE),
        help="whether drivers have a PodDisruptionBudget, at which the draining of a node waits",
    ),
    _Flag(
        "driver-url", "STREAMTOPOLOGY_DRIVER_URL", Settings.driver_url, _driver_url,
        help="URL of a driver's HTTP, with {ip}, {port}, {namespace}, {name}: for an operator outside the cluster's network",
    ),
    _Flag(
        "pod-user", "STREAMTOPOLOGY_POD_USER", Settings.pod_user, _user,
        help="user and group of topologies' pods, a number; empty: the platform gives them, as OpenShift does",
    ),
    _Flag("workers", "STREAMTOPOLOGY_WORKERS", Settings.workers, _number(1)),
    _Flag("probe-port", "STREAMTOPOLOGY_PROBE_PORT", Settings.probe_port, _port),
    _Flag("metrics-port", "STREAMTOPOLOGY_METRICS_PORT", Settings.metrics_port, _port),
    _Flag(
        "page-port", "STREAMTOPOLOGY_PAGE_PORT", None, _port_or_none,
        help="port of a page with all topologies, which has no authentication; empty: none",
    ),
    _Flag(
        "log-format", LOG_FORMAT, Settings.log_format, _one_of(LOG_FORMATS), shown=_shown(LOG_FORMATS),
        help="of the operator's own lines",
    ),
    _Flag("log-level", "STREAMTOPOLOGY_LOG_LEVEL", Settings.log_level, _one_of(LOG_LEVELS)),
)  # fmt: skip


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the settings; a flag wins over its variable. A usage error ends the process with a message and exit code 2."""
    parser = argparse.ArgumentParser("streamtopology-operator", description="Runs StreamTopologies on this cluster.")
    for flag in _FLAGS:
        default = environment.get(flag.variable, flag.default)
        parser.add_argument(f"--{flag.name}", default=default, type=flag.kind, help=flag.help, metavar=flag.shown)
    given = parser.parse_args(arguments)
    return Settings(
        namespaces=tuple(name.strip() for name in given.namespaces.split(",") if name.strip()),
        image=given.image or None,
        namespace=environment.get("POD_NAMESPACE", Settings.namespace),
        identity=environment.get("POD_NAME") or f"{os.uname().nodename}-{os.getpid()}",
        release=given.release,
        leader_election=given.leader_election,
        lease_seconds=given.lease_seconds,
        drain_seconds=given.drain_seconds,
        upgrade_seconds=given.upgrade_seconds,
        node_loss_seconds=given.node_loss_seconds,
        disruption_budget=given.disruption_budget,
        driver_url=given.driver_url,
        pod_user=given.pod_user,
        workers=given.workers,
        probe_port=given.probe_port,
        metrics_port=given.metrics_port,
        page_port=given.page_port,
        page_hosts=page_hosts(environment),
        log_level=given.log_level,
        log_format=given.log_format,
    )
