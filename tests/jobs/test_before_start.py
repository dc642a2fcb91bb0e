"""What is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.runner import check_before_start
from streamtopology.routing.topology import ManifestError, parse


def chain(folder: Path, first: dict[str, object], second: dict[str, object]) -> dict[str, object]:
    """Two operators by `locality`, one after the other."""
    one = counting("first", policy="locality", **first)
    return manifest("chain", [files(folder)], [one, counting("second", of="first", policy="locality", **second)],
                    [memory_sink("chain", "second")])  # fmt: skip


def test_locality_wants_key_columns_passed_on_and_one_parallelism(tmp_path: Path) -> None:
    check_before_start(parse(chain(tmp_path, {"with": {"emit": "tuples"}}, {})), tmp_path)
    unequal = chain(tmp_path, {"with": {"emit": "tuples"}, "parallelism": 2}, {"parallelism": 3})
    with pytest.raises(
        ManifestError, match=r"'first' and 'second' are planned together .* the same parallelism; found 2 and 3"
    ):
        check_before_start(parse(unequal), tmp_path)
    keyed = {"grouping": {"policy": "locality", "key": "value"}}
    mapped = chain(tmp_path, {"run": "map", "with": {"select": ["value"]}}, keyed)
    with pytest.raises(ManifestError, match=r"operator 'first': it does not pass its key column 'key' on.*emit it"):
        check_before_start(parse(mapped), tmp_path)
