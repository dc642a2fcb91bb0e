"""How a driver calls a worker whose process is not Spark's: by a file in the worker's folder, which only its owner can read.

Nothing listens for drivers. A worker looks for a summons that is newer than the last one it obeyed, and connects to where that
says. A driver of another generation has a file of its own, so of two drivers the one of the newer generation has the workers,
whoever writes last.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_FILE = re.compile(r"summons-(\d+)\.json")


@dataclass(frozen=True)
class Summons:
    """To serve a driver, at `driver`, under the name `worker`, in messages of `run`.

    generation: the driver's among all of its checkpoint. number: of its summonses, one after the other. batches: the run in
    the keys of cached state.
    """

    generation: int
    number: int
    run: str
    driver: str
    worker: str
    batches: str

    def is_after(self, other: Summons | None) -> bool:
        return other is None or (self.generation, self.number) > (other.generation, other.number)

    def give(self, folder: Path) -> None:
        """Call the worker of `folder`; those that drivers of earlier generations have given go."""
        unseen = folder / f".summons.{os.getpid()}"
        unseen.touch(mode=0o600)
        unseen.write_text(json.dumps(asdict(self)))
        unseen.replace(folder / f"summons-{self.generation}.json")
        for generation, path in _given(folder).items():
            if generation < self.generation:
                path.unlink(missing_ok=True)


def find(folder: Path) -> Summons | None:
    """The newest summons of the worker of `folder`."""
    given = _given(folder)
    with suppress(FileNotFoundError):  # another driver has just replaced it: the next look finds that one's
        return Summons(**json.loads(given[max(given)].read_text())) if given else None
    return None


def _given(folder: Path) -> dict[int, Path]:
    found = ((_FILE.fullmatch(name), name) for name in os.listdir(folder))
    return {int(match[1]): folder / name for match, name in found if match}
