"""What a driver leaves in its cluster's folder for the next one: which processes there are, and for whom they are.

The folder and the file are their owner's alone, as the file has the cluster's secret.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from streamtopology.jobs.local.cleanup import ClusterResources
from streamtopology.jobs.local.ownership import KEPT, is_kept, own


@dataclass(frozen=True)
class Purpose:
    """checkpoint: of which the workers hold state. identity: of all that says what a worker's process is."""

    checkpoint: str
    identity: str


@dataclass(frozen=True)
class KeptProcess:
    """The program in a slot: its number, its process, the address."""

    number: int
    pid: int
    host: str


@dataclass(frozen=True)
class KeptCluster:
    """A cluster. keeper: the process that removes it when nobody takes it over."""

    name: str
    secret: str
    keeper: int
    purpose: Purpose
    cgroups: tuple[str, ...]
    processes: Mapping[str, KeptProcess]

    def save(self, directory: Path) -> None:
        unseen = directory / f".{KEPT}.{os.getpid()}"
        unseen.touch(mode=0o600)
        unseen.write_text(json.dumps(asdict(self)))
        unseen.replace(directory / KEPT)

    @staticmethod
    def read(directory: Path) -> KeptCluster:
        """Raises OSError, or ValueError or TypeError for one of another version."""
        given = json.loads((directory / KEPT).read_text())
        processes = {slot: KeptProcess(**process) for slot, process in given.pop("processes").items()}
        purpose, cgroups = Purpose(**given.pop("purpose")), tuple(given.pop("cgroups"))
        return KeptCluster(purpose=purpose, cgroups=cgroups, processes=processes, **given)


def claim_kept(work_dir: Path, purpose: Purpose) -> KeptCluster | None:
    """Make this process the owner of a dead driver's cluster for this purpose, and return it; None if there is none.

    One for the same checkpoint that is of no use is removed. The caller holds the topology's name on this machine, so its
    driver has died.
    """
    for directory in work_dir.iterdir() if work_dir.is_dir() else ():
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = KeptCluster.read(directory)
            if kept.purpose.checkpoint != purpose.checkpoint or not is_kept(kept.name):
                continue
            if kept.purpose == purpose and kept.processes:
                own(directory)
                if (directory / KEPT).exists():
                    return kept
            ClusterResources(kept.name, directory, tuple(map(Path, kept.cgroups))).sweep()
    return None


class AdoptedProcess:
    """A process that another one has started; see `subprocess.Popen`. Its exit code cannot be known."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError."""
        self.pid = pid
        self._process = os.pidfd_open(pid)

    def __del__(self) -> None:
        os.close(self._process)

    def poll(self) -> int | None:
        return -1 if select.select([self._process], [], [], 0)[0] else None

    def wait(self) -> int:
        select.select([self._process], [], [])
        return -1

    def send_signal(self, sig: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
