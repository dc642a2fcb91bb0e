"""The question before a checkpoint is deleted, for `run --fresh` and `state delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamtopology.jobs.errors import WrongUse

if TYPE_CHECKING:
    from streamtopology.jobs.admin.start_over import Leftovers
    from streamtopology.topology import Topology


def delete_leftovers(
    topology: Topology, work_dir: Path, question: str, otherwise: str, *, yes: bool, starts: bool = False
) -> Leftovers | None:
    """Delete what earlier runs have left, once the user agrees, and return it; None: there is nothing.

    `starts`: a run starts afterwards. Raises WrongUse if nobody agrees, or that run could not begin.
    """
    from streamtopology.jobs.admin.start_over import find_leftovers

    leftovers = find_leftovers(topology, work_dir)
    if leftovers is None:
        return None
    if starts:
        leftovers.refuse_start()
    if not yes and not _agreed(f"{leftovers.text()}\n{question}"):
        raise WrongUse(f"nothing was deleted; {otherwise}")
    leftovers.delete()
    return leftovers


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        raise WrongUse("nothing was deleted: nobody is there to answer; --yes answers in advance") from None
