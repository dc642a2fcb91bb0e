"""What a grouping is: its name, what it asks of a topology, its options and, if it chooses per tuple, its chooser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
import numpy.typing as npt

from streamtopology.routing.hashing import kernel_input
from streamtopology.routing.table import RoutingTable

if TYPE_CHECKING:
    from streamtopology.routing.groupings.knowledge import Learning

Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class GroupingError(ValueError):
    """A grouping is unknown, or is given what it does not take; the message says what is allowed."""


class OptionError(ValueError):
    """An option's value cannot be; the message says what was found and what is expected."""


class Chooser(ABC):
    """Chooses an instance per tuple and remembers what it chose. A router has one for all it sends to an operator.

    instances: int32[k], the active ones. loads: float64[k], rows that each of them got so far from all routers
    together. seed: differs from router to router; it never decides which instances a key may go to. options: as
    `check_options` of its grouping returns them. An instance with capacity 0 is given nothing.
    """

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object] | None = None) -> None:
        active = np.asarray(instances, np.int32)
        capacities = _capacities(cast("Sequence[float] | None", (options or {}).get("capacities")), len(active))
        if not len(active) or len(loads) != len(active):
            raise GroupingError(f"a chooser needs active instances, and a load for each: {len(active)}, {len(loads)}")
        usable = capacities > 0
        self.instances: Instances = active[usable]
        self.capacities: Floats = capacities[usable]
        self.loads: Floats = np.asarray(loads, np.float64)[usable]
        self.seed = seed

    @abstractmethod
    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        """int32[n]: the instances of the next n tuples, whose key hashes uint64[n] are needed where keys matter."""


class VirtualChooser(Chooser):
    """Chooses a virtual worker per tuple, and lets the operator's table say which instance that one is on.

    A virtual worker is a bucket of `table`; `virtual` chooses among their numbers. What it remembers is about virtual
    workers, so it stays true when these change place.
    """

    def __init__(self, virtual: Chooser, table: RoutingTable, instances: Instances, loads: Floats) -> None:
        super().__init__(instances, loads, virtual.seed)
        self._virtual = virtual
        self._table = table

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        return self._table.buckets[self._virtual.choose(hashes, n)]

    def follow(self, table: RoutingTable) -> None:
        """From now on by `table`, which has the same virtual workers elsewhere."""
        if len(table.buckets) != len(self._table.buckets):
            raise GroupingError(f"{len(table.buckets)} virtual workers in place of {len(self._table.buckets)}")
        self._table = table


@dataclass(frozen=True)
class Option:
    """One option: its default, how a given value is read (OptionError: what is allowed), and a line for people."""

    default: object
    read: Callable[[object], object]
    summary: str


@dataclass(frozen=True)
class GroupingSpec:
    """A grouping as the registry knows it.

    kind: "table" is looked up in the operator's routing table, "chooser" is decided tuple by tuple, "virtual" is both:
    a virtual worker (a bucket of the table) is decided tuple by tuple, its instance looked up. splits_keys: one key may
    go to several instances. needs_key: it cannot work without key columns. planner: name of the planner that changes
    its table, None where only rescaling does. make_chooser: a chooser among instances or, if "virtual", among virtual
    workers. problems_together: given all options, each fine alone, what is wrong between them: option name -> what is
    allowed. learning: what its choosers learn from instances, None where they learn nothing. prefers_local: its chooser
    is made for the instances beside the router alone, where there are any.
    """

    name: str
    kind: Literal["table", "chooser", "virtual"]
    splits_keys: bool
    needs_key: bool
    summary: str
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    planner: str | None = None
    make_chooser: Callable[[Instances, Floats, int, Mapping[str, object]], Chooser] | None = None
    problems_together: Callable[[Mapping[str, object]], Mapping[str, str]] | None = None
    learning: Learning | None = None
    prefers_local: bool = False

    def option_problems(self, given: Mapping[str, object]) -> dict[str, str]:
        """Every mistake in the options given: option name -> what was found and what is allowed."""
        problems: dict[str, str] = {}
        for name, value in given.items():
            if name not in self.options:
                allowed = ", ".join(self.options) or "none at all"
                problems[name] = f"is no option of the grouping {self.name!r}; allowed: {allowed}"
                continue
            try:
                self.options[name].read(value)
            except OptionError as error:
                problems[name] = str(error)
        if not problems and self.problems_together:
            problems.update(self.problems_together(self._read(given)))
        return problems

    def check_options(self, given: Mapping[str, object]) -> dict[str, object]:
        """All options, those given checked and the others at their default. GroupingError names every mistake."""
        problems = self.option_problems(given)
        if problems:
            raise GroupingError("; ".join(f"{name}: {message}" for name, message in problems.items()))
        return self._read(given)

    def _read(self, given: Mapping[str, object]) -> dict[str, object]:
        return {name: option.read(given[name]) if name in given else option.default for name, option in self.options.items()}

    def first_table(self, instances: Sequence[int], options: Mapping[str, object]) -> RoutingTable | None:
        """The table that an operator starts with, uniform over its instances; None for a grouping that has none."""
        if self.kind == "chooser":
            return None
        if self.kind == "table":
            return RoutingTable.uniform(instances)
        each = cast(int, self.check_options(options)["virtualWorkers"])
        return RoutingTable.uniform(instances, each * len(instances))

    def chooser(
        self,
        instances: Instances,
        loads: Floats,
        seed: int,
        options: Mapping[str, object] | None = None,
        table: RoutingTable | None = None,
        beside: Sequence[int] = (),
    ) -> Chooser:
        """A new chooser of this grouping. `table` is the operator's, for a grouping of virtual workers.

        `beside`: the instances on the router's own executor, active or not; only `prefers_local` groupings look at it.
        GroupingError for a table grouping, for virtual workers without a table and for options it does not take.
        """
        if self.make_chooser is None:
            raise GroupingError(f"the grouping {self.name!r} looks instances up in a table; it has no chooser")
        checked = self.check_options(options or {})
        if self.kind == "virtual":
            if table is None:
                raise GroupingError(f"the grouping {self.name!r} finds virtual workers in the operator's table; there is none")
            n_virtual = len(table.buckets)
            virtual = self.make_chooser(np.arange(n_virtual, dtype=np.int32), np.zeros(n_virtual), seed, checked)
            return VirtualChooser(virtual, table, instances, loads)
        if self.prefers_local:
            active = np.asarray(instances, np.int32)
            capacities = _capacities(cast("Sequence[float] | None", checked.get("capacities")), len(active))
            near = np.isin(active, np.asarray(beside, np.int32)) & (capacities > 0)
            if near.any() and len(loads) == len(active):
                instances, loads = active[near], loads[near]
                checked["capacities"] = tuple(capacities[near].tolist())
        return self.make_chooser(instances, loads, seed, checked)


def read_capacities(value: object) -> tuple[float, ...] | None:
    """Relative capacities of the active instances in their order; None is equal ones."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise OptionError(f"found {value!r}, expected a list of numbers, one for each active instance")
    numbers = tuple(read_number(number) for number in cast("Sequence[object]", value))
    if not any(numbers):
        raise OptionError(f"found {value!r}, expected at least one capacity greater than 0")
    return numbers


def read_number(value: object) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise OptionError(f"found {value!r}, expected a finite number >= 0")
    return float(value)


def read_count(value: object) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"found {value!r}, expected a whole number >= 1")
    return value


def checked_hashes(hashes: Hashes | None, n: int, policy: str) -> Hashes:
    """The key hashes of n tuples as kernels take them; GroupingError when there is not one for each."""
    if hashes is None or len(hashes) != n:
        found = "none" if hashes is None else len(hashes)
        raise GroupingError(f"{policy} chooses by key: {n} tuples need {n} key hashes, found {found}")
    return kernel_input(hashes, np.uint64, "hashes")


CAPACITIES = Option(None, read_capacities, "relative capacity of each active instance; equal if left out")


def _capacities(given: Sequence[float] | None, k: int) -> Floats:
    if given is None:
        return np.ones(k)
    if len(given) != k:
        raise GroupingError(f"{len(given)} capacities for {k} active instances; there is one for each")
    return np.asarray(given, np.float64)
