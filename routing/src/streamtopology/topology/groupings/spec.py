"""The declaration of a grouping: what the manifest and its checks know of it, without its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamtopology.contract.errors import InvalidInput
from streamtopology.topology.groupings.options import GroupingOptionError, Option


class GroupingError(InvalidInput):
    """A grouping does not exist or cannot work with what it is given; the message says what is allowed."""


@dataclass(frozen=True)
class GroupingSpec:
    """A grouping, as the catalogue or a package's entry point declares it.

    name: the manifest's `policy`.
    kind: "table" looks each key up in the operator's routing table. "chooser" chooses an instance per tuple. "virtual"
        chooses a virtual worker (a bucket of the table) per tuple and looks up its instance.
    splits_keys: whether tuples of one key may go to several instances.
    needs_key: whether it requires key columns.
    summary: one line of documentation.
    options: by name.
    planner: name of the planner that updates the table (`routing.planners`), or "package.module:function"; None if only
        rescaling changes it.
    chooser: "package.module:Class" of the chooser; None for kind "table".
    conflicts: takes all options, each valid on its own, and returns what is invalid between them: option name -> message.
    plans_jointly: whether the planner plans several operators together.
    joined_by: name of the planner that takes the place of `planner` for operators that feed each other, where rows between
        executors take time; None: each is always planned alone.
    prefers_local: whether tuples stay on the router's executor if it has an active instance.
    pours: whether routers may send tuples of a key to other instances than its home, where these can be gathered in parts.
    """

    name: str
    kind: Literal["table", "chooser", "virtual"]
    splits_keys: bool
    needs_key: bool
    summary: str
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    planner: str | None = None
    chooser: str | None = None
    conflicts: Callable[[Mapping[str, object]], Mapping[str, str]] | None = None
    prefers_local: bool = False
    plans_jointly: bool = False
    joined_by: str | None = None
    pours: bool = False

    def __post_init__(self) -> None:
        if (self.chooser is None) != (self.kind == "table"):
            wrong = "needs a chooser" if self.chooser is None else f"has no chooser, found {self.chooser!r}"
            raise GroupingError(f"grouping {self.name!r}: one of kind {self.kind!r} {wrong}")
        if self.kind == "virtual" and "virtualWorkers" not in self.options:
            raise GroupingError(f"grouping {self.name!r}: one of kind 'virtual' needs the option virtualWorkers")

    def option_problems(self, given: Mapping[str, object]) -> dict[str, str]:
        """Find every mistake in the options given. Returns option name -> what was found and what is allowed."""
        problems: dict[str, str] = {}
        for name, value in given.items():
            if name not in self.options:
                allowed = ", ".join(self.options) or "none at all"
                problems[name] = f"is no option of the grouping {self.name!r}; allowed: {allowed}"
                continue
            try:
                self.options[name].read(value)
            except GroupingOptionError as error:
                problems[name] = str(error)
        if not problems and self.conflicts:
            problems.update(self.conflicts(self._read(given)))
        return problems

    def check_options(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return all options by name: those given, as read, and the defaults of the others.

        Raises GroupingError, which names every mistake.
        """
        problems = self.option_problems(given)
        if problems:
            raise GroupingError("; ".join(f"{name}: {message}" for name, message in problems.items()))
        return self._read(given)

    def _read(self, given: Mapping[str, object]) -> dict[str, object]:
        return {name: option.read(given[name]) if name in given else option.default for name, option in self.options.items()}
