"""Every declaration of a grouping agrees with the code behind it, and is known without that code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamtopology.routing import planners
from streamtopology.routing.groupings import Chooser, chooser_class
from streamtopology.routing.planners.dkg import DkgSettings
from streamtopology.topology.groupings import GROUPINGS, GroupingError, get

EXAMPLES = Path(__file__).parents[2] / "examples"

_PARSE = """
import sys
from pathlib import Path
import streamtopology.contract
import streamtopology.topology.crd
from streamtopology.topology import load, to_manifest

for manifest in sys.argv[1:]:
    to_manifest(load(Path(manifest)))
loaded = {"numba", "pymetis", "streamtopology.routing"} & set(sys.modules)
assert not loaded, f"loaded: {loaded}"
"""


def test_parsing_a_manifest_loads_no_kernels() -> None:
    manifests = [str(EXAMPLES / "flights.yaml"), *map(str, sorted((EXAMPLES / "policies").glob("*.yaml")))]
    done = subprocess.run([sys.executable, "-c", _PARSE, *manifests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", GROUPINGS)
def test_every_grouping_has_the_code_its_kind_needs(name: str) -> None:
    spec = get(name)
    if spec.planner is not None:
        assert callable((planners.get_joint if spec.plans_jointly else planners.get)(spec.planner))
    found = chooser_class(name)
    assert (found is None) == (spec.chooser is None) == (spec.kind == "table")
    if found is not None:
        assert issubclass(found, Chooser)
        assert spec.splits_keys


def test_an_unknown_grouping_is_refused_with_those_that_exist() -> None:
    with pytest.raises(GroupingError, match="there is no grouping 'field'; there are auto, shuffle,"):
        get("field")


def test_dkg_has_the_same_defaults_in_catalogue_and_planner() -> None:
    assert DkgSettings.of(get("dkg").check_options({})) == DkgSettings()
