"""A limit of writes for each object: a step that has to be taken again and again is taken less and less often. Pure.

What makes it necessary is outside: the cluster refuses the step, or somebody takes it back each time.
"""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamtopology.contract.conditions import DegradedReason
from streamtopology.k8s.decide.steps import Finalizer, Step

# Kind and name of an object.
Place = tuple[str, str]

# Kind of a step, and the place of its object: what is applied and then patched is limited in both.
Aim = tuple[str, str, str]

# Seconds until a step is repeated: doubled from the first to the longest.
FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0

# A step that was not taken for so long begins again.
FORGOTTEN_SECONDS = 600.0

# The objects with taken names that a message names.
MOST_NAMED = 10

# The number of times that a step has gone well and is wanted again, from which on that is reported.
CONTESTED = 4


@dataclass(frozen=True)
class Attempts:
    """The number of times in a row that the same step was taken at an object, and the last time, in seconds since 1970.

    `refused`: the number of times in a row that it was refused, 0 if it went well the last time. `refusal`: (reason,
    sentence) of the last time, None while that need not be reported, and `remedy` what helps. `text`: the step, for people.
    `generation`: of the topology, the last time.
    """

    step: str
    count: int
    last: float
    refusal: tuple[str, str] | None = None
    refused: int = 0
    text: str = ""
    generation: int = 0
    remedy: str = ""

    @property
    def due(self) -> float:
        """The time from which on the step may be taken again."""
        return self.last + self._pause

    @property
    def over(self) -> float:
        """The time from which on a fight is over, unless the step is wanted before: each writer has its way for a while."""
        return self.last + 2 * self._pause

    @property
    def _pause(self) -> float:
        return min(FIRST_DELAY * 2 ** (self.count - 1), LONGEST_DELAY)


Known = Mapping[Aim, Attempts]


def aim_of(step: Step) -> Aim:
    return type(step).__name__, *step.place


@dataclass(frozen=True)
class Away:
    """Looks at a topology that failed for want of an answer, none that came through in between.

    `since`: the first one, in seconds since 1970; `why`: of that.
    """

    count: int
    since: float
    why: str


@dataclass(frozen=True)
class Refusal:
    """The answer to a refused step: (reason, sentence), and the number of times in a row from which on it is reported.

    `remedy`: what helps, said once for all objects that it helps with; empty where it is in the sentence.
    """

    problem: tuple[str, str]
    tries: int = 1
    remedy: str = ""


def noted(known: Attempts | None, step: Step, now: float, refusal: Refusal | None = None, generation: int = 0) -> Attempts:
    """The attempts of a kind at an object after one more, under a generation of the topology."""
    same = known if known is not None and known.step == step.content else Attempts(step.content, 0, now)
    if refusal is None:
        return Attempts(step.content, same.count + 1, now, text=str(step), generation=generation)
    refused = same.refused + 1
    problem = refusal.problem if refused >= refusal.tries else None
    return Attempts(step.content, same.count + 1, now, problem, refused, str(step), generation, refusal.remedy)


def under(known: Known, generation: int) -> dict[Aim, Attempts]:
    """Without what went well under another generation of the topology.

    A class that an edit takes away and the next one brings back is made anew each time, and nobody else is at work.
    """
    return {aim: before for aim, before in known.items() if before.refused or before.generation == generation}


def kept(known: Known, now: float) -> dict[Aim, Attempts]:
    """Without the attempts that are forgotten."""
    return {aim: before for aim, before in known.items() if now - before.last < FORGOTTEN_SECONDS}


def allowed(steps: Iterable[Step], known: Known, now: float) -> tuple[tuple[Step, ...], float | None]:
    """The steps that may be taken now, and the seconds until one of the others may; None where there are no others.

    None is taken after a finalizer that has to wait: without it nothing is made.
    """
    taken: list[Step] = []
    delays: list[float] = []
    for step in steps:
        before = _same(step, known)
        if before is None or before.due <= now:
            taken.append(step)
            continue
        delays.append(before.due - now)
        if isinstance(step, Finalizer):
            break
    return tuple(taken), min(delays, default=None)


def is_repeated(steps: Iterable[Step], known: Known, now: float) -> bool:
    """True if one of these steps was refused before, or has to wait: what they begin has been told."""
    found = (before for step in steps if (before := _same(step, known)) is not None)
    return any(before.refused > 0 or before.due > now for before in found)


def trouble(steps: Iterable[Step], known: Known, now: float) -> tuple[str, str] | None:
    """(reason, sentence) of the first step that is refused, with those like it, or else of one that is taken back again and
    again; None where all go well."""
    found = [before for step in steps if (before := _same(step, known)) is not None]
    for before in found:
        if before.refusal is not None:
            return _all_of_them(before.refusal, found)
    fought = [before for before in found if before.refused == 0 and before.count >= CONTESTED]
    for before in (*fought, *_fought(known, now)):
        return DegradedReason.CONTESTED, f"somebody keeps changing what the operator writes: {before.text}"
    return None


def _all_of_them(refusal: tuple[str, str], found: Iterable[Attempts]) -> tuple[str, str]:
    """The refusal; if that is a taken name, with every object that has one: somebody has to see to each of them."""
    if refusal[0] != DegradedReason.NAME_TAKEN:
        return refusal
    taken = [(each.refusal[1], each.remedy) for each in found if each.refusal is not None and each.refusal[0] == refusal[0]]
    named = "; ".join(sentence for sentence, _ in taken[:MOST_NAMED])
    more = f" (and {len(taken) - MOST_NAMED} more)" if len(taken) > MOST_NAMED else ""
    remedy = next((f": {remedy}" for _, remedy in taken if remedy), "")
    return refusal[0], f"{named}{more}{remedy}"


def seconds_to_peace(known: Known, now: float) -> float | None:
    """Seconds until a fight less is reported; None where there is none."""
    return min((before.over - now for before in _fought(known, now)), default=None)


def _fought(known: Known, now: float) -> list[Attempts]:
    """The steps that have been fought over and may be wanted again."""
    return [before for before in known.values() if before.refused == 0 and before.count > CONTESTED and before.over > now]


def _same(step: Step, known: Known) -> Attempts | None:
    before = known.get(aim_of(step))
    return before if before is not None and before.step == step.content else None
