"""The `streamtopology` command. Exit codes: 0 success, 1 run or check failed, 2 usage error, 128 + the signal that ended it."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence
from importlib.metadata import version

import click

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.cli.command_group import CommandGroup
from streamtopology.jobs.cli.examples import epilog
from streamtopology.jobs.cli.parameters import FAILURE, INTERRUPTED, SUCCESS
from streamtopology.jobs.malloc import share_one_heap

NAME = "streamtopology"
_COMPLETION = "_STREAMTOPOLOGY_COMPLETE"
_LONGEST = 200  # characters of a text that cannot be printed
_ROOM = "streamtopology.jobs.cli"

COMMANDS = {
    "run": f"{_ROOM}.run:run",
    "validate": f"{_ROOM}.run:validate",
    "try": f"{_ROOM}.trial:try_",
    "init": f"{_ROOM}.scaffold:init",
    "new-operator": f"{_ROOM}.scaffold:new_operator",
    "plan": f"{_ROOM}.plan:plan",
    "apply": f"{_ROOM}.control:apply",
    "resize": f"{_ROOM}.control:resize",
    "scale": f"{_ROOM}.control:scale",
    "stop": f"{_ROOM}.control:stop",
    "top": f"{_ROOM}.control:top",
    "explain": f"{_ROOM}.control:explain",
    "ui": f"{_ROOM}.control:ui",
    "state": f"{_ROOM}.state:state",
    "driver": f"{_ROOM}.pods:driver",
    "executor": f"{_ROOM}.pods:executor",
    "migrate": f"{_ROOM}.pods:migrate",
    "snapshot": f"{_ROOM}.pods:snapshot",
}


def _version(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"{NAME} {version('streamtopology')} (Python {python}, Spark {version('pyspark')})")
        context.exit()


streamtopology = CommandGroup(
    COMMANDS,
    name=NAME,
    help="Skewed streams on unequal machines, re-routed live.",
    epilog=epilog("", "Exit codes: 0 success, 1 run or check failed, 2 usage error, 130 Ctrl-C, 143 SIGTERM."),
    params=[
        click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show versions.")
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name (default: the process's own); returns the exit code."""
    asked = os.environ.get(_COMPLETION)
    if asked:
        return _complete(asked)
    share_one_heap()
    # not click's `main`: it takes any EOFError for Ctrl-D and any broken pipe for a reader that has left, and hides both
    try:
        with streamtopology.make_context(NAME, list(sys.argv[1:] if arguments is None else arguments)) as context:
            return streamtopology.invoke(context) or SUCCESS
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        return FAILURE
    except UnicodeEncodeError as error:
        if error.encoding == "utf-8":
            raise
        _print_unspellable(error)
        return FAILURE
    except StreamTopologyError as error:  # any other is a programming error and shows its traceback
        _print(error)
        return error.exit_code


def _complete(asked: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(streamtopology, {}, NAME, _COMPLETION, asked)


def _reader_has_left() -> bool:
    """True if nothing reads the standard output any more, as in `... | head -1`; what is left of it is then dropped."""
    output = select.poll()
    output.register(1, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return True


def _print_unspellable(error: UnicodeEncodeError) -> None:
    from streamtopology.jobs.local.spelling import locale_of

    text = ascii(error.object if len(error.object) <= _LONGEST else error.object[error.start : error.start + _LONGEST])
    print(
        f"streamtopology: the locale ({locale_of()}, encoding {error.encoding}) cannot spell {text}: set LC_ALL=C.UTF-8, and "
        "unset PYTHONUTF8 and PYTHONIOENCODING",
        file=sys.stderr,
    )


def _print(error: StreamTopologyError) -> None:
    from streamtopology.topology import ManifestError

    print(error if isinstance(error, ManifestError) else f"streamtopology: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
