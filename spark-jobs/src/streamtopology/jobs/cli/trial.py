"""`streamtopology try`: what a manifest makes of the first rows."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.parameters import FAILURE, POSITIVE, SUCCESS


@click.command("try")
@parameters.manifest
@click.option("--rows", type=POSITIVE, default=1000, show_default=True, help="Rows of each source.")
def try_(manifest: Path, rows: int) -> int:
    """Show what each sink would get of the first rows.

    The rows go through the whole manifest in this process, without Spark, and then the input ends: windows close. Nothing
    is written, and no checkpoint is read. Rows that fail are listed with the reason.
    """
    sys.dont_write_bytecode = True  # beside the user's modules
    from streamtopology.jobs.admin.trial import show

    return SUCCESS if show(manifest, rows, sys.stdout) else FAILURE
