"""The question before a checkpoint is deleted, for `run --fresh` and `state delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamtopology.jobs.errors import WrongUse

if TYPE_CHECKING:
    from streamtopology.topology import Topology


def delete_leftovers(topology: Topology, work_dir: Path, question: str, otherwise: str, *, yes: bool) -> bool:
    """Delete what former runs have left, once the user agrees; False: there is nothing. Raises WrongUse if nobody agrees."""
    from streamtopology.jobs.admin.start_over import find_leftovers

    leftovers = find_leftovers(topology, work_dir)
    if leftovers is None:
        return False
    if not yes and not _agreed(f"{leftovers.text()}\n{question}"):
        raise WrongUse(f"nothing was deleted; {otherwise}")
    leftovers.delete()
    return True


def _agreed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C
            raise
        raise WrongUse("nothing was deleted: nobody is there to answer; --yes answers in advance") from None
