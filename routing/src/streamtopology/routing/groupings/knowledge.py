"""What a grouping learns from its instances: observers there, knowledge at the driver, choosers that use it.

Instances observe what tuples took and report after a batch; the driver puts the reports into what it knows already; the
next batch's choosers, however many schedulers there are, all start from that. Reports and knowledge are values with a
wire form. A lost report costs knowledge, never rows, so none of it belongs to what a retry must restore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from streamtopology.routing.groupings.spec import Chooser, Floats, Hashes


class KnowledgeFormatError(ValueError):
    """The wire form of knowledge or of a report is damaged or incomplete."""


class Report(Protocol):
    """What one instance has to tell since its last report."""

    def to_wire(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Report)


class Observer(ABC, Generic[R]):
    """The instance's side; lives with its instance from batch to batch and may be lost with it."""

    @abstractmethod
    def observe(self, hashes: Hashes, seconds: Floats) -> None:
        """Tuples in the order in which they were executed: uint64[n] key hashes, float64[n] what each took."""

    @abstractmethod
    def report(self) -> R | None:
        """What is new since the last report; None if nothing is."""


class Knowledge(ABC, Generic[R]):
    """What is known of all instances; immutable."""

    @abstractmethod
    def after(self, reports: Sequence[R]) -> Knowledge[R]:
        """What is known after reports of one batch, given in any order."""

    @abstractmethod
    def to_wire(self) -> dict[str, Any]:
        """JSON-able form, read back by `Learning.read_knowledge`."""


class LearningChooser(Chooser):
    """A chooser that is told what its instances reported."""

    @abstractmethod
    def learn(self, knowledge: Any, schedulers: int = 1) -> None:
        """Choose by this `Knowledge` of its grouping from the next tuple on.

        `schedulers`: how many choosers are told the same and divide the tuples to come among them; each makes up only its
        part of what is uneven so far.
        """


@dataclass(frozen=True)
class Learning:
    """A grouping's observers and knowledge. The two `read_*` raise `KnowledgeFormatError`.

    make_observer: (instance, checked options) -> Observer. nothing_known: checked options -> Knowledge.
    """

    make_observer: Callable[[int, Mapping[str, object]], Observer[Any]]
    nothing_known: Callable[[Mapping[str, object]], Knowledge[Any]]
    read_report: Callable[[Mapping[str, Any]], Report]
    read_knowledge: Callable[[Mapping[str, Any]], Knowledge[Any]]


def reading(what: str, read: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """`read`, with whatever is wrong with the wire form told as `KnowledgeFormatError`."""

    def read_or_tell(wire: Mapping[str, Any]) -> Any:
        try:
            return read(wire)
        except KeyError as missing:
            raise KnowledgeFormatError(f"{what}: field {missing} is missing") from missing
        except (AttributeError, TypeError, ValueError) as wrong:
            raise KnowledgeFormatError(f"{what}: {wrong}") from wrong

    return read_or_tell
