"""`streamtopology top NAME`: the live view of a topology that runs elsewhere, from what its driver serves at `/stats`.

On a cluster the driver is reached through the API server's proxy, so that a user who may read the Service needs nothing
else; here, at the address that the running topology names over its control socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console

from streamtopology.contract.phases import Phase
from streamtopology.contract.stats import Batch, NumberedBatch, StatsFormatError, read_stats, shared
from streamtopology.jobs.admin.ask_cluster import Unreachable
from streamtopology.jobs.admin.find_run import AskDriver, Where, find_run
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import the_running
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.view.live_view import View
from streamtopology.routing.load.load_report import LoadReport, SourceReport

LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0


def top(name: str | None, where: Where) -> int:
    """Show topology `name` (default: the only one that runs here) until it is done or Ctrl-C."""
    if name is None and where.only_cluster:
        raise WrongUse("name the topology: streamtopology top NAME; only on this machine is it found without")
    asking = find_run(name or the_running(), where)
    with suppress(KeyboardInterrupt):  # how one leaves
        follow(asking, Console(), time.sleep)
    return 0


def follow(asking: AskDriver, console: Console, sleep: Callable[[float], None]) -> None:
    """Show what is asked for until its phase is done. Raises `Unreachable` when the driver was never or is long away."""
    first = asking(-1)
    history = History(str(first["topology"]), (), {})
    take(first, history)
    away = 0.0
    with View(history, console, time.monotonic):
        while history.activity.phase is not Phase.DONE:
            sleep(LOOK_SECONDS)
            known = history.newest
            try:
                take(asking(known), history)
                away = 0.0
            except Unreachable as gone:
                away += LOOK_SECONDS
                if away > _PATIENCE_SECONDS:
                    raise
                history.enter(history.activity.phase, f"driver away for {away:.0f} s: {gone}")


def take(answer: Mapping[str, Any], history: History) -> None:
    """Bring `history` up to date with an answer of `/stats`. WrongUse: it cannot be read, or is of another version."""
    try:
        stats = read_stats(answer)
    except StatsFormatError as wrong:
        raise WrongUse(str(wrong)) from wrong
    history.slots_are(stats.slots)
    history.policies = dict(stats.policies)
    for batch in stats.batches:
        history.batch_done(_outcome(batch))
    shown = {(change.epoch, change.operator) for change in history.reconfigurations}
    for change in stats.reconfigurations:
        if (change.epoch, change.operator) not in shown:
            history.rerouted(change)
    history.binding = stats.binding
    text = f"not taken: {stats.refused.why}" if stats.refused else ""
    if text and (not history.events or history.events[-1].text != text):
        history.event(time.time(), -1, text)
    history.enter(stats.activity.phase, stats.activity.detail)


def _outcome(batch: Batch) -> BatchOutcome:
    return BatchOutcome(
        **shared(NumberedBatch, batch),
        reports=tuple(LoadReport.from_wire(report) for report in batch.reports),
        source_reports=tuple(SourceReport.from_wire(report) for report in batch.source_reports),
        capacities={(known.operator, known.instance): known.rows_per_second for known in batch.capacities},
    )
