"""A cursor over an untyped manifest: every read states what it expects, records a mistake, and continues."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, TypeVar

from streamtopology.topology.limits import HIGHEST_PRICE, LONGEST_TOPOLOGY_NAME
from streamtopology.topology.problems import NO_OTHERS, Problem, one_of
from streamtopology.topology.quantities import QuantityError

NAME_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LONGEST_NAME = 63
_EXPECTED = "a name of lower-case letters, digits and '-', at most {}, beginning and ending with a letter or digit"
NAME_EXPECTED = _EXPECTED.format(LONGEST_NAME)
TOPOLOGY_NAME_EXPECTED = (
    f"a name of lower-case letters, digits and '-', at most {LONGEST_TOPOLOGY_NAME} characters, without dots, the first a "
    "letter: names of Services and Jobs begin with it"
)

_DNS_LABEL = re.compile(NAME_PATTERN)
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_DEEPEST = 16  # levels of nesting in free-form values; more is a mistake or a YAML alias that contains itself

T = TypeVar("T")


def is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


class WrittenMapping(dict[object, object]):
    """A mapping from a file. `texts`: by name, values that YAML reads as numbers, true, false or null of another text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self.texts = texts


def option_text(value: object) -> str:
    """The text that a value becomes as an option of a source or sink; "" for null."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Place:
    """One value of the manifest, its path, and the list that collects the problems of the whole manifest.

    The read methods return a typed value in every case, so that reading continues after a mistake. With `default` an
    absent value is no mistake; without it is. A YAML null is an absent value, as it is for Kubernetes.
    """

    def __init__(self, value: object, path: str, problems: list[Problem]) -> None:
        self.value = value
        self.path = path
        self.problems = problems

    @property
    def present(self) -> bool:
        return self.value is not None

    def wrong(self, message: str) -> None:
        self.problems.append(Problem(self.path, message))

    def expected(self, what: str) -> None:
        """Note that this is missing or of another kind than `what`."""
        self.wrong(f"found {_shown(self.value)}, expected {what}" if self.present else f"is missing, expected {what}")

    def fields(self, *known: str, others: Mapping[str, str] = NO_OTHERS) -> Mapping[str, Place]:
        """The places of the known fields of a mapping; any other field is a problem. others: as of `one_of`.

        Where there is no mapping at all that is the one problem: what is then read from its fields goes unheard.
        """
        mapping = self.value
        if not is_mapping(mapping):
            self.expected(f"a mapping with {', '.join(known)}")
            return {name: Place(None, f"{self.path}.{name}", []) for name in known}
        prefix = f"{self.path}." if self.path else ""
        for name in mapping:
            if name not in known:
                self.problems.append(Problem(f"{prefix}{name}", f"unknown field: {one_of(str(name), known, others=others)}"))
        return {name: Place(mapping.get(name), f"{prefix}{name}", self.problems) for name in known}

    def items(self, what: str) -> list[Place]:
        """The places of a list's items; an absent list has none."""
        if not self.present:
            return []
        if not is_list(self.value):
            self.expected(f"a list of {what}")
            return []
        return [Place(item, f"{self.path}[{index}]", self.problems) for index, item in enumerate(self.value)]

    def at_most(self, most: int, what: str) -> None:
        """Record a mistake if a list or mapping has more items than allowed."""
        if (is_list(self.value) or is_mapping(self.value)) and len(self.value) > most:
            self.wrong(f"found {len(self.value)} {what}, allowed are at most {most}")

    def text(self, what: str, default: str | None = None) -> str:
        if not self.present and default is not None:
            return default
        if isinstance(self.value, str) and self.value.strip():
            return self.value.strip()
        bare = ": YAML reads a bare yes, no, on or off as true or false, write a text with quotes"
        self.expected(f"{what}{bare if isinstance(self.value, bool) else ''}")
        return default or ""

    def texts(self, what: str) -> tuple[str, ...]:
        """A list of texts, or one text alone."""
        if isinstance(self.value, str | bool):
            return (self.text(what),)
        return tuple(item.text(what) for item in self.items(what))

    def name(self, what: str = NAME_EXPECTED) -> str:
        """A DNS label, since it becomes part of Kubernetes objects' names. Empty when there is none to speak of."""
        text = self.text(what)
        if text and (len(text) > LONGEST_NAME or not _DNS_LABEL.fullmatch(text)):
            self.expected(what)
        return text

    def choice(self, allowed: Sequence[str], default: str | None = None, others: Mapping[str, str] = NO_OTHERS) -> str:
        if not self.present and default is not None:
            return default
        if self.value is False and "Off" in allowed:
            self.wrong("found false: YAML reads a bare Off as false, write 'Off' with quotes")
        elif not isinstance(self.value, str):
            self.expected(f"one of {', '.join(allowed)}")
        elif self.value not in allowed:
            self.wrong(one_of(self.value, allowed, others=others))
        else:
            return self.value
        return default or allowed[0]

    def whole(self, default: int, least: int, most: int) -> int:
        if not self.present:
            return default
        if isinstance(self.value, int) and not isinstance(self.value, bool) and least <= self.value <= most:
            return self.value
        self.expected(f"a whole number from {least} to {most}")
        return default

    def fraction(self, default: float) -> float:
        """A number above 0 and at most 1."""
        if not self.present:
            return default
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 < value <= 1:
            return float(value)
        self.expected("a number above 0 and at most 1")
        return default

    def price(self) -> float | None:
        """A number above 0 and at most HIGHEST_PRICE; None if left out."""
        if not self.present:
            return None
        value = self.value
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= HIGHEST_PRICE:
            return float(value)
        self.expected(f"a number above 0 and at most {HIGHEST_PRICE:,}")
        return None

    def flag(self, default: bool) -> bool:
        if not self.present:
            return default
        if isinstance(self.value, bool):
            return self.value
        self.expected("true or false")
        return default

    def quantity(self, parser: Callable[[object], T], default: T) -> T:
        if not self.present:
            return default
        try:
            return parser(self.value)
        except QuantityError as error:
            self.wrong(str(error))
            return default

    def string_options(self) -> dict[str, str]:
        """A flat mapping whose values become texts, as Spark's options are."""
        options: dict[str, str] = {}
        written: Mapping[str, str] = self.value.texts if isinstance(self.value, WrittenMapping) else {}
        for name, place in self._named_places("options, each a text, number, true or false").items():
            text = option_text(place.value)
            if name in written:
                plain = f"write {text}" if text else "leave it out"
                meaning = f"found {written[name]}, which YAML reads as {text or 'no value'}"
                place.wrong(f"{meaning}: {plain}, or '{written[name]}' with quotes for the text")
            elif isinstance(place.value, float) and not _PLAIN_NUMBER.fullmatch(text):
                place.wrong(f"found the number {text}, which has several texts: write the one that is meant with quotes")
            elif isinstance(place.value, str | int | float):
                options[name] = text
            else:
                place.expected("a text, number, true or false")
        return options

    def text_map(self) -> dict[str, str]:
        """A flat mapping of texts, as Kubernetes' labels are: nothing else becomes a text by itself."""
        texts: dict[str, str] = {}
        for name, place in self._named_places("texts").items():
            if isinstance(place.value, str):
                texts[name] = place.value
            else:
                place.expected("a text: write it with quotes")
        return texts

    def free_options(self, what: str = "options", required: bool = False) -> dict[str, object]:
        """A mapping of any JSON values; the caller checks them."""
        if required and not self.present:
            self.expected(f"a mapping of {what}")
        return {name: place.plain(1) for name, place in self._named_places(what).items()}

    def _named_places(self, what: str) -> dict[str, Place]:
        if not self.present:
            return {}
        if not is_mapping(self.value):
            self.expected(f"a mapping of {what}")
            return {}
        places: dict[str, Place] = {}
        for name, value in self.value.items():
            place = Place(value, f"{self.path}.{name}", self.problems)
            if isinstance(name, str):
                places[name] = place
            else:
                bare = "true or false, as YAML reads a bare yes, no, on or off" if isinstance(name, bool) else repr(name)
                place.wrong(f"found the name {bare}, expected a text: write it with quotes")
        return places

    def plain(self, depth: int = 0) -> object:
        """The value itself if it is JSON, up to the depth allowed."""
        if depth > _DEEPEST:
            self.wrong(f"is nested deeper than {_DEEPEST} levels")
            return None
        if isinstance(self.value, float) and not math.isfinite(self.value):
            self.expected("a finite number")
            return None
        if self.value is None or isinstance(self.value, str | int | float):
            return self.value
        if is_mapping(self.value):
            return {name: place.plain(depth + 1) for name, place in self._named_places("options").items()}
        if is_list(self.value):
            return [item.plain(depth + 1) for item in self.items("values")]
        self.expected("a text, number, true, false, list or mapping")
        return None


def _shown(value: object) -> str:
    if is_mapping(value):
        return "a mapping"
    if is_list(value):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
