"""Paths that only a shell would understand: taken as they are, `~/out` would be a new folder named `~`.

They are refused, not filled in: a manifest has to name the same places on every machine and in pods, which have other homes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamtopology.topology.problems import Problem
from streamtopology.topology.reading import is_mapping
from streamtopology.topology.values import Topology

# `~`, `~/data`, `~ada/data`; `$HOME`, `${HOME}`, `$DATA_DIR` anywhere.
_SHELL_PATH = re.compile(r"~|.*\$(?:\{|[A-Z_]+\b)", re.DOTALL)
_PATH_OPTION = re.compile(r"path|basePath|.*\.location", re.IGNORECASE)


def shell_path_problems(topology: Topology) -> Iterator[Problem]:
    """Find `~` and variables in every path of a manifest."""
    places = {"spec.checkpoint": topology.checkpoint, "spec.restore.from": topology.restore and topology.restore.origin}
    for section, parts in (("sources", topology.sources), ("sinks", topology.sinks)):
        for index, part in enumerate(parts):
            options = {name: value for name, value in part.options.items() if _PATH_OPTION.fullmatch(name)}
            places |= {f"spec.{section}[{index}].options.{name}": value for name, value in options.items()}
    for operator in topology.operators:
        lookup = operator.options.get("lookup")
        file = lookup.get("file") if is_mapping(lookup) else None
        places |= {f"{operator.path}.run": operator.run, f"{operator.path}.with.lookup.file": file}
    for place, path in places.items():
        if isinstance(path, str) and _SHELL_PATH.match(path):
            yield Problem(place, f"found {path!r}, {_EXPECTED}")


_EXPECTED = (
    "where only a shell fills in ~ and variables, and no shell reads a manifest: write the path in full, such as "
    "/home/ada/data (./~ is a name that begins so)"
)
