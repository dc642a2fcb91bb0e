"""`streamtopology top NAME`: the live view of a topology that runs elsewhere, from what its driver serves at `/stats`.

On a cluster the driver is reached through the API server's proxy, so that whoever may read the Service needs nothing
else; here, at the address that the running topology tells over its control socket.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import Console

from streamtopology.jobs.control import ask
from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.history import BatchOutcome, History, Reconfiguration, SlotInfo
from streamtopology.jobs.stats import STATS_VERSION
from streamtopology.jobs.view import View
from streamtopology.routing.report import LoadReport, SourceReport

LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 10
_PATIENCE_SECONDS = 120.0


class Unreachable(Exception):
    """The driver cannot be asked; the message says what to look at."""


class AskStats(Protocol):
    """Asks a driver for its stats with the batches after number `since`; raises `Unreachable`."""

    def __call__(self, since: int) -> Mapping[str, Any]: ...


def top(name: str, namespace: str | None, context: str | None, here: bool) -> int:
    """Show topology `name` until it is done or Ctrl-C; `here` means one that `streamtopology run` runs on this machine."""
    asking = asking_here(name) if here else asking_the_cluster(name, namespace, context)
    with suppress(KeyboardInterrupt):  # how one leaves
        follow(asking, Console(), time.sleep)
    return 0


def follow(asking: AskStats, console: Console, sleep: Callable[[float], None]) -> None:
    """Show what is asked for until its phase is done. Raises `Unreachable` when the driver was never or is long away."""
    first = asking(-1)
    history = History(str(first["topology"]), (), {})
    take(first, history)
    away = 0.0
    with View(history, console, time.monotonic):
        while history.phase != "done":
            sleep(LOOK_SECONDS)
            known = history.batches[-1].number if history.batches else -1
            try:
                take(asking(known), history)
                away = 0.0
            except Unreachable as gone:
                away += LOOK_SECONDS
                if away > _PATIENCE_SECONDS:
                    raise
                history.enter(f"driver away for {away:.0f} s: {gone}")


def take(stats: Mapping[str, Any], history: History) -> None:
    """Bring `history` up to what `stats` tell. WrongUse: they are of another version."""
    if stats.get("version") != STATS_VERSION:
        raise WrongUse(f"the driver's stats are of version {stats.get('version')!r}, this program reads {STATS_VERSION}")
    history.slots_are(
        SlotInfo(slot["index"], slot["executor"], slot["class"], slot["cpu"], slot["present"]) for slot in stats["slots"]
    )
    history.policies = dict(stats["policies"])
    for batch in stats["batches"]:
        history.batch_done(_outcome(batch))
    shown = {(change.epoch, change.operator) for change in history.reconfigurations}
    for wire in stats["reconfigurations"]:
        if (wire["epoch"], wire["operator"]) not in shown:
            history.rerouted(Reconfiguration(**wire))
    refused = stats["refused"]
    text = f"not taken: {refused['why']}" if refused else ""
    if text and (not history.events or history.events[-1].text != text):
        history.event(time.time(), -1, text)
    history.enter(str(stats["phase"]))


def asking_the_cluster(name: str, namespace: str | None, context: str | None) -> AskStats:
    """Asks through the API server, as the user's kubeconfig may. WrongUse: there is none."""
    try:
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError
    except ImportError as missing:
        raise WrongUse("asking a cluster needs the package kubernetes: install streamtopology-jobs[kubernetes]") from missing

    file = os.environ.get("KUBECONFIG")
    try:
        api = config.new_client_from_config(file, context)
        contexts, active = cast(Any, config).list_kube_config_contexts(file)  # its types know not what it returns
    except ConfigException as missing:
        raise WrongUse(f"no cluster to ask ({missing}); for a topology that runs on this machine add --here") from missing
    chosen = next((each for each in contexts if each["name"] == context), active)
    where = namespace or chosen["context"].get("namespace", "default")
    path = f"/api/v1/namespaces/{where}/services/{name}-driver:http/proxy/stats"

    def asking(since: int) -> Mapping[str, Any]:
        request = api.param_serialize("GET", path, query_params=[("since", since)], auth_settings=["BearerToken"])
        try:
            answer = api.call_api(*request, _request_timeout=_ANSWER_SECONDS)
            if answer.status != HTTPStatus.OK:
                raise Unreachable(f"topology {name!r} in namespace {where}: {answer.status}, {_said(answer.read())}")
            return json.loads(answer.read())
        except (HTTPError, OSError) as failure:
            raise Unreachable(f"the API server does not answer: {failure}") from failure

    return asking


def _said(answer: bytes) -> str:
    """What the API server says in its Status, or whoever it passed the question to."""
    text = answer.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def asking_here(name: str) -> AskStats:
    """Asks the topology that runs on this machine under this user; NotRunning says that none does."""
    address = ask(name, "address")

    def asking(since: int) -> Mapping[str, Any]:
        try:
            with urlopen(f"{address}/stats?since={since}", timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)
        except (URLError, OSError) as failure:
            raise Unreachable(f"topology {name!r} does not answer at {address}: {failure}") from failure

    return asking


def _outcome(wire: Mapping[str, Any]) -> BatchOutcome:
    return BatchOutcome(
        number=wire["number"],
        attempt=wire["attempt"],
        epoch=wire["epoch"],
        rows=wire["rows"],
        seconds=wire["seconds"],
        committed_at=wire["committed_at"],
        reports=tuple(LoadReport.from_wire(report) for report in wire["reports"]),
        source_reports=tuple(SourceReport.from_wire(report) for report in wire["source_reports"]),
        capacities={(known["operator"], known["instance"]): known["rows_per_second"] for known in wire["capacities"]},
        imbalance={operator: value for operator, value in wire["imbalance"].items() if value is not None},
    )
