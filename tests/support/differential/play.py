"""Runs a case on the data plane, and compares what it published with the oracle.

The data plane is in one process, or in real time on some; then what is lost are workers, by a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.table.table import RoutingTable
from support.differential import values
from support.differential.case import Case, Event, Version
from support.differential.lives import Batch
from support.differential.oracle import Oracle
from support.real_time import OnProcesses
from support.stages import Flow, Kept, Loss, Routes


@dataclass
class Played:
    """The outcome of a case: its batches, the rows of each sink by batch, and the watermark (microseconds) after each batch.

    `silences`: the last batches before the next rows came.
    """

    batches: list[Batch]
    published: dict[str, dict[int, pa.Table]]
    watermarks: dict[int, int | None]
    silences: list[int]


def differences(case: Case, processes: OnProcesses | None = None) -> list[str]:
    """All differences between a run of the case and the oracle; [] if there are none. An exception of the run is one."""
    with TemporaryDirectory() as folder:
        try:
            played = Player(case, Path(folder), processes).play()
        except Exception as error:  # noqa: BLE001 - a run that ends is a difference
            return [f"the run ended: {type(error).__name__}: {error}"]
    oracle = Oracle(case, played.batches)
    found = [
        f"watermark: after batch {number} it is {mark}, expected {oracle.watermarks[number]}"
        for number, mark in played.watermarks.items()
        if mark != oracle.watermarks[number]
    ]
    for sink, tables in played.published.items():
        found += [f"{sink}: {text}" for text in oracle.differences(sink, tables)]
        found += [f"{sink}: {text}" for number in played.silences for text in oracle.left_open(number, sink)]
    return found


class Player:
    """A run of a case, in a folder of its own."""

    def __init__(self, case: Case, folder: Path, processes: OnProcesses | None) -> None:
        self._case = case
        self._processes = processes
        for name, table in case.files.items():
            pq.write_table(table, folder / name)
        self._replicas = 4
        self._version = case.first
        manifest = case.first.manifest(portion=case.portion)
        self._flow = Flow(folder, manifest, wall_clock=lambda: float(case.now), runner=processes)
        self._played = Played([], {}, {}, [])

    def play(self) -> Played:
        """Run all steps and drain. Raises what ends the run."""
        is_prefetched = False
        for number, step in enumerate(self._case.steps):
            if step.edit is not None:
                self._start(step.edit)
            for event in step.events:
                if not (is_prefetched and event.name in ("restart", "replicas")):
                    self._happen(event)
            rows = {} if is_prefetched else self._stored(step.rows, number)
            following = self._case.steps[number + 1 : number + 2]
            is_prefetched = bool(rows) and step.has("prefetch") and any(later.edit is None for later in following)
            if is_prefetched:
                self._flow.comes_next(**self._stored(following[0].rows, number + 1))
            self._flow.batch(**rows)
            self._note(step.rows)
            self._end_precopy()
            if step.has("silence") and not is_prefetched:
                self._fall_silent()
        self._flow.drain()
        self._note({}, final=True)
        self._played.published = {name: dict(sink.batches) for name, sink in self._flow.sinks.items() if isinstance(sink, Kept)}
        return self._played

    def _start(self, version: Version) -> None:
        self._version = version
        self._flow.start(version.manifest(self._replicas, self._case.portion))

    def _stored(self, rows: Mapping[str, pa.Table], number: int) -> dict[str, pa.Table]:
        """The rows as their files hold them."""
        random = Random(f"{self._case.seed} {number}")
        return {
            source: pa.table(
                [values.stored(column.combine_chunks(), random) for column in table.columns], names=table.column_names
            )
            for source, table in rows.items()
        }

    def _note(self, rows: Mapping[str, pa.Table], final: bool = False) -> None:
        last = self._flow.last
        self._played.batches.append(Batch(last.batch, rows, self._version, final))
        if not final:
            mark = last.watermark_after
            self._played.watermarks[last.batch] = None if mark is None else round(mark * 1e6)

    def _fall_silent(self) -> None:
        before = self._flow.last.batch
        self._flow.silence()
        numbers = range(before + 1, self._flow.last.batch + 1)
        self._played.batches += [Batch(number, {}, self._version) for number in numbers]
        self._played.silences.append(self._flow.last.batch)

    def _happen(self, event: Event) -> None:
        flow, random = self._flow, Random(event.seed)
        match event.name:
            case "reroute":
                self._reroute(random)
            case "precopy":
                self._begin_precopy(random)
            case "restart":
                self._start(self._version)
            case "replicas":
                self._replicas = random.randint(1, 6)
                self._start(self._version)
            case "loss" | "forget" if self._processes is not None:
                slot = f"slot-{random.choice(flow.slots)}"
                flow.meanwhile.append(lambda: self._kill(slot))
            case "loss":
                flow.losses.append(Loss(random.randint(0, 3), random.choice([None, *flow.slots])))
            case "forget":
                flow.forget(random.choice(flow.slots))
            case "resubmit":
                flow.resubmitted.append(random.randint(0, 2))
            case _:  # not now
                pass

    def _kill(self, slot: str) -> None:
        assert self._processes is not None
        if slot in self._processes.workers.running:
            self._processes.workers.kill(slot)

    @property
    def _router(self) -> Routes:
        assert isinstance(self._flow.router, Routes)
        return self._flow.router

    def _random_tables(self, random: Random) -> dict[str, RoutingTable]:
        routes = self._router.plan.epoch.routes.items()
        return {node: _random_table(route, random) for node, route in routes if route.table is not None}

    def _begin_precopy(self, random: Random) -> None:
        """Copy the state of random tables ahead, unless state is on the move already."""
        last = self._flow.checkpoint.last_commit()
        if last is not None and last.switch is None and last.epoch == self._router.plan.epoch.number:
            migrate(self._flow.checkpoint, self._router.prepare(self._random_tables(random)), _quietly)

    def _end_precopy(self) -> None:
        """Copy what has changed since; the next batch switches."""
        if self._router.prepared is not None:
            migrate(self._flow.checkpoint, self._router.prepared.epoch.number, _quietly)
            self._router.copied()

    def _reroute(self, random: Random) -> None:
        router, tables = self._router, self._random_tables(random)
        shares = tuple(random.random() + 0.01 for _ in router.plan.placement.slots) if random.random() < 0.5 else ()
        router.reroute(tables, tuple(share / sum(shares) for share in shares))


def _quietly(text: str) -> None:
    pass


def _random_table(route: Route, random: Random) -> RoutingTable:
    """The route's table with every bucket at random."""
    assert route.table is not None
    draw = np.random.default_rng(random.getrandbits(32))
    buckets = draw.choice(np.array(route.instances, np.int32), len(route.table.buckets)).astype(np.int32)
    return RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
