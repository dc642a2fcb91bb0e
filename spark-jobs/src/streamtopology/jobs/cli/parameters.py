"""Types of parameters, and parameters that several commands share.

Every start of `streamtopology` loads this module: it imports nothing that is slow to load.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.own_command import DEFAULT_WORK_DIR

# Exit codes of commands; an error has its own: 1 run or check failed, 2 usage error.
SUCCESS, FAILURE, INTERRUPTED = 0, 1, 130

Command = TypeVar("Command", bound=Callable[..., Any])


class Parsed(click.ParamType):
    """A type whose texts `parse` reads; a ValueError of it is what the user is shown."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default, or read already
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _digits(text: str, wanted: str, lowest: int = 0, highest: float = float("inf")) -> int:
    if not (text.isascii() and text.isdigit()) or not lowest <= int(text) <= highest:
        raise ValueError(f"{text!r} is not {wanted}")
    return int(text)


def _non_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"{text!r} is not a number of 0 or more")
    return number


def _seconds(text: str) -> float:
    from streamtopology.topology import parse_duration

    return parse_duration(text)


def _event_time(text: str) -> float:
    try:
        return float(_non_negative(text)) if text.replace(".", "", 1).isdigit() else _of_iso(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 2026-11-23T12:00:00Z, or epoch seconds") from None


def _of_iso(text: str) -> float:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


POSITIVE = Parsed("n", lambda text: _digits(text, "a whole number above 0", lowest=1))
WHOLE = Parsed("n", lambda text: _digits(text, "a whole number of 0 or more"))
BATCH = Parsed("batch", lambda text: _digits(text, "the number of a batch"))
PORT = Parsed("port", lambda text: _digits(text, "a port: a number from 1 to 65535, or 0 for any free one", highest=65535))
NON_NEGATIVE = Parsed("number", _non_negative)
EVENT_TIME = Parsed("time", _event_time)
DURATION = Parsed("time", _seconds)
FILE = click.Path(path_type=Path)


class Output(click.Path):
    """A file or folder that the command writes; one that it could not write is refused before any work is done."""

    def __init__(self, *, folder: bool) -> None:
        super().__init__(path_type=Path)
        self._folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        try:
            nearest = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
        except OSError as error:
            self.fail(f"cannot write {path}: {error.strerror}", param, ctx)
        if nearest != path.absolute() and not nearest.is_dir():
            self.fail(f"cannot write {path}: {nearest} is not a folder", param, ctx)
        if nearest == path.absolute() and nearest.is_dir() != self._folder:
            self.fail(f"cannot write {path}: it is {'no' if self._folder else 'a'} folder", param, ctx)
        if not os.access(nearest, os.W_OK):
            self.fail(f"cannot write {path}: {nearest} is not yours to write", param, ctx)
        return path


OUTPUT_FILE = Output(folder=False)
OUTPUT_FOLDER = Output(folder=True)


class ManifestFile(click.Path):
    """A manifest; a file that cannot be read is refused before anything else is loaded."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(value).is_fifo():  # can be read once, as `<(...)` can: opening it here would take its content from `load`
            return Path(value)
        try:
            with Path(value).open():
                return Path(value)
        except OSError as error:
            raise WrongUse(f"cannot read {value}: {error.strerror}") from error


manifest = click.argument("manifest", type=ManifestFile())

namespace = click.option("-n", "--namespace", metavar="NAME", help="Namespace of the topology (default: the kubeconfig's).")

context = click.option("--context", metavar="NAME", help="Cluster, by the kubeconfig's context (default: the current one).")


def _work_dir(kind: click.ParamType) -> Callable[[Command], Command]:
    return click.option(
        "--work-dir",
        type=kind,
        default=DEFAULT_WORK_DIR,
        show_default=True,
        metavar="DIR",
        help="Folder of the run: checkpoint, logs, the cluster's files.",
    )


# Of commands that read the folder of a run, which may be another user's.
work_dir = _work_dir(FILE)

# Of the run itself.
own_work_dir = _work_dir(OUTPUT_FOLDER)
