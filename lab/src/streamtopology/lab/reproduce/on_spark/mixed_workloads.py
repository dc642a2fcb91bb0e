"""The topologies of `mixed-throughput`: word counts, a self-join of trades and TPC-H's query 5, each under any policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopology.lab.bench.flights_data import KEYS_DDL
from streamtopology.lab.reproduce.experiment import Parameters
from streamtopology.lab.reproduce.on_spark.changing import TRADES_DDL, Changes, write_trades, write_words

if TYPE_CHECKING:  # Spark is started by those who measure only
    from streamtopology.topology import Topology

PLANNED = {"Readj": "readj", "MinTable": "mintable", "Mixed": "mixed"}
SCHEMES = {"hash": "fields", **PLANNED}
WEEK = "7d"
SAME_NATION = "bought.nation = suppliers.nation"

Spec = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """A stream and what is done with it. `schemes`: name in the figures -> policy of every keyed operator.

    `write(folder, given, seed)` writes one file a batch and source; `sources(folder)` and `operators(policy, given)` are the
    manifest's.
    """

    name: str
    schemes: Mapping[str, str]
    write: Callable[[Path, Parameters, int], object]
    sources: Callable[[Path], Sequence[Spec]]
    operators: Callable[[str, Parameters], Sequence[Spec]]

    def topology(self, name: str, folder: Path, policy: str, given: Parameters) -> Topology:
        """On like executors; re-routed while it runs where the policy has a planner."""
        from streamtopology.topology import parse

        live = policy in PLANNED.values()
        spec = {
            "sources": self.sources(folder),
            "operators": self.operators(policy, given),
            "executors": [{"name": "server", "replicas": int(given["servers"]), "cpu": given["cpu"], "memory": "1Gi"}],
            "rebalance": {"mode": "Auto", "interval": given["interval"]} if live else {"mode": "Off"},
        }
        return parse(
            {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": name}, "spec": spec}
        )


def _source(name: str, folder: Path, schema: str, time: str | None = None) -> Spec:
    """Files of one folder, one a batch; `time`: the event-time column."""
    watermark = {"watermark": {"column": time}} if time is not None else {}
    options = {"path": str(folder), "maxFilesPerTrigger": 1}
    return {"name": name, "format": "parquet", "schema": schema, "options": options, **watermark}


def _words(folder: Path) -> Sequence[Spec]:
    return [_source("rows", folder, KEYS_DDL)]


def _count_words(policy: str, given: Parameters) -> Sequence[Spec]:
    return [
        {
            "name": "counts",
            "inputs": ["rows"],
            "grouping": {"policy": policy, "key": "key"},
            "run": "count",
            "with": {"costPerTuple": given["cost"], "emit": "nothing"},
        },
    ]


def _trades(folder: Path) -> Sequence[Spec]:
    return [_source("rows", folder, TRADES_DDL, time="at")]


def _join_trades(policy: str, given: Parameters) -> Sequence[Spec]:
    """Trades of one symbol shortly after each other at clearly different prices."""
    where = "earlier.at < later.at AND abs(later.price / earlier.price - 1) > 0.1"
    select = ["earlier.symbol AS symbol", "earlier.id AS earlier", "later.id AS later"]
    return [
        {
            "name": "jumps",
            "inputs": [{"from": "rows", "as": "earlier"}, {"from": "rows", "as": "later"}],
            "grouping": {"policy": policy, "key": "symbol"},
            "run": "window-join",
            "with": {"costPerTuple": given["cost"], "time": "at", "within": given["within"], "where": where, "select": select},
        },
    ]


def _write_q5(folder: Path, given: Parameters, seed: int) -> None:
    import numpy as np

    from streamtopology.lab.bench.tpch_data import make_q5

    changes, random = Changes.of(given), np.random.default_rng(seed)
    make_q5(
        folder,
        changes.batches,
        int(given["weeks"]),
        given["scale"],
        given["exponent"],
        seed,
        lambda shares, keys: changes.shares(shares, keys, random),
    )


def q5_streams(folder: Path) -> Sequence[Spec]:
    from streamtopology.lab.bench.tpch_data import STREAMS

    return [_source(name, folder / name, schema, time="placed") for name, schema in STREAMS.items()]


def query_5(policy: str, given: Parameters) -> Sequence[Spec]:
    """Revenue by nation of Asia and week, of what was bought from suppliers of the customer's own nation."""

    def join(name: str, left: str, right: str, key: str, select: Sequence[str], where: str | None = None) -> Spec:
        options = {
            "costPerTuple": given["cost"],
            "time": "placed",
            "size": WEEK,
            "select": [f"{left}.placed AS placed", *select],
        }
        return {
            "name": name,
            "inputs": [left, right],
            "grouping": {"policy": policy, "key": key},
            "run": "window-join",
            "with": options if where is None else {**options, "where": where},
        }

    return [
        join("asian", "orders", "customers", "custkey", ["orderkey", "nation"], "customers.region = 'ASIA'"),
        join("bought", "lineitems", "asian", "orderkey", ["suppkey", "nation", "revenue"]),
        join("local", "bought", "suppliers", "suppkey", ["suppliers.nation AS nation", "revenue"], SAME_NATION),
        {
            "name": "revenues",
            "inputs": ["local"],
            "grouping": {"policy": policy, "key": "nation"},
            "run": "window-aggregate",
            "with": {"time": "placed", "size": WEEK, "aggregates": {"revenue": "sum(revenue)"}},
        },
    ]


WORKLOADS = (
    Workload("words", {**SCHEMES, "PKG": "partial-key"}, write_words, _words, _count_words),
    Workload("self-join", SCHEMES, write_trades, _trades, _join_trades),  # joins' state cannot be combined: no PKG
    Workload("q5", SCHEMES, _write_q5, q5_streams, query_5),
)
