"""Groups of commands; that of the program loads the module of a command only when the command is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from streamtopology.jobs.cli.examples import epilog

# The entry points by which other distributions add commands: a command's name, and where its click command is.
ENTRY_POINTS = "streamtopology.commands"

LAB = "streamtopology-lab"
LAB_COMMANDS = ("arena", "bench", "demo", "nexmark", "reproduce", "sample-data", "simulate")

Added = Mapping[str, EntryPoint]


@cache
def commands_added() -> Added:
    """The commands that the installed distributions add, by name. Looking for them reads the metadata of each one."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


class Group(click.Group):
    """A group whose help has whole sentences and examples, and whose errors name the commands that exist."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.find_command(ctx, cmd_name)
        if command is not None:
            above = ctx.command_path.split()[1:]  # without the program
            command.epilog = command.epilog or epilog(" ".join([*above, cmd_name]))
        return command

    def find_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command `name` of this group, as it is defined."""
        return super().get_command(ctx, name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            known = [name for name, _ in self._visible(ctx)]
            message = f"No such command {error.command_name!r}; there are: {', '.join(known)}."
            raise click.exceptions.NoSuchCommand(error.command_name, message, known, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=200)) for name, command in self._visible(ctx)])

    def _visible(self, ctx: click.Context) -> list[tuple[str, click.Command]]:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, command) for name, command in commands if command is not None and not command.hidden]


class CommandGroup(Group):
    """Commands by name: those of `commands` ("module:attribute"), and those that other distributions have `added`."""

    def __init__(self, commands: Mapping[str, str], added: Callable[[], Added] = commands_added, **settings: Any) -> None:
        super().__init__(**settings)
        self._where = dict(commands)
        self._added = added

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._where, *sorted(self._added().keys() - self._where.keys())]

    def find_command(self, ctx: click.Context, name: str) -> click.Command | None:
        where = self._where.get(name)
        if where is not None:
            module, _, attribute = where.partition(":")
            return getattr(importlib.import_module(module), attribute)
        added = self._added().get(name)
        if added is not None:
            return _loaded(added)
        if name in LAB_COMMANDS:
            raise click.UsageError(f"`{name}` comes with {LAB}, which is not installed: pip install {LAB}", ctx)
        return None


def _loaded(added: EntryPoint) -> click.Command:
    """The command of another distribution; one that does not load is hidden, and says why when it is called."""
    try:
        return added.load()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other commands work
        return _broken(added, f"{type(error).__name__}: {error}")


def _broken(added: EntryPoint, cause: str) -> click.Command:
    def refuse() -> None:
        whose = added.dist.name if added.dist is not None else added.value
        raise click.UsageError(f"`{added.name}` comes with {whose}, which does not load ({cause}): install it again")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(added.name, callback=refuse, hidden=True, add_help_option=False, context_settings=anything)
