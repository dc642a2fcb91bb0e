"""`streamtopology ui`: the page of a run that is on a cluster, or over.

On a cluster the driver is asked by the API server's proxy or by a port-forward, whichever the user's kubeconfig may; the
page itself is of this version and served on this machine alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamtopology.contract.environment import page_hosts
from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.page import PageFormatError, read_page
from streamtopology.contract.wire_values import to_wire
from streamtopology.jobs.admin.ask_cluster import ClusterDriver, Unreachable
from streamtopology.jobs.admin.find_run import PAGE, AskDriver, Where, find_run
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import NotRunning, ask, the_running
from streamtopology.jobs.local.user_browser import opened
from streamtopology.jobs.view.http_server import PageServer

# The file in a report's folder.
FILE = "page.json"


def page_of_run(name: str | None, where: Where, port: int, opens: bool, wait: Callable[[], object]) -> None:
    """Say where the page of topology `name` is (default: of the only one that runs here), and serve it if that is afar."""
    if name is None and where.only_cluster:
        raise WrongUse("name the topology: streamtopology ui NAME; only on this machine is it found without")
    name = name or the_running()
    if not where.only_cluster:
        try:
            show(f"{ask(name, 'address')}/", opens)
        except NotRunning:
            if where.here:
                raise
        else:
            return
    asking = find_run(name, where, PAGE)
    page = _read_first(_with_conditions(asking) if isinstance(asking, ClusterDriver) else asking)
    page(-1)
    with PageServer(page, port, page_hosts(os.environ)) as server:
        show(f"{server.url}/", opens)
        by = "a port-forward to its pod" if isinstance(asking, ClusterDriver) and asking.forwards else "the API server's proxy"
        print(f"through {by}; Ctrl-C ends it")
        wait()


def page_of_report(folder: Path, port: int, opens: bool, wait: Callable[[], object]) -> None:
    """Serve the page as it was at the end of a run, that long ago. Raises WrongUse if `folder` has none that can be read."""
    page = _read(folder / FILE)
    ended: float = page["now"]
    with PageServer(lambda since: {**page, "now": max(ended, time.time())}, port, page_hosts(os.environ)) as server:
        show(f"{server.url}/", opens)
        print(f"as the run ended, from {folder / FILE}; Ctrl-C ends it")
        wait()


def _read_first(asking: AskDriver) -> AskDriver:
    """The answer, if it is a page that can be shown: one of a driver of another version is refused in a sentence."""

    def asked(since: int) -> Mapping[str, Any]:
        try:
            return read_page(asking(since)).to_wire()
        except PageFormatError as wrong:
            raise Unreachable(str(wrong)) from wrong

    return asked


def _with_conditions(driver: ClusterDriver) -> AskDriver:
    """The driver's answer and what it does not know itself: its namespace, and the conditions of the resource."""

    def asking(since: int) -> Mapping[str, Any]:
        conditions = [to_wire(condition) for condition in driver.conditions()]
        return {**driver(since), "namespace": driver.namespace, "conditions": conditions}

    return asking


def show(address: str, opens: bool) -> None:
    """Print the address of a page, and open it in the user's browser where `opens`."""
    no_browser = opens and not opened(address)
    print(f"page: {address}{' (no browser here to open it with)' if no_browser else ''}", flush=True)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        page = json.loads(file.read_text(encoding="utf-8"))
        return read_page(page).to_wire()
    except FileNotFoundError:
        raise WrongUse(f"{file} is not there: name a folder that `streamtopology run MANIFEST --report DIR` wrote") from None
    except (OSError, ValueError, StreamTopologyError) as wrong:
        raise WrongUse(f"{file} cannot be shown: {wrong}; run with --report again") from wrong
