"""A disk in memory that dies between any two file operations, with or without the power.

Where only the process dies, everything done stays. In a power cut, what was not synced may be there or not, each name by
itself; of a file that was being written, any beginning may be there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from streamtopology.jobs.checkpoint.disk import Content


class Died(BaseException):
    """The process is gone. Not an Exception: nobody is there to handle it."""


@dataclass
class FaultyDisk:
    """`names` is what a process sees, `durable` what would be there after a power cut; both by path."""

    names: dict[str, bytes] = field(default_factory=dict)
    durable: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    durable_folders: set[str] = field(default_factory=set)
    steps_left: int | None = None
    operations: int = 0

    def copy(self) -> FaultyDisk:
        """A disk of its own with the same on it."""
        return FaultyDisk(dict(self.names), dict(self.durable), set(self.folders), set(self.durable_folders))

    def die_after(self, steps: int | None) -> None:
        """The process dies when so many more steps are done; None: it lives."""
        self.steps_left = steps

    def cut_power(self, seed: int) -> None:
        """What was not synced is there or not; then all that is left is durable."""
        chance = random.Random(seed)
        for path in sorted(self.names.keys() | self.durable.keys()):
            now, before = self.names.get(path), self.durable.get(path)
            kept = now if now == before or chance.random() < 0.5 else before
            if kept is not None and self._is_reachable(path):
                self.names[path] = kept
            else:
                self.names.pop(path, None)
        self.durable, self.folders = dict(self.names), set(self.durable_folders)

    # --- what `LocalStore` does ---

    def write(self, path: Path, data: Content) -> None:
        self._step()
        name = str(path)
        assert _folder_of(name) in self.folders, f"{path.parent} is not there"
        if name in self.names:
            raise FileExistsError(17, "File exists", name)
        self.names[name] = b""
        for part in (len(data) // 2, len(data)):
            self._step()
            self.names[name] = bytes(data[:part])
        self._step()  # its content is synced; its name is not

    def link(self, existing: Path, name: Path) -> None:
        self._step()
        if str(name) in self.names:
            raise FileExistsError(17, "File exists", str(name))
        self.names[str(name)] = self.names[str(existing)]

    def unlink(self, path: Path) -> None:
        self._step()
        if str(path) not in self.names:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        del self.names[str(path)]

    def make_folder(self, folder: Path) -> None:
        for above in reversed([str(folder), *map(str, folder.parents)]):
            if above not in self.folders:
                self._step()
                self.folders.add(above)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        above = str(folder)
        for path in [path for path in self.names.keys() | self.durable.keys() if _folder_of(path) == above]:
            if path in self.names:
                self.durable[path] = self.names[path]
            else:
                del self.durable[path]
        self.durable_folders |= {path for path in self.folders if _folder_of(path) == above}

    def read(self, path: Path) -> bytes:
        if str(path) not in self.names:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return self.names[str(path)]

    def exists(self, path: Path) -> bool:
        return str(path) in self.names or str(path) in self.folders or str(path) == "/"

    def files_below(self, folder: Path) -> list[Path]:
        below = f"{folder}/"
        return [Path(path) for path in self.names if path.startswith(below)]

    def _is_reachable(self, path: str) -> bool:
        while (path := _folder_of(path)) != "/":
            if path not in self.durable_folders:
                return False
        return True

    def _step(self) -> None:
        self.operations += 1
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Died
            self.steps_left -= 1


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
