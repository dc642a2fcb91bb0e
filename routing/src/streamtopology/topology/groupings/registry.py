"""All groupings: those built in, and those that installed packages add by an entry point of the group `GROUP`.

An entry point's name is the policy, its value the `GroupingSpec`: `package.module:ATTRIBUTE`. They are read once, when a policy
is looked for that is not built in, or a manifest is judged; a package's module is loaded with its first policy that is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from streamtopology.topology.groupings.catalogue import BUILT_IN
from streamtopology.topology.groupings.spec import GroupingError, GroupingSpec
from streamtopology.topology.reading import LONGEST_NAME, NAME_EXPECTED, NAME_PATTERN

GROUP = "streamtopology.groupings"


class _Installed(Mapping[str, GroupingSpec]):
    """The groupings by name, the built-in ones first. One of a package that cannot be used is none; `find` says why."""

    def __getitem__(self, name: str) -> GroupingSpec:
        try:
            spec = BUILT_IN.get(name) or find(name)
        except GroupingError:
            spec = None
        if spec is None:
            raise KeyError(name)
        return spec

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from (name for name in sorted(_added()) if name not in BUILT_IN and name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


GROUPINGS: Mapping[str, GroupingSpec] = _Installed()


def get(name: str) -> GroupingSpec:
    """Return the grouping of this name. Raises GroupingError, which names those that exist."""
    spec = BUILT_IN.get(name) or find(name)
    if spec is None:
        raise GroupingError(f"there is no grouping {name!r}; there are {', '.join(GROUPINGS)}")
    return spec


@cache
def find(name: str) -> GroupingSpec | None:
    """Return the grouping of this name; None if neither we nor an installed package has it.

    Raises GroupingError, which names the package, for one that cannot be used: another has its name, or it cannot be loaded.
    """
    points = _added().get(name, ())
    packages = " and ".join(_package(point) for point in points)
    if points and name in BUILT_IN:
        raise GroupingError(f"{packages} adds a policy {name!r}, which is built in; rename it, or uninstall the package")
    if len(points) > 1:
        raise GroupingError(f"{packages} add a policy {name!r} each; uninstall all of them but one")
    return _loaded(points[0]) if points else BUILT_IN.get(name)


def code_of(reference: str) -> Any:
    """Load what "package.module:name" names. Raises GroupingError, which says why it cannot be loaded."""
    return _load(EntryPoint("", reference, GROUP), "a grouping's code")


@cache
def _added() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of the installed packages, by policy."""
    points = sorted(entry_points(group=GROUP), key=_package)
    return {name: tuple(point for point in points if point.name == name) for name in {point.name for point in points}}


def _loaded(point: EntryPoint) -> GroupingSpec:
    what = f"the policy {point.name!r} of {_package(point)}"
    spec = _load(point, what)
    if not isinstance(spec, GroupingSpec) or spec.name != point.name:
        found = f"the GroupingSpec of {spec.name!r}" if isinstance(spec, GroupingSpec) else f"a {type(spec).__name__}"
        raise GroupingError(f"{what}: found {found} in {point.value}, expected its GroupingSpec; repair or uninstall it")
    if len(spec.name) > LONGEST_NAME or not re.fullmatch(NAME_PATTERN, spec.name):
        raise GroupingError(f"{what}: found the name {spec.name!r}, expected {NAME_EXPECTED}")
    return spec


def _load(point: EntryPoint, what: str) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise GroupingError(f"{what} cannot be loaded from {point.value!r} ({reason}); repair or uninstall it") from error


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist else "a package without a name"
