"""locality-online: weeks of a drifting stream under hashing, one plan of the first week, and a plan a week (figure 11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary
from streamtopology.lab.reproduce.trace import PAIRS, read_trace
from streamtopology.lab.simulate.chain import Chain, counted, loads, locality
from streamtopology.lab.simulate.tweets import Tweets
from streamtopology.routing.planners.locality import ALPHA
from streamtopology.routing.table.hashing import hash_int64

Hashes = npt.NDArray[np.uint64]

STAND_IN = (
    "drawn locations and hashtags (tweets.py) for the paper's 173 million crawled from Twitter; its drift was set to the"
    " paper's: METIS expects about 75 % of the collected week, a plan that is never renewed loses a fifth of its locality"
)

REGIONS_WANDER = (
    "A plan keeps the keys of a region together, and how popular regions become is drawn with each stream, by a standard"
    " deviation that the stand-in assumes: without it the load of offline stays below 1.15, with twice of it seeds differ by"
    " more than a half."
)

POLICIES = ("hash", "offline", "online")


def _measure(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    totals: defaultdict[tuple[int, str], list[dict[str, float]]] = defaultdict(list)
    plans: list[dict[str, float]] = []
    weeks = int(parameters["weeks"])
    for run in range(runs):
        for week, (rows, plan) in enumerate(_weeks(parameters, seed + run)):
            for policy, row in rows.items():
                totals[week, policy].append(row)
            plans.append(plan)
            progress((run + (week + 1) / weeks) / runs)
    series: list[Row] = [
        {"week": week, "policy": policy, **{name: float(np.mean([row[name] for row in rows])) for name in rows[0]}}
        for (week, policy), rows in totals.items()
    ]
    return Measured(series, _summary(series, plans, weeks))


def _weeks(parameters: Parameters, seed: int) -> Iterator[tuple[dict[str, dict[str, float]], dict[str, float]]]:
    """Per week: locality and loads of each policy, and what its plan expects of the week that it was made from."""
    servers, pairs = int(parameters["servers"]), int(parameters["pairs"])
    chains = dict.fromkeys(POLICIES, Chain.hashed(servers, seed))
    for week, (locations, tags) in enumerate(weeks_of(parameters, seed)):
        rows: dict[str, dict[str, float]] = {}
        for policy, chain in chains.items():
            traffic = chain.traffic(locations, tags)
            rows[policy] = {"locality": locality(traffic), **loads(traffic)}
        chains["online"], plan = chains["online"].planned(counted(locations, tags, pairs))
        if week == 0:
            chains["offline"] = chains["online"]
        collected = loads(chains["online"].traffic(locations, tags))
        yield rows, {"expected": plan.locality_after, **collected}


def weeks_of(parameters: Parameters, seed: int) -> Iterator[tuple[Hashes, Hashes]]:
    """(hashes of locations, of hashtags) of each week, uint64[n] both: drawn, or of a trace that is as many equal periods."""
    weeks = int(parameters["weeks"])
    if not parameters["trace"]:
        yield from Tweets(int(parameters["tuples"])).weeks(weeks, np.random.default_rng(seed))
        return
    trace = read_trace(parameters["trace"], PAIRS)
    for rows in trace.periods(weeks):
        yield hash_int64(trace.keys[rows]), hash_int64(trace.second_keys[rows] + (1 << 40))


def _summary(series: list[Row], plans: list[dict[str, float]], weeks: int) -> Summary:
    def mean(policy: str, name: str, first: int, last: int = weeks) -> float:
        return float(
            np.mean([float(row[name]) for row in series if row["policy"] == policy and first <= int(row["week"]) < last])
        )

    late = weeks - max(weeks // 4, 1)
    return {
        "hash_locality": mean("hash", "locality", 0),
        "first_locality": mean("offline", "locality", 1, 2),
        "offline_locality": mean("offline", "locality", late),
        "online_locality": mean("online", "locality", 1),
        "expected_locality": float(np.mean([plan["expected"] for plan in plans])),
        "collected_balance": max(plan["server_load"] for plan in plans),
        "collected_instance_load": float(np.mean([plan["instance_load"] for plan in plans])),
        "hash_load": mean("hash", "instance_load", 0),
        "offline_load": mean("offline", "instance_load", late),
        "online_load": mean("online", "instance_load", 1),
        "offline_server_load": mean("offline", "server_load", late),
        "online_server_load": mean("online", "server_load", 1),
    }


def _near(name: str, value: float, tolerance: float) -> Claim:
    """The paper's figure `name` is met within `tolerance`, both as shares."""
    sentences = {
        "hash_locality": "hashing keeps a sixth of the tuples on their server",
        "first_locality": "after one week, online and offline raise locality to 49 %",
        "offline_locality": "offline decreases and stabilises around 40 %",
        "expected_locality": "METIS expects a locality of 75 % on the data that it was given",
        "hash_load": "hashing gives the most loaded instance 12 % more than the mean",
        "offline_load": "offline stabilises around 40 % more than the mean for the most loaded instance",
    }
    sentence = f"{sentences[name]} (within {tolerance * 100:g} points)"
    why_not = REGIONS_WANDER if name == "offline_load" else ""
    return Claim(sentence, lambda found: abs(found[name] - value) <= tolerance, {name: value}, why_not=why_not)


ONLINE = Experiment(
    id="locality-online",
    title="Locality and load of a drifting stream, re-planned weekly, once, or never",
    source="locality-aware routing, section 4.3, figure 11",
    parameters={"tuples": 1_000_000, "weeks": 20, "servers": 6, "pairs": 1_000_000, "trace": ""},
    quick={"tuples": 250_000, "weeks": 9},
    runs=2,
    quick_runs=1,
    measure=_measure,
    claims=(
        _near("hash_locality", 0.166, 0.01),
        _near("first_locality", 0.49, 0.05),
        _near("offline_locality", 0.40, 0.05),
        Claim(
            "online maintains a locality in the vicinity of 50 % (at least 47 %)",
            lambda found: found["online_locality"] >= 0.47,
            {"online_locality": 0.50},
        ),
        _near("expected_locality", 0.75, 0.05),
        Claim(
            f"the balance constraint of {ALPHA} is respected for the collected data (of each server, A and B together)",
            lambda found: found["collected_balance"] <= ALPHA + 0.001,
            {"collected_balance": ALPHA},
        ),
        _near("hash_load", 1.12, 0.08),
        _near("offline_load", 1.40, 0.15),
        Claim(
            "online corrects the imbalance that offline accumulates (most loaded instance, nearer to the mean)",
            lambda found: found["online_load"] < found["offline_load"],
        ),
    ),
    plots=(
        Plot(
            title="Locality by week",
            x="week",
            y="locality",
            line="policy",
            paper=[
                {"week": week, "locality": share, "policy": policy}
                for policy, week, share in (("hash", 0, 0.166), ("offline", 1, 0.49), ("online", 1, 0.49))
            ],
        ),
        Plot(title="Load of the most loaded instance over the mean", x="week", y="instance_load", line="policy"),
    ),
    stand_in=STAND_IN,
    takes=PAIRS,
)
