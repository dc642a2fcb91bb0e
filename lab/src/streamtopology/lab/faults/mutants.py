"""Mutants: small faults put into the project's code, to see that the simulator finds them.

A mutant is a TOML file that names a module, some of its text, and what stands there instead. It changes the module as it is
imported, and no file: so it fits as long as that text stands in the module once, whatever is around it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopology.lab.faults.story import Story


class MutantError(Exception):
    """A mutant does not fit the code, or comes too late."""


@dataclass(frozen=True)
class Mutant:
    """In `module`, `after` in place of `before`.

    `breaks`: the promise that no longer holds. `histories`: the number within which it is found, of those that `concerns`
    lets through: `operators`, `faults`, `events` and properties of `shape` that its story needs, all of them; empty: any story.
    `real_time`: in stories by long-lived workers.
    """

    name: str
    module: str
    before: str
    after: str
    breaks: str
    histories: int
    operators: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    shape: frozenset[str] = frozenset()
    real_time: bool = False

    @staticmethod
    def read(path: Path) -> Mutant:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        before, after = given["before"].strip("\n"), given["after"].strip("\n")
        needs = [frozenset(given.get(name, ())) for name in ("operators", "faults", "events", "shape")]
        given_as = (path.stem, given["module"], before, after, given["breaks"], given["histories"])
        return Mutant(*given_as, *needs, real_time=given.get("real_time", False))

    def concerns(self, story: Story) -> bool:
        """True if the story has what this mutant needs to be seen: most promises are about something that may happen."""
        return (
            self.operators <= set(story.shape.operators)
            and self.faults <= {f"{fault.role} {fault.kind}" for fault in story.faults}
            and self.events <= {event.kind for event in story.events}
            and all(getattr(story.shape, name) for name in self.shape)
        )

    def applied(self, source: str) -> str:
        """The module's text with the fault in it. Raises MutantError unless `before` stands there once."""
        count = source.count(self.before)
        if count != 1:
            raise MutantError(f"mutant {self.name}: its text stands {count} times in {self.module}; correct the mutant")
        return source.replace(self.before, self.after)

    def install(self) -> None:
        """From now on the module is imported with the fault. Raises MutantError if it has been imported before."""
        if self.module in sys.modules:
            raise MutantError(f"mutant {self.name}: {self.module} is imported already")
        sys.meta_path.insert(0, _Finder(self))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=_Loader(self._mutant, fullname, spec.origin)
        )


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compile at every import: the cache is of the module without the fault."""
        path = self.get_filename(fullname)
        source = self.get_data(path).decode("utf-8")
        return compile(self._mutant.applied(source), path, "exec", dont_inherit=True)
