"""Classes and functions of a user's own, given directly, as the `run` of a manifest, by which executors load them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamtopology.jobs.connectors.sources.path_patterns import from_folder
from streamtopology.jobs.errors import WrongUse

OwnCode = str | type | Callable[..., object]
# Formats with a function of the user's own.
_WITH_FUNCTION = ("dataframe", "function")


def run_of(own: OwnCode, folder: Path) -> str:
    """The text of `run`: as given, else `package.module:Name`, else `file.py:Name`, relative to `folder` if it lies there.

    Raises WrongUse for what executors could not load: it stands within a function or class, or in a notebook.
    """
    if isinstance(own, str):
        return own
    name, module = own.__qualname__, own.__module__
    if not name.isidentifier():
        raise WrongUse(f"{name} stands within a function or class, where executors cannot load it: put it at the top of a file")
    if "." in module:
        return f"{module}:{name}"
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise WrongUse(
            f"{name} is in a notebook or at a prompt, from where executors cannot load it: write it to a file (in a notebook "
            "with %%writefile own.py in the first line of its cell) and import it"
        )
    path = Path(file).resolve()
    return f"{path.relative_to(folder) if path.is_relative_to(folder) else path}:{name}"


def name_whole_paths(manifest: dict[str, Any], folder: Path) -> None:
    """Name files of own code and of lookups from the root, in place: then the manifest may be in any folder."""
    spec = manifest["spec"]
    options = [one["options"] for one in (*spec["sources"], *spec["sinks"]) if one["format"] in _WITH_FUNCTION]
    for own in (*spec["operators"], *options):
        place, _, name = own.get("run", "").rpartition(":")
        if place.endswith(".py"):
            own["run"] = f"{folder / place}:{name}"
    for operator in spec["operators"]:
        lookup = operator.get("with", {}).get("lookup")
        if operator["run"] != "enrich" or not isinstance(lookup, dict):
            continue
        if isinstance(lookup.get("file"), str):
            lookup["file"] = str(folder / lookup["file"])
        if isinstance(place := lookup.get("options"), dict) and isinstance(place.get("path"), str):
            lookup["options"] = {**place, "path": from_folder(folder, place["path"], lookup.get("format") != "delta")}
