"""The catalogue of groupings agrees with the code behind it, and is known without that code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamtopology.routing.groupings import CHOOSERS, Chooser
from streamtopology.routing.planners import JOINT_PLANNERS, PLANNERS
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
    assert (spec.chooser is None) == (spec.kind == "table") == (name not in CHOOSERS)
    assert spec.planner is None or spec.planner in {**PLANNERS, **JOINT_PLANNERS}
    assert spec.plans_jointly == (spec.planner in JOINT_PLANNERS)
    if spec.chooser is not None:
        assert issubclass(CHOOSERS[name], Chooser)
        assert CHOOSERS[name].__name__ == spec.chooser.partition(":")[2]
        assert spec.splits_keys


def test_an_unknown_grouping_is_refused_with_those_that_exist() -> None:
    with pytest.raises(GroupingError, match="there is no grouping 'field'; there are auto, shuffle,"):
        get("field")


def test_dkg_has_the_same_defaults_in_catalogue_and_planner() -> None:
    assert DkgSettings.of(get("dkg").check_options({})) == DkgSettings()
