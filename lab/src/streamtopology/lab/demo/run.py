"""`make demo`: real flights on four unequal executors, under `fields` and re-routed live, in turns, and both checked.

The check is a plain group-by of the same rows (`demo_check`): of both runs it must find what every aircraft's state holds, and
the counts and quantiles of every destination.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from streamtopology.jobs.admin.start_over import find_leftovers
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.run import Session, as_baseline, write_report
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions
from streamtopology.jobs.view.run_report import BASELINE, REROUTED, Checked
from streamtopology.lab.bench.cpu_times import cpu_times
from streamtopology.lab.bench.flights_data import make_flights
from streamtopology.lab.demo.check import check_destinations, check_tails, count_flights
from streamtopology.lab.demo.others_cpu import others_cores
from streamtopology.topology import Topology, load

MANIFEST = Path("examples/flights.yaml")
DATA = Path("build/data/flights")
WORK_DIR = Path("build/demo/work")
ROWS_PER_BATCH = 150_000
TURN = 8  # batches: short enough that a busy machine slows both runs alike
ROW_GROUPS = 16  # fine enough to be dealt by capacity, coarse enough to be read in milliseconds


def run_demo(report_dir: Path, batches: int) -> int:
    """Both runs, the check, the report; returns the exit code: 0 when the results are equal to the group-by."""
    if not MANIFEST.is_file():
        raise WrongUse(f"the demo runs in a checkout of the project: there is no {MANIFEST} in {Path.cwd()}")
    console = Console()
    topology = load(MANIFEST)
    baseline = as_baseline(topology, "fields")
    console.print(f"making {batches} files of {ROWS_PER_BATCH:,} flights in {DATA}")
    start_over(topology, baseline)
    make_flights(DATA, batches, ROWS_PER_BATCH, row_groups=ROW_GROUPS)
    options = RunOptions(Until(batches=batches, turn=TURN), WORK_DIR)
    with Session(topology, MANIFEST.parent.resolve(), options, console) as session:
        begin = cpu_times()
        before, ran = session.run_in_turns(baseline, topology, MANIFEST)
        end = cpu_times()
    checks = check_runs({BASELINE: baseline, REROUTED: topology})
    write_report(report_dir, ran, before, checks)
    console.print(f"other programs used {others_cores(begin, end):.1f} of {os.cpu_count() or 1} cores meanwhile")
    return 0 if all(checked.check.equal for checked in checks) else 1


def check_runs(runs: Mapping[str, Topology]) -> list[Checked]:
    """Both operators of each run, compared with a group-by of all flights in `DATA`."""
    expected = count_flights(DATA)
    checks: list[Checked] = []
    for run, topology in runs.items():
        checkpoint = Checkpoint.attach(checkpoint_uri(topology, WORK_DIR))
        checks.append(Checked(run, "tail", check_tails(expected, checkpoint)))
        checks.append(Checked(run, "destination", check_destinations(expected, Path(topology.sinks[0].options["path"]))))
    return checks


def start_over(*runs: Topology) -> None:
    """Delete what the demo has made before, so that its figures are about this run alone."""
    for topology in runs:
        if (leftovers := find_leftovers(topology, WORK_DIR)) is not None:
            leftovers.delete()
    for path in DATA.glob("flights-*.parquet"):
        path.unlink()
