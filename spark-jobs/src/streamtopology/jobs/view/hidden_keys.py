"""The switch that keeps the stream's keys from all who may look at a run: hashes are shown in their place.

Nobody can read a key from its hash, but a key that somebody guesses can be found.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.contract.environment import HIDE_KEYS
from streamtopology.jobs.errors import WrongUse


def hides_keys(environ: Mapping[str, str]) -> bool:
    """Return whether the user wants keys hidden. Raises WrongUse."""
    asked = environ.get(HIDE_KEYS, "false")
    if asked not in ("true", "false"):
        raise WrongUse(f"{HIDE_KEYS}={asked!r}: expected true or false")
    return asked == "true"
