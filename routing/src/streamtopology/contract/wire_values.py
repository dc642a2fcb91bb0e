"""The codec of records: frozen dataclasses as JSON values and back. The dataclass is the schema, by its type hints.

A field is listed once: in its class. It is written, and must be there when it is read, unless it is `SPARSE`. A field that is
not known is passed over, unless the class is `EXACT`. Errors name a field by its path, as `slots[0].cpu`.

A reader and a writer are made once for each type, of closures: a record costs one loop over its fields.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from streamtopology.contract.errors import UnreadableData

Value = TypeVar("Value")
Write = Callable[[Any], Any]
Read = Callable[[Any], Any]

# Metadata of a field that is left out while it has its default.
SPARSE: Mapping[str, Any] = {"sparse": True}

# Words that are Python's own, or would not be clear without the other.
_WIRE_NAMES = {"class_name": "class", "from_node": "from", "to_node": "to"}

# Those of a status, and of other readers, have 64 bits.
_MOST = 2**63


class WireError(UnreadableData):
    """A JSON value is no record of the wanted kind; the message names the field, and says what it has."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path.removeprefix('.')} {problem}".lstrip())
        self._problem, self._path = problem, path

    def within(self, place: str) -> WireError:
        """The same error of a value that has this one at `place`: `.field` or `[index]`."""
        return WireError(self._problem, place + self._path)


@dataclass(frozen=True)
class Form:
    """The form of a type that has one of its own: `Annotated[Table, Form(pack, unpack, str)]`. `write` None: JSON has the type.

    `of`: the type of the JSON value, which is looked at first. A class with methods `to_wire` and `from_wire` needs no form.
    """

    write: Write | None
    read: Read
    of: Any = Any


def _any_number(wire: Any) -> float:
    if isinstance(wire, (float, int)) and not isinstance(wire, bool):
        return float(wire)
    raise _unlike(wire, "a number")


# Infinity, too: the time of a source that has no rows yet. Python's JSON has it.
AnyFloat = Annotated[float, Form(None, _any_number)]


def named(name: str) -> Mapping[str, Any]:
    """Metadata of a field with another name in JSON."""
    return {"name": name}


def wire_name(of: Field[Any]) -> str:
    """The name of a field in JSON."""
    return of.metadata.get("name", _WIRE_NAMES.get(of.name, of.name))


def to_wire(record: object) -> dict[str, Any]:
    """The JSON value of a dataclass, and of all within it."""
    return _record_writer(type(record))(record)


def from_wire(kind: type[Value], wire: object) -> Value:
    """The record that `to_wire` was called on. WireError names a field that is missing or wrong."""
    return _record_reader(kind)(wire)


@cache
def _hints(kind: Any) -> Sequence[tuple[Field[Any], str, Any]]:
    """Each field, its name in JSON, and its type."""
    hints = get_type_hints(kind, include_extras=True)
    return [(one, wire_name(one), hints[one.name]) for one in fields(kind)]


def _own_form(hint: Any) -> Form | None:
    if get_origin(hint) is Annotated:
        return next(one for one in hint.__metadata__ if isinstance(one, Form))
    return Form(hint.to_wire, hint.from_wire) if hasattr(hint, "from_wire") else None


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _given(inner: Sequence[Any]) -> Any:
    """The one type of `X | None`."""
    return next(one for one in inner if one is not types.NoneType)


# --- writing ---


@cache
def _record_writer(kind: Any) -> Write:
    every = [one.name for one, _, _ in _hints(kind)]
    names = [name for _, name, _ in _hints(kind)]
    is_alike = names == every
    steps = [(name, make) for _, name, hint in _hints(kind) if (make := _writer(hint)) is not None]
    sparse = [(one.name, name, _default(one)) for one, name, _ in _hints(kind) if "sparse" in one.metadata]

    def write(record: Any) -> dict[str, Any]:
        values: dict[str, Any] = record.__dict__
        if is_alike and len(values) == len(every):
            given = dict(values)
        else:
            given = {name: values[field] for field, name in zip(every, names, strict=True)}
        for name, make in steps:
            given[name] = make(given[name])
        for field, name, default in sparse:
            if values[field] == default:
                del given[name]
        return given

    return write


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


@cache
def _writer(hint: Any) -> Write | None:
    """None: JSON has the type."""
    origin, inner = get_origin(hint), get_args(hint)
    if form := _own_form(hint):
        return form.write
    if origin in (Union, types.UnionType):
        write = _writer(_given(inner))
        return write and (lambda value: None if value is None else write(value))
    if origin is tuple and inner[-1] is not ...:
        return list  # of values that JSON has
    if origin in (tuple, list, Sequence):
        return _list_writer(_writer(inner[0]))
    if origin in (dict, Mapping):
        return _mapping_writer(inner[0], _writer(inner[1]))
    if _is_enum(hint):
        return attrgetter("value")
    return _record_writer(hint) if is_dataclass(hint) else None


def _list_writer(write: Write | None) -> Write:
    return list if write is None else lambda values: [write(value) for value in values]


def _mapping_writer(key: Any, write: Write | None) -> Write:
    if write is None and key is str:
        return dict
    return lambda values: {str(key): value if write is None else write(value) for key, value in values.items()}


# --- reading ---


@cache
def _record_reader(kind: Any) -> Read:
    every = [(one, name, hint) for one, name, hint in _hints(kind)]
    steps = [(one.name, name, _plain(hint), _reader(hint)) for one, name, hint in every if "sparse" not in one.metadata]
    sparse = [(one, name, _reader(hint)) for one, name, hint in every if "sparse" in one.metadata]
    known = {name for _, name, _ in every}
    is_exact, made = getattr(kind, "EXACT", False), _maker(kind)

    def read(wire: Any) -> Any:
        found = _object(wire)
        if is_exact and not known.issuperset(found):
            raise WireError(f"has the fields {sorted(found)}, it should have {sorted(known)}")
        given: dict[str, Any] = {}
        name = ""
        try:
            for field, name, plain, take in steps:
                value = found[name]
                given[field] = value if type(value) in plain else take(value)
            for one, name, take in sparse:
                value = found.get(name)
                given[one.name] = _default(one) if value is None else take(value)
        except KeyError:
            raise WireError("is missing", f".{name}") from None
        except WireError as wrong:
            raise wrong.within(f".{name}") from None
        return made(given)

    return read


def _maker(kind: Any) -> Callable[[dict[str, Any]], Any]:
    """What makes a record of all its fields: its own `__init__` sets them one by one, a third of the time of reading."""
    new = object.__new__

    def made(given: dict[str, Any]) -> Any:
        record = new(kind)
        record.__dict__.update(given)
        return record

    def checked(given: dict[str, Any]) -> Any:
        try:
            return kind(**given)
        except (ValueError, OverflowError) as wrong:
            raise WireError(f"does not hold: {wrong}") from wrong

    return checked if hasattr(kind, "__post_init__") else made


@cache
def _plain(hint: Any) -> frozenset[type]:
    """The types whose values a reader of this one takes as they are: a look at a type is quicker than a call."""
    inner = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(_given(inner)) | {types.NoneType}
    return frozenset([hint]) if hint in (str, bool) else frozenset()


@cache
def _reader(hint: Any) -> Read:
    origin, inner = get_origin(hint), get_args(hint)
    if form := _own_form(hint):
        return _form_reader(_reader(form.of), form.read)
    if origin in (Union, types.UnionType):
        take = _reader(_given(inner))
        return lambda wire: None if wire is None else take(wire)
    if origin is tuple and inner[-1] is not ...:
        return _fixed_reader([_reader(one) for one in inner])
    if origin in (tuple, list, Sequence):
        return _list_reader(_plain(inner[0]), _reader(inner[0]), list if origin is list else tuple)
    if origin in (dict, Mapping) and inner in ((str, Any), (str, object)):
        return _object
    if origin in (dict, Mapping):
        return _mapping_reader(int if inner[0] is int else None, _plain(inner[1]), _reader(inner[1]))
    if origin is Literal:
        return _choice_reader({one: one for one in inner})
    if _is_enum(hint):
        return _choice_reader({one.value: one for one in hint})
    return _record_reader(hint) if is_dataclass(hint) else _SCALARS[hint]


def _form_reader(check: Read, take: Read) -> Read:
    def read(wire: Any) -> Any:
        try:
            return take(check(wire))
        except WireError:
            raise
        except KeyError as missing:
            raise WireError("is missing", f".{missing.args[0]}") from missing
        except (ValueError, TypeError, AttributeError, OverflowError) as wrong:
            raise WireError(f"does not hold: {wrong}") from wrong

    return read


def _list_reader(plain: frozenset[type], take: Read, kind: Callable[[Any], Any]) -> Read:
    def read(wire: Any) -> Any:
        values = _list(wire)
        if plain.issuperset(map(type, values)):
            return kind(values)
        found: list[Any] = []
        try:
            for value in values:
                found.append(take(value))
        except WireError as wrong:
            raise wrong.within(f"[{len(found)}]") from None
        return kind(found)

    return read


def _fixed_reader(takes: Sequence[Read]) -> Read:
    def read(wire: Any) -> Any:
        values = _list(wire)
        if len(values) != len(takes):
            raise _unlike(wire, f"a list of {len(takes)}")
        return tuple(take(value) for take, value in zip(takes, values, strict=True))

    return read


def _mapping_reader(of_key: Callable[[Any], Any] | None, plain: frozenset[type], take: Read) -> Read:
    def read(wire: Any) -> Any:
        values = _object(wire)
        if of_key is None and plain.issuperset(map(type, values.values())):
            return dict(values)
        found: dict[Any, Any] = {}
        key: Any = ""
        try:
            for key, value in values.items():
                found[key if of_key is None else of_key(key)] = take(value)
        except WireError as wrong:
            raise wrong.within(f".{key}") from None
        except ValueError:
            raise WireError("is no whole number, as names here are", f".{key}") from None
        return found

    return read


def _choice_reader(members: Mapping[Any, Any]) -> Read:
    def read(wire: Any) -> Any:
        if isinstance(wire, (str, int)) and wire in members:
            return members[wire]
        raise _unlike(wire, f"one of {', '.join(map(str, members))}")

    return read


def _object(wire: Any) -> dict[str, Any]:
    if isinstance(wire, dict):
        return cast("dict[str, Any]", wire)
    raise _unlike(wire, "a JSON object")


def _list(wire: Any) -> Sequence[Any]:
    if isinstance(wire, (list, tuple)):
        return cast("Sequence[Any]", wire)
    raise _unlike(wire, "a list")


def _text(wire: Any) -> str:
    if isinstance(wire, str):
        return wire
    raise _unlike(wire, "a text")


def _flag(wire: Any) -> bool:
    if isinstance(wire, bool):
        return wire
    raise _unlike(wire, "true or false")


def _whole(wire: Any) -> int:
    if type(wire) is int and -_MOST <= wire < _MOST:
        return wire
    raise _unlike(wire, "a whole number of at most 64 bits")


def _number(wire: Any) -> float:
    if isinstance(wire, float) and isfinite(wire):  # Python's JSON has NaN, no other reader has
        return wire
    if isinstance(wire, int) and -_MOST <= wire < _MOST and not isinstance(wire, bool):
        return float(wire)
    raise _unlike(wire, "a finite number")


def _as_is(wire: Any) -> Any:
    return wire


_SCALARS: Mapping[Any, Read] = {str: _text, bool: _flag, int: _whole, float: _number, Any: _as_is, object: _as_is}


def _unlike(wire: Any, wanted: str) -> WireError:
    return WireError(f"is {wire!r:.60}, not {wanted}")
