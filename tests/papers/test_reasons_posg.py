"""The reasons why sentences of POSG's paper do not hold here: without what is named as the reason they do.

`Relieved` has POSG's machines with execution times in place of estimates (`exact`), and with idle time in C and C-hat (`idle`);
mu = 10 in place of the paper's 0.05 lets an instance send after two windows, as in the paper's figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from papers.posg import Relieved
from papers.reasons import shows

from streamtopology.lab.reproduce.experiments.posg import scheduling
from streamtopology.lab.reproduce.experiments.posg.queues import Stream
from streamtopology.lab.reproduce.experiments.posg.row_over import SYNTHETIC
from streamtopology.lab.reproduce.experiments.posg.rows import TWEETS
from streamtopology.lab.reproduce.experiments.posg.schedulers import SCHEDULERS
from streamtopology.lab.reproduce.experiments.posg.scheduling import Schedule
from streamtopology.lab.reproduce.experiments.posg.shift import SHIFT, recovers_at
from streamtopology.lab.reproduce.experiments.posg.workloads import mentions, synthetic

pytestmark = pytest.mark.long  # research: minutes of simulated streams

PAPERS_MU, AFTER_TWO_WINDOWS = 0.05, 10.0
STREAMS = 5


def streams(how_many: int = STREAMS, **given: Any) -> list[Stream]:
    return [synthetic({**SYNTHETIC, **given}, np.random.default_rng([1, run])) for run in range(how_many)]


def ran(stream: Stream, mu: float = PAPERS_MU, exact: bool = False, idle: bool = False, **given: Any) -> Schedule:
    return Relieved(stream, {**SYNTHETIC, **given, "tolerance": mu}, exact, idle).run()


@dataclass(frozen=True)
class SpeedUps:
    """Means over streams: of POSG as published, and of it with exact costs and a pair after two windows."""

    published: float
    relieved: float

    @staticmethod
    def of(**given: Any) -> SpeedUps:
        def mean(mu: float, exact: bool) -> float:
            return float(np.mean([scheduling.round_robin(one).mean / ran(one, mu, exact, **given).mean for one in drawn]))

        drawn = streams(**given)
        return SpeedUps(mean(PAPERS_MU, exact=False), mean(AFTER_TWO_WINDOWS, exact=True))


@shows("posg-skew", "POSG gains 6 %", "It gains 25 %")
@shows("posg-load", "POSG's speed-up is at least 1.15", "It is 1.26", "It is 1.07")
@shows("posg-wmax", "POSG's speed-up is 1.19")
@shows("posg-wn", "POSG's speed-up is 1.19")
@pytest.mark.parametrize(
    ("given", "paper"),
    [
        ({"alpha": 0.0}, 1.06),
        ({"alpha": 0.5}, 1.06),
        ({"alpha": 1.0}, 1.25),
        ({"provisioning": 102.0}, 1.26),
        ({"provisioning": 105.0}, 1.15),
        ({"provisioning": 115.0}, 1.07),
        ({"wmax": 4.0}, 1.19),
        ({"wmax": 1024.0}, 1.19),
        ({"wn": 2}, 1.19),
        ({"wn": 1024}, 1.19),
    ],
)
def test_exact_costs_known_after_two_windows_bring_at_least_the_papers_gain(given: dict[str, object], paper: float):
    found = SpeedUps.of(**given)
    assert found.published < paper - 0.02
    assert found.relieved > paper


def test_of_the_late_start_and_the_estimates_neither_alone_is_the_reason():
    def mean(mu: float, exact: bool) -> float:
        return float(np.mean([scheduling.round_robin(one).mean / ran(one, mu, exact).mean for one in streams()]))

    assert mean(AFTER_TWO_WINDOWS, exact=False) < 1.2
    assert mean(PAPERS_MU, exact=True) < 1.2


def test_idle_time_that_c_hat_does_not_know_costs_exact_costs_their_gain():
    drawn = streams(2, provisioning=105.0)
    gains = [
        np.mean([scheduling.round_robin(one).mean / ran(one, exact=True, idle=idle).mean for one in drawn])
        for idle in (False, True)
    ]
    assert gains[0] < 1.15 < gains[1]


@shows("posg-skew", "At Zipf-1.5 POSG's largest")
def test_at_zipf_1_5_not_even_full_knowledge_is_below_round_robins_smallest_mean():
    drawn = streams(20, alpha=1.5)
    round_robin = [scheduling.round_robin(one).mean for one in drawn]
    assert max(round_robin) > 2 * min(round_robin)
    assert max(scheduling.full_knowledge(one).mean for one in drawn) > min(round_robin)
    assert all(ran(one).runs_from[:1] == () or ran(one).runs_from[0] > 20_000 for one in drawn)


@shows("posg-skew", "At Zipf-2.5 POSG is as good as Full Knowledge")
def test_round_robin_until_run_and_idle_time_are_what_is_missing_at_zipf_2_5():
    """Exact costs alone bring nothing; the sooner RUN begins with them and with idle time, the nearer Full Knowledge is."""
    drawn = streams(2, alpha=2.5)
    best = np.mean([scheduling.full_knowledge(one).mean for one in drawn])

    def over_best(**given: Any) -> float:
        return float(np.mean([ran(one, **given).mean for one in drawn]) / best)

    assert over_best(exact=True) > 1.5
    sooner = [over_best(mu=AFTER_TWO_WINDOWS, exact=True, idle=True, window=window) for window in (1024, 256, 32)]
    assert sooner == sorted(sooner, reverse=True)
    assert sooner[-1] < 1.1


@shows("posg-k", "From 2 to 3")
def test_posg_gains_nothing_on_two_and_three_instances_where_exact_costs_do():
    for k in (2, 3):
        found = SpeedUps.of(k=k)
        assert abs(found.published - 1) < 0.2
        assert found.relieved > 1.2


@shows("posg-k", "From 9 to 10")
def test_with_nine_and_ten_instances_streams_end_before_all_instances_have_sent():
    for k in (9, 10):
        drawn = streams(k=k)
        assert SYNTHETIC["m"] / k / SYNTHETIC["window"] < 4
        assert sum(bool(ran(one).runs_from) for one in drawn) <= 1
        assert all(ran(one, AFTER_TWO_WINDOWS).runs_from for one in drawn)


@shows("posg-eps", "From eps <= 0.09")
def test_over_eps_posg_is_slower_on_some_streams_and_with_exact_costs_on_none():
    for eps in (0.03, 0.09):
        gains = [
            [scheduling.round_robin(one).mean / ran(one, mu, exact, eps=eps).mean for one in streams(eps=eps)]
            for mu, exact in ((PAPERS_MU, False), (AFTER_TWO_WINDOWS, True))
        ]
        assert min(gains[0]) < 1 < min(gains[1])


@shows("posg-eps", "A tenth of eps")
def test_with_small_cells_run_never_begins_but_for_another_mu():
    for eps in (0.009, 0.003):
        for one in streams(eps=eps):
            assert ran(one, eps=eps).runs_from == ()
            assert ran(one, AFTER_TWO_WINDOWS, eps=eps).runs_from[0] < 12_000


@shows("posg-shift", "POSG leaves round robin after 10,690", "After the change at 75,000")
def test_the_papers_start_and_recovery_are_those_of_a_pair_after_two_windows():
    def found(mu: float) -> tuple[float, float]:
        schedules = [(ran(one, mu), one) for one in drawn]
        return (
            float(np.mean([schedule.runs_from[0] for schedule, _ in schedules])),
            float(np.mean([recovers_at(schedule, one) for schedule, one in schedules])),
        )

    drawn = [synthetic(SHIFT.parameters, np.random.default_rng([1, run])) for run in range(3)]
    late, soon = found(PAPERS_MU), found(AFTER_TWO_WINDOWS)
    assert soon[0] == pytest.approx(10_690, rel=0.1)
    assert soon[1] == pytest.approx(84_912, abs=5_000)
    assert late[0] > 15_000
    assert late[1] > soon[1] + 5_000


@shows("posg-tweets", "POSG's mean speed-up is 1.37", "With k = 10")
@pytest.mark.parametrize(("k", "paper"), [(5, 1.37), (10, 1.16)])
def test_on_the_tweets_stand_in_exact_costs_alone_bring_more_than_the_papers_gain(k: int, paper: float):
    (one,) = [mentions({**TWEETS.parameters, "k": k}, np.random.default_rng([1, 0]))]
    round_robin = scheduling.round_robin(one).mean
    assert round_robin / ran(one).mean < paper - 0.05
    assert round_robin / ran(one, exact=True).mean > paper + 0.1


@shows("posg-tweets", "916 messages")
def test_messages_with_their_requests_are_within_a_factor_of_two_of_the_papers():
    found: Sequence[Schedule] = [
        ran(mentions({**TWEETS.parameters, "k": 5}, np.random.default_rng([seed, 0]))) for seed in (1, 101, 201)
    ]
    for one in found:
        replies = one.messages - len(one.pairs)
        assert 458 <= one.messages + replies <= 1832


@shows(
    "posg-schedulers",
    "Ours: 2 to 16 schedulers with `partial-key` finish",
    "Ours: 2 to 16 schedulers with `consistent` finish",
)
def test_sixteen_schedulers_are_late_or_early_by_chance_where_costs_do_not_count():
    late: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for seed in range(1, 13):
        given = {**SCHEDULERS.parameters, "values": [1, 16]}
        for row in SCHEDULERS.measure(given, 1, seed, lambda share: None).series:
            late[str(row["algorithm"]), int(row["schedulers"])].append(float(row["lateness"]))
    for policy in ("partial-key", "consistent"):
        one, several = np.array(late[policy, 1]), np.array(late[policy, 16])
        assert min(several / one) < 1 < 1.02 < max(several / one)
        assert several.mean() < 1.01 * one.mean()
    by_costs = np.array(late["earliest-finish", 16]) / np.array(late["earliest-finish", 1])
    assert max(by_costs) < 1.005
