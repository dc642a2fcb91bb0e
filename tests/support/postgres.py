"""A real PostgreSQL for tests, with a cluster of its own; Debian's, installed by scripts/postgres-packages.sh."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SETTINGS = "-c listen_addresses='' -c fsync=off"


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if not found:
        pytest.fail(f"no {name}: scripts/postgres-packages.sh installs it (Debian: apt-get install postgresql)")
    return str(found[-1])


def _run(*command: str) -> None:
    """As the user `postgres`, where this is root, whom the server refuses."""
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*as_user, *command], check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty database."""
    folder = Path("/tmp") / f"postgres-{os.getpid()}"  # the user `postgres` cannot enter pytest's folders
    folder.mkdir()
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        _run(_program("initdb"), "-D", f"{folder}/data", "-U", "tests", "--auth=trust", "--no-sync")
        options = f"{_SETTINGS} -c unix_socket_directories={folder}"
        _run(_program("pg_ctl"), "-D", f"{folder}/data", "-o", options, "-l", f"{folder}/log", "-w", "start")
        try:
            yield f"postgresql://tests@/postgres?host={folder}"
        finally:
            _run(_program("pg_ctl"), "-D", f"{folder}/data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
