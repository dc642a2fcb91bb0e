"""The names of columns: what they say of the values, and plain ones for those that options cannot take."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_NAMES_OF_THINGS = (
    "id|key|code|user|customer|client|account|device|sensor|host|shop|store|product|item|article|city|zone|region|session|"
    "zip|postcode|phone|sku|isbn|ean|nr|no|num|kunde|kunden|konto|filiale|artikel|plz"
)
_ID = re.compile(rf"(^|_)({_NAMES_OF_THINGS})\d*$|(nummer|number|nr)\d*$", re.I)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Key|Code|No)$|^[A-Z]{2,}[a-z]*I[Dd]$|ID$")
_TIME = re.compile(r"(^|_)(time|timestamp|ts|at|date|datetime|epoch|zeit|zeitpunkt|zeitstempel|datum)($|_)|time$", re.I)
_CAMEL_TIME = re.compile(r"[a-z](Timestamp|At|Date|Ts)$")
_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "ø": "o", "å": "a", "ł": "l"}
)


def is_id(name: str) -> bool:
    """True for the names of numbers that name something: to sum them means nothing.

    >>> is_id("user_id"), is_id("PULocationID"), is_id("Kundennr"), is_id("paid"), is_id("distance"), is_id("casino")
    (True, True, True, False, False, False)
    """
    return bool(_ID.search(name) or _CAMEL_ID.search(name))


def is_time(name: str) -> bool:
    """True for the names of times.

    >>> is_time("created_at"), is_time("eventTime"), is_time("createdAt"), is_time("seats"), is_time("format")
    (True, True, True, False, False)
    """
    return bool(_TIME.search(name) or _CAMEL_TIME.search(name))


def in_ascii(text: str) -> str:
    """`text` with its letters as ASCII writes them; signs that have no such letters stay.

    >>> in_ascii("Größe in m²"), in_ascii("naïve"), in_ascii("Verkäufe €")
    ('Groesse in m2', 'naive', 'Verkaeufe €')
    """
    letters = unicodedata.normalize("NFKD", unicodedata.normalize("NFC", text).translate(_LETTERS))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """A name of ASCII letters, digits and `_` for each of `names`, no two alike: options of operators take no others.

    >>> plain_names(["fare", "arr delay", "arr-delay", "2nd", "Größe (m²)"])
    {'fare': 'fare', 'arr delay': 'arr_delay', 'arr-delay': 'arr_delay_2', '2nd': 'c_2nd', 'Größe (m²)': 'Groesse_m2'}
    """
    given = list(names)
    taken = {name.lower() for name in given if _is_plain(name)}
    return {name: name if _is_plain(name) else _free(_made_plain(name), taken) for name in given}


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is not None


def _made_plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", in_ascii(name)).strip("_")
    return plain if _is_plain(plain) else f"c_{plain}"


def _free(name: str, taken: set[str]) -> str:
    """`name`, with a number where it is `taken`; marks the result as taken."""
    number, free = 1, name
    while free.lower() in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free.lower())
    return free
