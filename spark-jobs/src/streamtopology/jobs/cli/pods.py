"""Commands of the pods and Jobs that the operator makes; hidden, as nobody types them."""

from __future__ import annotations

import os

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
