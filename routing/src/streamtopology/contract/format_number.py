"""The number of each stored or sent form, `format`, and its one check. All began at 1 with version 0.1.0.

What versions before 0.1.0 wrote has no such field, or its number under another name: none of it passes for a form of now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

FORMAT = "format"
ONE_VERSION = "run one version everywhere"


def check_format(wire: Mapping[str, object], number: int, what: str, remedy: str, refusal: Callable[[str], Exception]) -> None:
    """Raise the `refusal` of what another version wrote."""
    found = wire.get(FORMAT)
    if str(found) != str(number):  # a ConfigMap holds texts
        other = "before 0.1.0" if found is None else f"that writes format {found!r}, not {number}"
        raise refusal(f"{what} was written by a version of StreamTopology {other}: this one cannot read it; {remedy}")
