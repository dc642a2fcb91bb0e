"""Quantities in every form that Kubernetes takes, with their amounts by a slow, obvious reading."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

UNITS = {"": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
UNITS |= {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}
UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}


@dataclass(frozen=True)
class Quantity:
    text: str
    amount: Fraction


@st.composite
def quantities(draw: st.DrawFn) -> Quantity:
    """A quantity that is not negative."""
    whole, fraction = draw(st.text("0123456789", max_size=6)), draw(st.text("0123456789", max_size=6))
    digits = draw(st.sampled_from([f"{whole or '0'}.{fraction}", f".{fraction or '5'}", whole or "1"]))
    amount = Fraction(digits)
    if draw(st.booleans()):
        power = draw(st.integers(-9, 18))
        exponent = f"{draw(st.sampled_from('eE'))}{power if power < 0 else draw(st.sampled_from(['', '+'])) + str(power)}"
        return Quantity(draw(st.sampled_from(["", "+"])) + digits + exponent, amount * Fraction(10) ** power)
    unit = draw(st.sampled_from(list(UNITS)))
    return Quantity(draw(st.sampled_from(["", "+"])) + digits + unit, amount * UNITS[unit])
