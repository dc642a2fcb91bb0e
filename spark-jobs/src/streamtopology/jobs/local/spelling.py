"""The locale in which JVMs spell paths: theirs has to spell what Python's does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_VARIABLES = ("LC_ALL", "LC_CTYPE", "LANG")  # the first that is set counts


def locale_of(environ: Mapping[str, str] = os.environ) -> str:
    """The variable that decides on the spelling of paths, as a shell sets it."""
    return next((f"{name}={environ[name]}" for name in _VARIABLES if environ.get(name)), "no LC_ALL, LC_CTYPE or LANG")


def spelling(environ: Mapping[str, str] = os.environ, encoding: str = sys.getfilesystemencoding()) -> dict[str, str]:
    """The variables with which a JVM spells all paths. In the locale C it knows ASCII alone, where Python knows UTF-8.

    >>> spelling({"LANG": "C"}, "utf-8")
    {'LC_ALL': 'C.UTF-8'}
    >>> spelling({"LANG": "de_DE.UTF-8"}, "utf-8")
    {}
    """
    is_utf8 = locale_of(environ).lower().replace("-", "").endswith("utf8")
    return {} if is_utf8 or encoding != "utf-8" else {"LC_ALL": "C.UTF-8"}
