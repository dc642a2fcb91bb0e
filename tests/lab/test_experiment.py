"""The result of an experiment, and the required texts of every registered one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.experiments import DICE, LOADED, measuring

from streamtopology.lab.reproduce.experiment import NOT_KNOWN, Claim, ExperimentError, Plot
from streamtopology.lab.reproduce.experiments import EXPERIMENTS, get


def recorded() -> tuple[list[float], object]:
    shares: list[float] = []
    return shares, shares.append


def test_the_papers_own_parameters_are_the_default():
    shares, tell = recorded()
    result = DICE.carry_out({}, tell)
    assert result["parameters"] == {"sides": 6, "throws": 500, "dice": [1, 2, 3, 4], "seed": 1}
    assert (result["runs"], result["quick"], len(result["series"])) == (3, False, 12)
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_quick_replaces_some_parameters_and_given_ones_win():
    result = DICE.carry_out({"sides": 20}, lambda share: None, quick=True)
    assert result["parameters"] == {"sides": 20, "throws": 50, "dice": [1, 2], "seed": 1}
    assert (result["runs"], result["quick"], len(result["series"])) == (2, True, 4)
    assert not result["holds"]  # a die of 20 sides does not show 3.5


def test_runs_are_as_asked_for_and_the_same_seed_gives_the_same_result():
    one, same, other = (DICE.carry_out({}, lambda share: None, runs=5, seed=seed) for seed in (3, 3, 4))
    assert one["runs"] == 5
    assert one == same
    assert one["series"] != other["series"]


def test_unknown_parameters_and_zero_runs_are_refused():
    with pytest.raises(ExperimentError, match="dice-mean has no parameter colour; it has sides, throws, dice"):
        DICE.carry_out({"colour": "red"}, lambda share: None)
    with pytest.raises(ExperimentError, match="at least once"):
        DICE.carry_out({}, lambda share: None, runs=0)


def test_claims_are_judged_one_by_one_with_why_not_only_where_it_is_due():
    result = LOADED.carry_out({}, lambda share: None)
    fair, loaded = result["claims"]
    assert (fair["holds"], fair["paper"], fair["why_not"]) == (True, {"mean of a die": 3.5}, "")
    assert (loaded["holds"], loaded["why_not"]) == (False, "these dice are fair & square")
    assert not result["holds"]
    held = measuring([], {"mean of a die": 6.0}, claims=LOADED.claims[1:]).carry_out({}, lambda share: None)
    assert held["holds"]
    assert held["claims"][0]["why_not"] == ""
    unexplained = measuring([], {"mean of a die": 6.0}).carry_out({}, lambda share: None)
    assert unexplained["claims"][0]["why_not"] == NOT_KNOWN


def test_a_result_is_json_whatever_numpy_gave():
    rows = [{"dice": np.int32(2), "sum": np.float32(1.5), "kind": np.str_("a")}, {"dice": 3, "sum": np.nan, "kind": "a"}]
    summary = {"least": np.float64(2.0), "most": np.inf}
    experiment = measuring(rows, summary, claims=(Claim("true", lambda s: np.bool_(True), {"least": np.float64(1.0)}),))
    result = experiment.carry_out({"dice": np.arange(3)}, lambda share: None)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["series"] == [{"dice": 2, "sum": 1.5, "kind": "a"}, {"dice": 3, "sum": None, "kind": "a"}]
    assert result["summary"] == {"least": 2.0, "most": None}
    assert result["parameters"]["dice"] == [0, 1, 2]


def test_a_plot_draws_the_rows_of_its_own():
    series = [{"k": 1, "y": 2, "of": "a", "zipf": 1}, {"k": 1, "y": 3, "of": "a", "zipf": 2}, {"y": 3}]
    assert Plot("", "k", "y", "of", only={"zipf": 2}).rows(series) == [series[1]]
    assert Plot("", "k", "y", "of").rows(series) == series[:2]
    with pytest.raises(ExperimentError, match="'Three': no row of the series has k, y, of, zipf = 3"):
        Plot("Three", "k", "y", "of", only={"zipf": 3}).rows(series)
    with pytest.raises(ExperimentError, match="no row of the series has k, y, who"):
        Plot("Three", "k", "y", "who").rows(series)
    with pytest.raises(ExperimentError, match="a row of the paper has no of; it has k, y"):
        Plot("", "k", "y", "of", paper=[{"k": 1, "y": 1}]).rows(series)


def test_unknown_experiment_is_refused_with_the_known_ones():
    with pytest.raises(ExperimentError, match="there is no experiment 'dice-mean'; there are "):
        get("dice-mean")


def test_every_experiment_is_measured_over_seeds():
    docs = Path(__file__).parents[2] / "docs" / "internals"
    over_seeds = json.loads((docs / "papers" / "verdicts.json").read_text())
    assert {result["id"] for result in over_seeds} == set(EXPERIMENTS)


def test_every_registered_experiment_says_what_it_must():
    for name, experiment in EXPERIMENTS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)
        assert experiment.title, name
        assert experiment.source, name
        assert experiment.claims, f"{name}: an experiment without a claim would always hold"
        assert set(experiment.quick) <= set(experiment.parameters), name
        assert 1 <= experiment.quick_runs <= experiment.runs, name
        assert json.loads(json.dumps(dict(experiment.parameters))), name
        for plot in experiment.plots:
            assert all({plot.x, plot.y, plot.line} <= set(row) for row in plot.paper), f"{name}: {plot.title}"


def test_verdicts_over_seeds_on_the_page_are_of_the_claims_as_they_are_now():
    """Each measured experiment in docs/internals/papers/verdicts.json has the registry's claims; else measure it again:
    `streamtopology reproduce ID --json FILE`, then `python scripts/papers_page.py FILE`.
    """
    file = Path(__file__).parents[2] / "docs" / "internals" / "papers" / "verdicts.json"
    for result in json.loads(file.read_text()):
        claims = EXPERIMENTS[result["id"]].claims
        assert [claim["sentence"] for claim in result["claims"]] == [claim.sentence for claim in claims], result["id"]
        assert len(result["seeds"]) >= 5, result["id"]
