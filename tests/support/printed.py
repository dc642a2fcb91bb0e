"""Shell blocks of our pages, run as printed in a copy of the checkout, by a shell that has nothing of ours in its path."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SHELL = ("bash", "-euo", "pipefail", "-c")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str) -> list[str]:
    """The shell blocks below a heading, up to the next one, in their order. AssertionError: the page has no such heading."""
    _, found, rest = f"\n{(ROOT / page).read_text()}".partition(f"# {heading}\n")
    assert found, f"{page} has no heading {heading!r}"
    return [block for language, block in _BLOCK.findall(rest.partition("\n## ")[0]) if not language]


def clone(target: Path) -> Path:
    """Copy the files of this checkout, as `git clone` would, uncommitted changes included; `.venv` is ours.

    Times of files are kept: `make` finds the installation current in the copy if it is so here.
    """
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    (target / ".venv").symlink_to(ROOT / ".venv")
    return target


def run(script: str, folder: Path, seconds: float) -> str:
    """Run the lines with bash until one fails, and return all that they printed. AssertionError: one failed."""
    done = subprocess.run(
        [*_SHELL, script],
        cwd=folder,
        env=_environment(),
        check=False,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed = done.stdout.decode(errors="replace")
    assert done.returncode == 0, f"exit code {done.returncode}:\n{printed}"
    return printed


@contextlib.contextmanager
def running(script: str, folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell that runs the lines while this is entered; what they print goes to `log`. What still runs then is killed."""
    with log.open("wb") as printed:
        shell = subprocess.Popen(
            [*_SHELL, script], cwd=folder, env=_environment(), stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield shell
        finally:
            kill(shell)


def kill(shell: subprocess.Popen[bytes]) -> None:
    """End the shell and all that it has started, as the loss of power would."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()


def _environment() -> dict[str, str]:
    own = str(ROOT / ".venv")
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(own)]
    others = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    return {**others, "PATH": os.pathsep.join(path)}
