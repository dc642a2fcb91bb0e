"""Commands as a user types them, read by the program's own parser."""

from __future__ import annotations

import shlex

import click

from streamtopology.jobs.cli.main import streamtopology


def program() -> click.Context:
    """The context of the `streamtopology` command itself."""
    return click.Context(streamtopology, info_name="streamtopology", **streamtopology.context_settings)


def parse_command(typed: str) -> None:
    """Parse a line that begins with `streamtopology`, and run nothing. Raises what the program would refuse it with."""
    name, *words = shlex.split(typed)
    assert name == "streamtopology"
    command, context = streamtopology, program()
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        assert command is not None
        if not isinstance(command, click.Group):
            command.make_context(name, words, parent=context)
        context = click.Context(command, info_name=name, parent=context)
