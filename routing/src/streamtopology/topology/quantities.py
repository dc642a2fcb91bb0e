"""Quantities as Kubernetes and people write them (`450m`, `1Gi`, `10us`): one parser and one writer each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from streamtopology.contract.errors import InvalidInput

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)")
_LONGEST = 40  # characters; nobody writes more, and arithmetic on more digits than this is a way to hang

_MEMORY_UNITS: Mapping[str, int] = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_DURATION_UNITS: Mapping[str, Decimal] = {
    "us": Decimal("0.000001"), "µs": Decimal("0.000001"), "ms": Decimal("0.001"),
    "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600),
}  # fmt: skip
_LARGEST_CORES = Decimal(1024)
_LARGEST_BYTES = 2**50
_LARGEST_SECONDS = Decimal(366 * 24 * 3600)


class QuantityError(InvalidInput):
    """A quantity that cannot be read; the message is the whole sentence for the person who wrote it."""


def parse_cpu(value: object) -> float:
    """Cores of `450m`, `0.45`, `1`, `"2"`; finer than one millicore, 0 and more than 1024 cores are refused."""
    allowed = "a positive number of cores such as 450m, 0.45 or 2"
    number, unit = _split(value, allowed)
    if unit not in ("", "m"):
        raise QuantityError(f"found {value!r}, expected {allowed}: the only unit is m, a thousandth of a core")
    cores = number / 1000 if unit == "m" else number
    if cores == 0:
        raise QuantityError(f"found {value!r}, expected {allowed}: an executor without CPU does no work")
    if cores * 1000 != int(cores * 1000):
        raise QuantityError(f"found {value!r}, expected {allowed}: nothing is finer than 1m")
    if cores > _LARGEST_CORES:
        slip = not unit and number == int(number) and number <= 1000 * _LARGEST_CORES
        likely = f"; did you mean {number:f}m, {number / 1000:f} of them?" if slip else ""
        raise QuantityError(f"found {value!r}, expected {allowed}: at most {_LARGEST_CORES} cores{likely}")
    _refuse_spaces(value, allowed)
    return float(cores)


def format_cpu(cores: float) -> str:
    """`450m` for 0.45; whole cores without the unit. `parse_cpu` reads it back to the same value."""
    millicores = round(cores * 1000)
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def parse_memory(value: object) -> int:
    """Bytes of `1Gi`, `512Mi`, `1.5G`, `1073741824`."""
    allowed = "an amount of memory such as 512Mi, 1Gi or 2G"
    number, unit = _split(value, allowed)
    if unit not in _MEMORY_UNITS:
        units = ", ".join(name for name in _MEMORY_UNITS if name)
        raise QuantityError(f"found {value!r}, expected {allowed}: the units are {units}")
    amount = number * _MEMORY_UNITS[unit]
    if amount != int(amount):
        raise QuantityError(f"found {value!r}, expected {allowed}: this is not a whole number of bytes")
    if amount > _LARGEST_BYTES:
        raise QuantityError(f"found {value!r}, expected {allowed}: at most 1024Ti")
    _refuse_spaces(value, allowed)
    return int(amount)


def format_memory(amount: int) -> str:
    """The shortest exact notation of a number of bytes, in binary units: `1Gi`, `1536Mi`, `1000`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if amount and amount % _MEMORY_UNITS[unit] == 0:
            return f"{amount // _MEMORY_UNITS[unit]}{unit}"
    return str(amount)


def parse_duration(value: object) -> float:
    """Seconds of `10us`, `250ms`, `1.5s`, `10m`, `1h` and `0`; every other number needs its unit."""
    allowed = "a duration such as 10us, 250ms, 10s, 5m, 1h or 0"
    number, unit = _split(value, allowed)
    if unit == "" and number != 0:
        raise QuantityError(f"found {value!r}, expected {allowed}: a number alone has no unit")
    if unit and unit not in _DURATION_UNITS:
        raise QuantityError(f"found {value!r}, expected {allowed}: the units are us, ms, s, m, h")
    seconds = number * _DURATION_UNITS[unit or "s"]
    if seconds * 10**9 != int(seconds * 10**9):
        raise QuantityError(f"found {value!r}, expected {allowed}: nothing is finer than 0.001us")
    if seconds > _LARGEST_SECONDS:
        raise QuantityError(f"found {value!r}, expected {allowed}: at most a year, {_LARGEST_SECONDS / 3600}h")
    _refuse_spaces(value, allowed)
    return float(seconds)


def format_duration(seconds: float) -> str:
    """The duration in the largest unit that needs no fraction; `parse_duration` reads it back to the same value."""
    exact = Decimal(repr(seconds))
    for unit in ("h", "m", "s", "ms", "us"):
        count = exact / _DURATION_UNITS[unit]
        if count == int(count) and count != 0:
            return f"{int(count)}{unit}"
    return f"{exact:f}s" if exact else "0s"


def _refuse_spaces(value: object, allowed: str) -> None:
    """Refuse a quantity that is right but for its spaces: Kubernetes takes none, and a manifest runs there, too."""
    together = "".join(str(value).split())
    if together != str(value):
        raise QuantityError(f"found {value!r}, expected {allowed}: spaces are not allowed; did you mean {together}?")


def _split(value: object, allowed: str) -> tuple[Decimal, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError(f"found {value!r}, expected {allowed}")
    text = repr(value) if isinstance(value, float) else str(value).strip()
    if isinstance(value, float) and "e" in text:
        text = f"{Decimal(text):f}"
    if text.startswith("-"):
        raise QuantityError(f"found {value!r}, expected {allowed}: it is negative")
    match = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"found {value!r}, expected {allowed}")
    return Decimal(match[1]), match[2]
