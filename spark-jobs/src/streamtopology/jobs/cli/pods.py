"""Commands of the pods and Jobs that the operator makes; hidden, as nobody types them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from streamtopology.contract.environment import exempt_api_server
from streamtopology.jobs.cli.parameters import POSITIVE, SUCCESS


@click.command(hidden=True)
def driver() -> int:
    """Run a topology in a driver's pod."""
    from streamtopology.jobs.pods.driver import run_driver

    exempt_api_server(os.environ)
    return run_driver(os.environ)


@click.command(hidden=True)
def executor() -> int:
    """Run an executor in an executor's pod."""
    from streamtopology.jobs.pods.executor import run_executor

    return run_executor(os.environ)


@click.command(hidden=True)
@click.option("--checkpoint", required=True, metavar="URI", help="The topology's checkpoint.")
@click.option("--epoch", required=True, type=POSITIVE, help="The epoch, as the driver has prepared it.")
def migrate(checkpoint: str, epoch: int) -> int:
    """Pre-copy the state that a prepared epoch moves."""
    from streamtopology.jobs.rerouting import precopy_job

    precopy_job.run(checkpoint, epoch)
    return SUCCESS


@click.command(hidden=True)
@click.option("--checkpoint", required=True, metavar="URI", help="The topology's checkpoint.")
@click.option("--to", required=True, metavar="URI", help="The place of the copy.")
@click.option("--run", required=True, metavar="ID", help="The copy's identity; a whole copy that has it is only reported.")
@click.option("--report", required=True, type=click.Path(path_type=Path), help="The file for batch and bytes, as JSON.")
@click.option("--drop", nargs=2, multiple=True, metavar="ID URI", help="An older copy to delete once this one is whole.")
def snapshot(checkpoint: str, to: str, run: str, report: Path, drop: tuple[tuple[str, str], ...]) -> int:
    """Copy a checkpoint as `state clone` does, delete older copies, and report batch, size and the copies that are gone."""
    from streamtopology.jobs.admin.start_over import delete_copy
    from streamtopology.jobs.checkpoint import Checkpoint, open_store
    from streamtopology.jobs.checkpoint.copying import copy_checkpoint

    original = Checkpoint.attach(checkpoint)
    made = copy_checkpoint(original, open_store(to), original.topology, run=run)
    for old, place in drop:
        delete_copy(place, original.topology, old)
    dropped = [old for old, _ in drop]
    report.write_text(json.dumps({"batch": made.batch, "bytes": made.bytes, "dropped": dropped}), encoding="utf-8")
    return SUCCESS
