"""`bench state` small: every side counts, and the bars are said."""

from __future__ import annotations

from streamtopology.lab.bench.state import run


def test_bench_state_compares_each_side_with_memory() -> None:
    results = run(keys=20_000, batches=2, runs=1)["results"]
    of_disk = [one for one in results if one["case"].startswith("zipf, disk")]
    assert [set(one["ratio_to"]) >= {"zipf, memory"} for one in of_disk] == [True, True]
    assert {one["case"] for one in results if one["metric"] == "bar"} >= {
        "disk, 20 % in memory: at least 0.35 x memory",
        "disk, 40 % in memory: at least 0.5 x memory",
    }
