"""Work in a process of its own, which may be killed without harm to ours."""

from __future__ import annotations

import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def killed_in(work: Callable[[], object]) -> bool:
    """Do `work` in a fork of this process: whether SIGKILL ended it. AssertionError when it raised.

    What this process has compiled and loaded the fork has, too: a life costs milliseconds, not seconds.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - this process ends here; its parent fails the test
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"ended by signal {os.WTERMSIG(status)}"
        return True
    assert os.WEXITSTATUS(status) == 0, "the work raised; its traceback is above"
    return False


def threads_of_libraries() -> list[str]:
    """Names of threads of this process that a library in Rust has started: a fork of it would wait for them for ever."""
    names: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            names.append(task.joinpath("comm").read_text().strip())
    return [name for name in names if name.startswith("tokio")]


def apart(test: Callable[..., object]) -> Callable[..., None]:
    """The test in a fork of this process: a library that starts threads there leaves ours able to fork."""

    @functools.wraps(test)
    def in_a_fork(*arguments: object, **named: object) -> None:
        assert not killed_in(lambda: test(*arguments, **named))

    return in_a_fork
