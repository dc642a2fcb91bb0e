"""The port for groupings that learn: observers at the instances, knowledge at the driver, choosers that use it.

Instances observe the seconds that tuples take and report after a batch; the driver adds the reports to its knowledge; all
choosers of the next batch start from that. Reports and knowledge are values with a wire form. A lost report costs
knowledge, never rows, so a retry restores none of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.wire_values import WireError, from_wire, to_wire
from streamtopology.routing.groupings.chooser import Chooser, Floats, Hashes


class KnowledgeFormatError(UnreadableData):
    """The wire form of knowledge or of a report is damaged or incomplete."""


class Report:
    """The observations of one instance since its last report: a dataclass."""

    def to_wire(self) -> dict[str, Any]:
        """The JSON value that `Learning.read_report` reads."""
        return to_wire(self)


R = TypeVar("R", bound=Report)
Value = TypeVar("Value")


class Observer(ABC, Generic[R]):
    """The instance's side. It lives with its instance from batch to batch and may be lost with it."""

    @abstractmethod
    def observe(self, hashes: Hashes, seconds: Floats) -> None:
        """Add tuples in the order of their execution: key hashes uint64[n] and the seconds each took, float64[n]."""

    @abstractmethod
    def report(self) -> R | None:
        """Return the observations since the last report; None if there are none."""


class Knowledge(ABC, Generic[R]):
    """The driver's knowledge of all instances: an immutable dataclass."""

    @abstractmethod
    def after(self, reports: Sequence[R]) -> Knowledge[R]:
        """Return the knowledge after the reports of one batch, given in any order."""

    def to_wire(self) -> dict[str, Any]:
        """The JSON value that `Learning.read_knowledge` reads."""
        return to_wire(self)


class LearningChooser(Chooser):
    """A chooser that uses what its instances report; `learning` has the other parts of its grouping."""

    learning: ClassVar[Learning]

    @abstractmethod
    def learn(self, knowledge: Any, schedulers: int = 1) -> None:
        """Use this `Knowledge` of the grouping from the next tuple on.

        schedulers: the number of choosers with the same knowledge among which the next tuples are divided; each evens out
        only its part of a present imbalance.
        """


@dataclass(frozen=True)
class Learning:
    """The observers and knowledge of a grouping. The two `read_*` raise `KnowledgeFormatError`.

    make_observer: (instance, checked options) -> Observer. nothing_known: checked options -> Knowledge.
    """

    make_observer: Callable[[int, Mapping[str, object]], Observer[Any]]
    nothing_known: Callable[[Mapping[str, object]], Knowledge[Any]]
    read_report: Callable[[Mapping[str, Any]], Report]
    read_knowledge: Callable[[Mapping[str, Any]], Knowledge[Any]]


def reading(what: str, kind: type[Value]) -> Callable[[Mapping[str, Any]], Value]:
    """Return a reader of these records such that every defect of the wire form raises `KnowledgeFormatError`."""

    def read(wire: Mapping[str, Any]) -> Value:
        try:
            return from_wire(kind, wire)
        except WireError as wrong:
            raise KnowledgeFormatError(f"{what}: {wrong}") from wrong

    return read
