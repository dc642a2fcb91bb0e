"""Rows between executors: the time that they take, and key pairs that are counted only where it matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from support.stages import Flow, manifest
from support.stories import some_rows

from streamtopology.jobs.driver.progress import WORTH, NetworkShare
from streamtopology.jobs.plan.results import InstanceResult, Results
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.spark.fetch_waits import FetchWaits
from streamtopology.routing.load.load_report import LoadReport, Onward

CHAIN = manifest(
    [
        {"name": "first", "inputs": ["s"], "grouping": {"policy": "auto", "key": "k"}, "run": "count",
         "with": {"emit": "tuples"}},
        {"name": "second", "inputs": ["first"], "grouping": {"policy": "auto", "key": "g"}, "run": "count"},
        {"name": "aside", "inputs": ["first"], "grouping": {"policy": "mixed", "key": "g"}, "run": "count"},
    ],
    {"s": "k BIGINT, g STRING, v BIGINT"},
)  # fmt: skip


def sent(rows: int, stayed: int, remote_seconds: float = 0.0) -> Results:
    report = LoadReport("first", 0, 0, rows, 0.1, 0.1, onward={"second": Onward(rows, stayed)})
    return Results([InstanceResult(report, None, {}, None, Span("host", 0.0, 1.0))], remote_seconds=remote_seconds)


def counted(flow: Flow) -> set[str]:
    results = flow.router.done[-1].results.instances
    return {name for result in results if result.report.operator == "first" for name in result.report.key_pairs}


def test_pairs_of_keys_are_counted_once_the_network_matters(tmp_path: Path) -> None:
    flow = Flow(tmp_path, CHAIN)
    random = np.random.default_rng(1)
    flow.batch(s=some_rows(random))
    assert counted(flow) == set()
    flow.driver.progress.network.measured(sent(100, 0, remote_seconds=1.0), 1, seconds=1.0)
    flow.batch(s=some_rows(random))
    assert counted(flow) == {"second"}, "aside has another policy"


def test_operators_of_other_parallelism_are_not_planned_together(tmp_path: Path) -> None:
    operators = [{**operator, "parallelism": 2 + (operator["name"] == "second")} for operator in CHAIN["spec"]["operators"]]
    flow = Flow(tmp_path, {**CHAIN, "spec": {**CHAIN["spec"], "operators": operators}})
    flow.batch(s=some_rows(np.random.default_rng(1)))
    flow.driver.progress.network.matters = True
    flow.batch(s=some_rows(np.random.default_rng(2)))
    assert counted(flow) == set()


@pytest.mark.parametrize(("share", "matters"), [(0.5 * WORTH, False), (2 * WORTH, True)])
def test_network_matters_from_some_share_of_a_batch_on(share: float, matters: bool) -> None:
    network = NetworkShare()
    network.measured(sent(400, 200, remote_seconds=share / 50), executors=4, seconds=1.0)
    assert network.matters is matters


def test_network_that_mattered_once_matters_on() -> None:
    network = NetworkShare()
    network.measured(sent(400, 0, remote_seconds=1.0), executors=4, seconds=1.0)
    network.measured(sent(400, 400, remote_seconds=1.0), executors=4, seconds=1.0)
    assert network.matters


def test_an_action_is_looked_at_when_the_next_one_has_ended(spark: SparkSession) -> None:
    now = [0.0]
    waits = FetchWaits(spark, lambda: now[0])
    for tag in ("one", "two"):
        assert waits.seconds is None
        spark.sparkContext.addJobTag(tag)
        spark.sparkContext.parallelize(range(100), 4).map(lambda number: (number % 4, number)).groupByKey(4).count()
        spark.sparkContext.removeJobTag(tag)
        now[0] += 10.0
        waits.ended(tag, 2, sent(100, 0))
    assert waits.seconds is not None
    assert 0 <= waits.seconds < 1


def test_an_action_that_spark_knows_nothing_of_says_nothing(spark: SparkSession) -> None:
    now = [0.0]
    waits = FetchWaits(spark, lambda: now[0])
    for tag in ("never-run", "nor-this"):
        now[0] += 10.0
        waits.ended(tag, 2, sent(100, 0))
    assert waits.seconds is None
