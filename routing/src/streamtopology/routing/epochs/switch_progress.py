"""The progress of a gradual switch, as commit records have it: apart from the tables, so that a record loads no kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GradualSwitch:
    """The progress of a switch to an epoch: `done` of `portions` portions of the keys; epoch `follows` routes the others.

    An epoch that is switched to as a whole has none. Raises ValueError unless 0 < done < portions.
    """

    follows: int
    done: int
    portions: int

    def __post_init__(self) -> None:
        if not 0 < self.done < self.portions:
            raise ValueError(f"a switch is under way with 1 to {self.portions - 1} of its portions done; found {self.done}")

    @staticmethod
    def started(follows: int, done: int, portions: int) -> GradualSwitch | None:
        """Return the switch with `done` portions done; None if these are all."""
        return GradualSwitch(follows, done, portions) if done < portions else None

    def advanced(self, portions: int) -> GradualSwitch | None:
        """Return this switch with `portions` more portions done; None if all are."""
        return GradualSwitch.started(self.follows, self.done + portions, self.portions)
