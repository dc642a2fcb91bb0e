"""The process of the `streamtopology` command: Ctrl-C is one line from the first moment, also while modules load."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command that the process's arguments name; returns the exit code."""
    try:
        from streamtopology.jobs.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        print("Ctrl-C: ended before anything was done", file=sys.stderr, flush=True)
        os._exit(_INTERRUPTED)  # a module that is half loaded may complain at the end of Python
