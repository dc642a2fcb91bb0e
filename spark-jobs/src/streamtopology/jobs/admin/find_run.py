"""The search for a running topology, here or on a cluster, and the questions to its driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import urlopen

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.admin.ask_cluster import ANSWER_SECONDS, Answer, NoKubeconfig, Unreachable, asking_the_cluster
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import NotRunning, ask


@dataclass(frozen=True)
class Where:
    """The place to look: this machine first, or only `here`, or only the cluster if a namespace or context names one."""

    namespace: str | None = None
    context: str | None = None
    here: bool = False

    @property
    def only_cluster(self) -> bool:
        return not self.here and (self.namespace is not None or self.context is not None)


STATS: Answer = "stats"
PAGE: Answer = "page.json"


class AskDriver(Protocol):
    """Asks a driver for its stats, or its page, with the batches after number `since`; raises `Unreachable`."""

    def __call__(self, since: int) -> Mapping[str, Any]: ...


def find_run(name: str, where: Where, answer: Answer = STATS) -> AskDriver:
    """Find the topology, here or on the cluster. Raises NotRunning if it is at neither, and says why."""
    if where.only_cluster:
        return asking_the_cluster(name, where.namespace, where.context, answer)
    try:
        return asking_here(name, answer)
    except NotRunning as not_here:
        if where.here:
            raise
        return _on_the_cluster(name, not_here, answer)


def _on_the_cluster(name: str, not_here: NotRunning, answer: Answer) -> AskDriver:
    try:
        asking = asking_the_cluster(name, None, None, answer)
        asking(-1)
        return asking
    except NoKubeconfig:
        raise not_here from None  # nobody who has no cluster wants to read of one
    except StreamTopologyError as not_there:
        raise NotRunning(f"{not_here} (and on the cluster: {not_there})") from not_there


def asking_here(name: str, answer: Answer = STATS) -> AskDriver:
    """Asks the topology that runs on this machine under this user; NotRunning says that none does."""
    return asking_url(f"{ask(name, 'address')}/{answer}")


def asking_url(url: str) -> AskDriver:
    """Asks the driver whose `/stats` is at `url`, an http:// or https:// address."""

    def asking(since: int) -> Mapping[str, Any]:
        try:
            with urlopen(f"{url}{'&' if '?' in url else '?'}since={since}", timeout=ANSWER_SECONDS) as answer:
                body, kind = answer.read(), answer.headers.get_content_type()
        except (URLError, OSError, HTTPException) as failure:
            raise Unreachable(f"nothing answers at {url}: {failure}") from failure
        try:
            return json.loads(body)
        except ValueError as error:
            if kind == "application/json":
                raise Unreachable(f"the answer at {url} is cut off or damaged: {error}") from error
            raise WrongUse(f"{url} does not answer in JSON ({error}); name the driver's /stats") from error

    return asking
