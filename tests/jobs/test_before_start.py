"""What is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.runner import check_before_start
from streamtopology.routing.topology import ManifestError, parse


def test_a_checkpoint_where_none_can_be_kept_is_refused(tmp_path: Path) -> None:
    given = manifest("far", [files(tmp_path)], [counting()], [memory_sink("far", "counts")], checkpoint="s3://bucket/far")
    with pytest.raises(ManifestError, match=r"spec\.checkpoint.*s3://bucket/far: only local paths and shared volumes"):
        check_before_start(parse(given), tmp_path)


@pytest.mark.parametrize("policy", ["posg", "posg-merged", "earliest-finish", "locality", "locality-offline", "locality-worst"])
def test_a_grouping_that_only_the_simulator_knows_is_refused(tmp_path: Path, policy: str) -> None:
    operator = counting(policy=policy)
    given = manifest("early", [files(tmp_path)], [operator], [memory_sink("early", "counts")])
    with pytest.raises(ManifestError, match=rf"spec\.operators\[0\]\.grouping\.policy: '{policy}' .* simulator only"):
        check_before_start(parse(given), tmp_path)
