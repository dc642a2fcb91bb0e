"""A disk whose processes die between any two operations, with or without the power.

Where only the process dies, everything done stays. In a power cut, what was not synced may be there or not, each name by
itself; of a file that was being written, any beginning may be there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from streamtopology.jobs.checkpoint.filesystem import Pieces


def _nothing(operation: str, path: str) -> None:
    pass


def _unnoticed(path: str, data: bytes) -> None:
    pass


@dataclass
class FaultyDisk:
    """`names` is what a process sees, `durable` what would be there after a power cut; both by path.

    `step` is called before each operation, and may raise in its place; `linked` after a file has got a name, with its content.
    Files below `mirrored` are also on the real disk, for libraries that open them by path.
    """

    names: dict[str, bytes] = field(default_factory=dict[str, bytes])
    durable: dict[str, bytes] = field(default_factory=dict[str, bytes])
    folders: set[str] = field(default_factory=set[str])
    durable_folders: set[str] = field(default_factory=set[str])
    step: Callable[[str, str], None] = _nothing
    linked: Callable[[str, bytes], None] = _unnoticed
    mirrored: str | None = None
    # By folder the names in it that may differ from what is durable.
    _unsynced: dict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))

    def __post_init__(self) -> None:
        for path in self.names.keys() | self.durable.keys():
            if self.names.get(path) != self.durable.get(path):
                self._touch(path)

    def copy(self) -> FaultyDisk:
        """A disk of its own with the same on it."""
        return FaultyDisk(dict(self.names), dict(self.durable), set(self.folders), set(self.durable_folders))

    def cut_power(self, seed: int) -> list[str]:
        """Keep or drop what was not synced; then everything left is durable. Returns what was not as it had been."""
        chance = Random(seed)
        lost: list[str] = []
        for path in sorted(self.names.keys() | self.durable.keys()):
            now, before = self.names.get(path), self.durable.get(path)
            kept = now if now == before or chance.random() < 0.5 else before
            if kept is not None and not self._is_reachable(path):
                kept = None
            if kept != now:
                lost.append(path)
            if kept is None:
                self.names.pop(path, None)
            else:
                self.names[path] = kept
            self._mirror(path)
        self.durable, self.folders = dict(self.names), set(self.durable_folders)
        self._unsynced.clear()
        return lost

    def put_back(self, names: Mapping[str, bytes]) -> None:
        """Have what is on an older copy of the disk, and nothing else."""
        for path in self.names.keys() | names.keys():
            if path in names:
                self.names[path] = names[path]
            else:
                del self.names[path]
            self._mirror(path)
        self.durable = dict(self.names)
        self._unsynced.clear()

    # --- what `LocalStore` does ---

    def write(self, path: Path, pieces: Pieces) -> None:
        name, data = str(path), b"".join(pieces)
        self.step("write", name)
        if _folder_of(name) not in self.folders:
            raise FileNotFoundError(2, "No such file or directory", name)
        if name in self.names:
            raise FileExistsError(17, "File exists", name)
        self.names[name] = b""
        self._touch(name)
        try:
            for part in (len(data) // 2, len(data)):
                self.step("append to", name)
                if name in self.names:  # else another process has deleted it meanwhile: what is written has no name
                    self.names[name] = data[:part]
                    self._touch(name)
            self.step("sync", name)  # its content is synced; its name is not
        except OSError:
            self.names.pop(name, None)  # as the operating system's disk does
            self._touch(name)
            raise
        self._mirror(name)

    def link(self, existing: Path, name: Path) -> None:
        self.step("link", str(name))
        if str(name) in self.names:
            raise FileExistsError(17, "File exists", str(name))
        if str(existing) not in self.names:
            raise FileNotFoundError(2, "No such file or directory", str(existing))
        self.names[str(name)] = self.names[str(existing)]
        self._touch(str(name))
        self._mirror(str(name))
        self.linked(str(name), self.names[str(name)])

    def unlink(self, path: Path) -> None:
        self.step("unlink", str(path))
        if str(path) not in self.names:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        del self.names[str(path)]
        self._touch(str(path))
        self._mirror(str(path))

    def make_folder(self, folder: Path) -> None:
        for above in reversed([str(folder), *map(str, folder.parents)]):
            if above not in self.folders:
                self.step("make folder", above)
                self.folders.add(above)

    def sync_folder(self, folder: Path) -> None:
        above = str(folder)
        self.step("sync folder", above)
        for path in self._unsynced.pop(above, ()):
            if path in self.names:
                self.durable[path] = self.names[path]
            else:
                self.durable.pop(path, None)
        self.durable_folders |= {path for path in self.folders if _folder_of(path) == above}

    def read(self, path: Path) -> bytes:
        self.step("read", str(path))
        if str(path) not in self.names:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return self.names[str(path)]

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def exists(self, path: Path) -> bool:
        return str(path) in self.names or str(path) in self.folders or str(path) == "/"

    def files_below(self, folder: Path) -> list[Path]:
        self.step("list", str(folder))
        below = f"{folder}/"
        return [Path(path) for path in self.names if path.startswith(below)]

    def _touch(self, path: str) -> None:
        self._unsynced[_folder_of(path)].add(path)

    def _mirror(self, name: str) -> None:
        if self.mirrored is None or not name.startswith(self.mirrored):
            return
        path = Path(name)
        if name in self.names:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.names[name])
        else:
            path.unlink(missing_ok=True)

    def _is_reachable(self, path: str) -> bool:
        while (path := _folder_of(path)) != "/":
            if path not in self.durable_folders:
                return False
        return True


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
