"""All mistakes of one operator: each is corrected as its message suggests, so that the next one shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.columnar.corrections import corrected, path_of, replaced, stand_in
from streamtopology.jobs.columnar.expressions import ExpressionError
from streamtopology.jobs.operators import BUILTINS, LoadError, load, preparing
from streamtopology.jobs.operators.base import Operator, OperatorError, option_names, required_options
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.operators.options import MissingOption, OptionError, UnknownColumn, UnknownOption
from streamtopology.jobs.plan.meeting_keys import Clash, meet
from streamtopology.jobs.state import KeyedStateSchema
from streamtopology.jobs.state.disk import unfit_for_disk
from streamtopology.topology import OperatorSpec, Problem, did_you_mean, groupings, nearest

_MOST_ROUNDS = 32


@dataclass(frozen=True)
class Diagnosis:
    """The problems of an operator, and the rows it emits once they are corrected; None if these are not certain."""

    problems: tuple[Problem, ...]
    output: pa.Schema | None


def diagnose(operator: OperatorSpec, inputs: Mapping[str, pa.Schema] | None, base_dir: Path) -> Diagnosis:
    """Find the mistakes in `operator`. `inputs`: schemas by alias; None if they are unknown: then it is checked without."""
    examination = _Examination(operator, inputs, base_dir)
    output = examination.output()
    return Diagnosis(tuple(dict.fromkeys(examination.problems)), output)


def split_refusal(operator: OperatorSpec, made: Operator) -> str | None:
    """The reason why the operator's policy cannot split its keys over instances; None if it does not or may."""
    if made.state is None or not groupings.get(operator.grouping.policy).splits_keys:
        return None
    if made.combinable and made.drops_late_rows and operator.aggregate_every > 1:
        return (
            f"aggregateEvery is {operator.aggregate_every}, but parts that are merged in a later batch come when their window "
            "may be closed; leave aggregateEvery out, and they are merged in every batch"
        )
    if made.combinable:
        return _merge_refusal(operator, made)
    return (
        f"policy {operator.grouping.policy!r} may send one key to several instances, but the state of {operator.run!r} "
        "cannot be combined; use a policy that keeps a key together, such as fields or mixed"
    )


def disk_refusal(made: Operator) -> str:
    """The reason why the operator's state cannot be on disk, where only some of it has slots at a time; empty if it can."""
    if not isinstance(made, KeyedAggregate) or not isinstance(made.state, KeyedStateSchema):
        return "which count, aggregate, quantiles and top-k can have; leave `state` out"
    if made.emit == "all":
        return "but emit: all reads the state of all keys in every batch; take emit: updates"
    if made.ttl is not None:
        return "but ttl looks for idle keys among all in every batch; leave `ttl` or `state` out"
    refused = unfit_for_disk(made.state)
    return f"but {refused}; leave `state` out" if refused else ""


def _merge_refusal(operator: OperatorSpec, made: Operator) -> str | None:
    """The reason why the class, which says that its state can be combined, does not say how."""
    fields = made.state.fields if isinstance(made.state, KeyedStateSchema) else ()
    without = [field.name for field in fields if field.merge is None]
    if not without or type(made).combine is not Operator.combine:
        return None
    return (
        f"policy {operator.grouping.policy!r} may send one key to several instances, and field {without[0]!r} of "
        f"{type(made).__name__} has no merge; declare it (sum, min or max), or override combine()"
    )


class _Examination:
    """An operator of the manifest and what is known of it: options, key and inputs as corrected so far."""

    def __init__(self, operator: OperatorSpec, inputs: Mapping[str, pa.Schema] | None, base_dir: Path) -> None:
        self.problems: list[Problem] = []
        self._operator = operator
        self._options = dict(operator.options)
        self._key = operator.grouping.key
        self._inputs = None if inputs is None else dict(inputs)
        self._base_dir = base_dir
        self._dropped = set[str]()  # options whose value was wrong
        self._guessed = False  # a type or value stands in for one that no message suggests

    def output(self) -> pa.Schema | None:
        """Examine the operator; the rows that it emits, if they are certain."""
        self._examine_key()
        cls = self._class()
        if cls is None:
            return None
        for _ in range(_MOST_ROUNDS):
            try:
                return self._prepared(cls)
            except (ValueError, ImportError) as error:
                if not self._correct(cls, error):
                    return None
        return None

    def _class(self) -> type[Operator] | None:
        run = self._operator.run
        try:
            return load(run, self._base_dir)
        except LoadError as error:
            self._add("run", str(error))
            near = None if ":" in run else nearest(run, BUILTINS)
            return None if near is None else BUILTINS[near]

    def _prepared(self, cls: type[Operator]) -> pa.Schema | None:
        made = preparing.make(cls, self._options, self._base_dir)
        if self._inputs is None:
            return None
        keys = {given.alias: given.key or self._key for given in self._operator.inputs}
        meeting = meet(self._inputs, keys)
        output = preparing.prepare(made, meeting.inputs, self._key, keys)
        if made.state is not None:
            self._note_clashes(meeting.clashes)
        elif meeting.inputs != self._inputs:
            output = preparing.prepare(made, self._inputs, self._key, keys)
        try:
            preparing.check_methods(made)
        except OperatorError as error:  # its rows are known all the same
            self._add("run", str(error))
        if self._operator.grouping.policy in groupings.GROUPINGS and (refusal := split_refusal(self._operator, made)):
            self._add("grouping.policy", refusal)
        return None if self._guessed else output

    def _examine_key(self) -> None:
        for position, edge in enumerate(self._operator.inputs if self._inputs is not None else ()):
            path = f"inputs[{position}].key" if edge.key else "grouping.key"
            for column in edge.key or self._operator.grouping.key:
                self._examine_key_column(column, edge.alias, path)

    def _examine_key_column(self, column: str, alias: str, path: str) -> None:
        assert self._inputs is not None
        names = self._inputs[alias].names
        if column in names:
            return
        what = f"key column {column!r} is not in input {alias!r}, which has {', '.join(names)}"
        self._add(path, f"{what}{did_you_mean(column, names)}")
        near = nearest(column, names)
        if path != "grouping.key":
            return
        if near is None:
            self._assume(alias, column)
        else:
            self._key = tuple(near if name == column else name for name in self._key)

    def _note_clashes(self, clashes: Iterable[Clash]) -> None:
        for clash in clashes:
            position = next(i for i, given in enumerate(self._operator.inputs) if given.alias == clash.alias)
            own = self._operator.inputs[position].key
            self._add(f"inputs[{position}].key" if own else "grouping.key", clash.sentence)

    def _correct(self, cls: type[Operator], error: Exception) -> bool:
        """Note the problem, and correct it if its message suggests how. True: the operator can be examined again."""
        match error:
            case MissingOption():
                return self._correct_missing(cls, error)
            case UnknownOption():
                self._add(f"with.{error.option}", str(error))
                return self._options.pop(error.option, None) is not None
            case UnknownColumn():
                return self._correct_column(error)
            case ExpressionError(about=str(expression)):
                return self._correct_expression(expression, str(error))
            case OptionError(about=str(about)):
                self._add(self._place(about), str(error))
                return self._drop(cls, about)
            case OperatorError():
                if not self._guessed:  # the class may have failed over what was guessed
                    self._add("run", str(error))
                return False
            case _:
                self._add("with" if self._options else "", str(error))
                return False

    def _correct_missing(self, cls: type[Operator], error: MissingOption) -> bool:
        if error.option in self._dropped:
            return False
        known = option_names(cls)
        near = nearest(error.option, [name for name in self._options if name not in known])
        if near is None:
            self._add(f"with.{error.option}", str(error))
            return False
        allowed = ", ".join(known)
        self._add(f"with.{near}", f"unknown option {near!r}; allowed: {allowed}; did you mean {error.option!r}?")
        self._options[error.option] = self._options.pop(near)
        return True

    def _correct_column(self, error: UnknownColumn) -> bool:
        self._add(self._place(error.column), str(error))
        if error.column in error.columns or self._inputs is None:
            return False
        near = nearest(error.column, error.columns)
        if near is None:
            self._assume(error.alias, error.column)
            return True
        before = self._options
        self._options = {name: replaced(value, error.column, near) for name, value in before.items()}
        return self._options != before

    def _correct_expression(self, expression: str, sentence: str) -> bool:
        schema = next(iter(self._inputs.values())) if self._inputs else None
        likely = None if schema is None else corrected(expression, schema)
        self._add(self._place(expression), sentence if likely is None else f"{sentence}; did you mean {likely!r}?")
        if likely is None:
            self._guessed = True
            likely = "true" if expression == self._options.get("where") else stand_in(expression)
        before = self._options
        self._options = {name: replaced(value, expression, likely) for name, value in before.items()}
        return self._options != before

    def _drop(self, cls: type[Operator], option: str) -> bool:
        """Leave out an option with a wrong value, if there is a default."""
        if option not in self._options or option in required_options(cls):
            return False
        del self._options[option]
        self._dropped.add(option)
        self._guessed = True
        return True

    def _assume(self, alias: str, column: str) -> None:
        """Examine the operator as if the input had this column: a number is a key, a time, and a value to sum."""
        assert self._inputs is not None
        self._inputs[alias] = self._inputs[alias].append(pa.field(column, pa.int64()))
        self._guessed = True

    def _place(self, about: str) -> str:
        if about == "key" or (about in self._key and path_of(self._options, about) is None):
            return "grouping.key"
        if about in self._options:
            return f"with.{about}"
        return f"with{path_of(self._options, about) or ''}"

    def _add(self, place: str, sentence: str) -> None:
        path = f"{self._operator.path}.{place}" if place else self._operator.path
        self.problems.append(Problem(path, f"operator {self._operator.name!r}: {sentence}"))
