"""The first commands that a newcomer types do what the pages say, block by block, as printed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from support.printed import blocks, clone, run

from streamtopology.lab.demo.check import last_rows, quantiles

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]


def test_tour_of_the_readme_balances_itself_and_its_results_equal_a_group_by(tmp_path: Path) -> None:
    tour, on_kubernetes = blocks("README.md", "A topology")
    folder = clone(tmp_path)
    printed = run(tour, folder, 500)
    assert "re-routings" in printed
    assert (folder / "build/tour/run.png").stat().st_size > 10_000
    report = json.loads((folder / "build/tour/report.json").read_text())
    assert sum(change["keys_moved"] for change in report["reconfigurations"]) > 0
    flights = ds.dataset(folder / "build/flights").to_table(columns=["tailnum", "arr_delay"])
    arrived = flights.filter(pc.field("arr_delay").is_valid())
    assert dict(last_rows(folder / "build/delays", "tailnum")) == quantiles(arrived, "tailnum", "arr_delay")
    assert on_kubernetes.splitlines() == [  # run by tests/node/test_from_nothing.py
        "helm install streamtopology charts/streamtopology -n streamtopology --create-namespace --wait",
        "kubectl apply -f examples/first-k8s.yaml",
    ]
