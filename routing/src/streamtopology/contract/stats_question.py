"""The parameters of a request for `/stats`: what its reader knows already, and in which form it wants the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NUMBERS = {
    "since": "the number of the last batch that you know",
    "observed": "1 for summed loads in the place of reports, or leave it out",
    "routing": "the number of the epoch whose routing you have",
}


@dataclass(frozen=True)
class Question:
    """The parameters of a request for `/stats`.

    `since`: the number of the last batch that the reader knows, None to have no batches. `as_observed`: loads summed up, as a
    controller observes them, in the place of reports and of estimates. `routing`: the epoch whose routing the reader has,
    None if it has none.
    """

    since: int | None = None
    as_observed: bool = False
    routing: int | None = None

    @property
    def query(self) -> str:
        """As the query of the URL."""
        given = {"since": self.since, "observed": int(self.as_observed) or None, "routing": self.routing}
        return "&".join(f"{name}={value}" for name, value in given.items() if value is not None)

    @staticmethod
    def read(parameters: Mapping[str, Sequence[str]]) -> Question:
        """From the values of each parameter; the last one counts. ValueError names the parameter that is no whole number."""
        values: dict[str, int] = {}
        for name, texts in parameters.items():
            if name in ("since", "observed", "routing"):
                if not re.fullmatch(r"-?\d{1,18}", texts[-1]):
                    raise ValueError(f"{name}={texts[-1]}: give {_NUMBERS[name]}")
                values[name] = int(texts[-1])
        return Question(values.get("since"), bool(values.get("observed", 0)), values.get("routing"))
