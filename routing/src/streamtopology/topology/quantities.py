"""Quantities as Kubernetes and people write them (`450m`, `1Gi`, `10us`): one parser and one writer each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from streamtopology.contract.errors import InvalidInput

_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]*)")
_LONGEST = 40  # characters of a duration; nobody writes more, and arithmetic on more digits than this is a way to hang

_QUANTITY = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE])([+-]?[0-9]{1,9})|([numkMGTPE]|[KMGTPE]i)?)")
LONGEST_QUANTITY = 256
_UNITS: Mapping[str, Fraction] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_FINEST, _LARGEST = Fraction(1, 10**9), Fraction(2**63 - 1)
# Beyond this power of ten a number is rounded to one of these two, whatever its digits.
_FURTHEST = LONGEST_QUANTITY + 32

_DURATION_UNITS: Mapping[str, Decimal] = {
    "us": Decimal("0.000001"), "µs": Decimal("0.000001"), "ms": Decimal("0.001"),
    "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600),
}  # fmt: skip
MOST_CORES = 1024
_LARGEST_SECONDS = Decimal(366 * 24 * 3600)

CPU_EXPECTED = "a positive number of cores such as 450m, 0.45 or 2"
MEMORY_EXPECTED = "an amount of memory such as 512Mi, 1Gi or 2G"
STORAGE_EXPECTED = "an amount of storage such as 10Gi, 512Mi or 20G"
DURATION_EXPECTED = "a duration such as 10us, 250ms, 10s, 5m, 1h or 0"
UNITS = f"the units are {', '.join(unit for unit in _UNITS if unit)}"
NUMBER_AND_WORD = "[+-]?[0-9.]*[0-9][A-Za-zµ]+"
NEGATIVE, WITHOUT_CPU = "it is negative", "an executor without CPU does no work"


class QuantityError(InvalidInput):
    """A quantity that cannot be read; the message is the whole sentence for the person who wrote it."""


def parse_quantity(value: object) -> Fraction | None:
    """A quantity by Kubernetes' own grammar, which has `.5`, `+1`, `1e9`, `2E` and `100n`, too; None for anything else.

    As there, nothing is finer than 1n, to which a number is rounded up, and nothing is larger than 2^63 - 1. (Kubernetes also
    takes texts without a digit, such as `m`, for 0: those are None here.)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = repr(value) if isinstance(value, float) else str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
    if match is None:
        return None
    sign, digits, _, exponent, unit = match.groups()
    number = Fraction(f"0{digits}0" if "." in digits else digits) * _UNITS[unit or ""]
    if exponent and number:
        number *= Fraction(10) ** max(-_FURTHEST, min(int(exponent), _FURTHEST))
    rounded = min(math.ceil(number / _FINEST) * _FINEST, _LARGEST)
    return -rounded if sign == "-" else rounded


def parse_cpu(value: object) -> float:
    """Cores of `450m`, `0.45`, `1`, `"2"`: rounded up to whole millicores, as Kubernetes does in a pod.

    0 and more than 1024 cores are refused.
    """
    cores = _amount(value, CPU_EXPECTED)
    if cores == 0:
        raise QuantityError(f"found {value!r}, expected {CPU_EXPECTED}: {WITHOUT_CPU}")
    if cores > MOST_CORES:
        slip = isinstance(value, int) or str(value).isdecimal()
        likely = f"; did you mean {value}m, {float(cores / 1000):g} of them?" if slip and cores <= 1000 * MOST_CORES else ""
        raise QuantityError(f"found {value!r}, expected {CPU_EXPECTED}: at most {MOST_CORES} cores{likely}")
    return math.ceil(cores * 1000) / 1000


def format_cpu(cores: float) -> str:
    """`450m` for 0.45; whole cores without the unit. `parse_cpu` reads it back to the same value."""
    millicores = round(cores * 1000)
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def parse_memory(value: object) -> int:
    """Bytes of `1Gi`, `512Mi`, `1.5G`, `1073741824`: rounded up to whole ones."""
    return math.ceil(_amount(value, MEMORY_EXPECTED))


def parse_storage(value: object) -> int:
    """Bytes of a disk: `10Gi`, `512Mi`, `20G`, rounded up to whole ones. `format_memory` writes them."""
    return math.ceil(_amount(value, STORAGE_EXPECTED))


def format_memory(amount: int) -> str:
    """The shortest exact notation of a number of bytes, in binary units: `1Gi`, `1536Mi`, `1000`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if amount and amount % _UNITS[unit] == 0:
            return f"{amount // int(_UNITS[unit])}{unit}"
    return str(amount)


def parse_duration(value: object) -> float:
    """Seconds of `10us`, `250ms`, `1.5s`, `10m`, `1h` and `0`; every other number needs its unit."""
    allowed = DURATION_EXPECTED
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


def _amount(value: object, allowed: str) -> Fraction:
    """A quantity that is not negative."""
    amount = parse_quantity(value)
    if amount is None:
        if isinstance(value, str) and parse_quantity("".join(value.split())) is not None:
            _refuse_spaces(value, allowed)
        reason = f": {UNITS}" if re.fullmatch(NUMBER_AND_WORD, str(value)) else ""
        found = repr(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else "another kind"
        raise QuantityError(f"found {found}, expected {allowed}{reason}")
    if amount < 0:
        raise QuantityError(f"found {value!r}, expected {allowed}: {NEGATIVE}")
    return amount


def _split(value: object, allowed: str) -> tuple[Decimal, str]:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError(f"found {value!r}, expected {allowed}")
    text = repr(value) if isinstance(value, float) else str(value).strip()
    if isinstance(value, float) and "e" in text:
        text = f"{Decimal(text):f}"
    if text.startswith("-"):
        raise QuantityError(f"found {value!r}, expected {allowed}: {NEGATIVE}")
    match = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"found {value!r}, expected {allowed}")
    return Decimal(match[1]), match[2]
