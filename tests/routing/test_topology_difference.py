"""The effect of a changed manifest on a running topology: the level of every change and its sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamtopology.topology import (
    Autoscale,
    Driver,
    ExecutorClass,
    Grouping,
    Input,
    Level,
    Migration,
    OperatorSpec,
    PodSettings,
    Rebalance,
    Restore,
    ScaledClass,
    Sink,
    SnapshotSchedule,
    Source,
    StateRoom,
    Topology,
    Trigger,
    Watermark,
    difference,
)

OPERATOR = OperatorSpec("tail", (Input("flights", "flights"),), 4, Grouping("fields", ("tailnum",)), "count")
NEXT = OperatorSpec("dest", (Input("tail", "tail"),), 4, Grouping("mixed", ("dest",)), "count")
SOURCE = Source("flights", "parquet", "dest STRING", {"path": "data"})
SINK = Sink("out", "dest", "parquet", {"path": "out"})
LARGE, SMALL = ExecutorClass("large", 3, 0.45), ExecutorClass("small", 1, 0.135)
TOLERANT = PodSettings(tolerations=({"key": "spot", "operator": "Exists"},))
OLD = Topology("flights", (SOURCE,), (OPERATOR, NEXT), (SINK,), (LARGE, SMALL))


def _with(**fields: Any) -> Topology:
    return replace(OLD, **fields)


def _tail(**fields: Any) -> Topology:
    return _with(operators=(replace(OPERATOR, **fields), NEXT))


def _large(**fields: Any) -> Topology:
    return _with(executors=(replace(LARGE, **fields), SMALL))


def _rebalance(**fields: Any) -> Topology:
    return _with(rebalance=replace(Rebalance(), **fields))


@pytest.mark.parametrize(
    ("new", "level", "sentence"),
    [
        (_tail(grouping=Grouping("mixed", ("tailnum",))), Level.ROUTE, "operator tail policy: fields -> mixed"),
        (_tail(grouping=Grouping("fields", ("tailnum",), {"seed": 7})), Level.ROUTE,
         "operator tail grouping options: {} -> {seed: 7}"),
        (_rebalance(tolerance=0.2), Level.ROUTE, "rebalance tolerance: 0.08 -> 0.2"),
        (_rebalance(mode="Recommend"), Level.ROUTE, "rebalance mode: Auto -> Recommend"),
        (_rebalance(max_table_entries=10), Level.ROUTE, "rebalance maxTableEntries: 3000 -> 10"),
        (_rebalance(interval_seconds=5.0), Level.ROUTE, "rebalance interval: 10s -> 5s"),
        (_rebalance(window_intervals=3), Level.ROUTE, "rebalance windowIntervals: 1 -> 3"),
        (_large(cpu=0.3), Level.RESIZE, "executor class large cpu: 450m -> 300m"),
        (_large(memory_bytes=2**31), Level.RESIZE, "executor class large memory: 1Gi -> 2Gi"),
        (_large(storage_bytes=10 * 2**30), Level.RESIZE, "executor class large storage: none -> 10Gi"),
        (_large(replicas=4), Level.SCALE, "executor class large replicas: 3 -> 4"),
        (_with(executors=(LARGE,)), Level.SCALE, "executor class small removed"),
        (_with(executors=(LARGE, SMALL, ExecutorClass("tiny"))), Level.SCALE, "executor class tiny added"),
        (_tail(parallelism=8), Level.SCALE, "operator tail parallelism: 4 -> 8"),
        (_tail(run="quantiles"), Level.RESTART, "operator tail run: count -> quantiles"),
        (_tail(options={"emit": "tuples"}), Level.RESTART, "operator tail with: {} -> {emit: tuples}"),
        (_tail(grouping=Grouping("fields", ("dest",))), Level.RESTART, "operator tail key: [tailnum] -> [dest]"),
        (_tail(inputs=(Input("flights", "rows", ("tailnum",)),)), Level.RESTART,
         "operator tail inputs: [flights] -> [flights as rows key [tailnum]]"),
        (_tail(aggregate_every=2), Level.RESTART, "operator tail aggregateEvery: 1 -> 2"),
        (_tail(late="out"), Level.RESTART, "operator tail late: none -> out"),
        (_tail(state=StateRoom("disk", 2**20)), Level.RESTART, "operator tail state: memory -> disk, memory 1Mi"),
        (_with(operators=(OPERATOR,)), Level.RESTART, "operator dest removed"),
        (_with(sources=(replace(SOURCE, schema="dest BIGINT"),)), Level.RESTART,
         "source flights schema: dest STRING -> dest BIGINT"),
        (_with(sources=(replace(SOURCE, where="true"),)), Level.RESTART, "source flights where: none -> true"),
        (_with(sources=(replace(SOURCE, watermark=Watermark("at", 10.0)),)), Level.RESTART,
         "source flights watermark: none -> at, delay 10s, idleTimeout 30s, maxAhead 24h"),
        (_with(sources=(SOURCE, replace(SOURCE, name="more"))), Level.RESTART, "source more added"),
        (_with(sinks=(replace(SINK, format="json"),)), Level.RESTART, "sink out format: parquet -> json"),
        (_with(checkpoint="s3://b/c"), Level.RESTART, "checkpoint: none -> s3://b/c"),
        (_with(trigger=Trigger(1.0)), Level.RESTART, "trigger interval: 0s -> 1s"),
        (_with(trigger=Trigger(latency_seconds=2.0)), Level.ROUTE, "trigger latency: none -> 2s"),
        (_with(on_bad_tuple="deadLetter"), Level.RESTART, "onBadTuple: fail -> deadLetter"),
        (_with(on_remove="drop"), Level.RESTART, "onRemove: fail -> drop"),
        (_with(image="flights:2"), Level.RESTART, "image: none -> flights:2"),
        (_with(image_pull_policy="Never"), Level.RESTART, "imagePullPolicy: none -> Never"),
        (_with(image_pull_secrets=("registry",)), Level.RESTART, "imagePullSecrets: [] -> [registry]"),
        (_with(spark_conf={"spark.jars": "a.jar"}), Level.RESTART, "sparkConf spark.jars changed"),
        (_with(driver=Driver(2.0)), Level.RESTART, "driver cpu: 1 -> 2"),
        (_with(driver=Driver(memory_bytes=2**32)), Level.RESTART, "driver memory: 3Gi -> 4Gi"),
        (_with(driver=Driver(storage_bytes=2**31)), Level.RESTART, "driver storage: none -> 2Gi"),
        (_with(driver=Driver(pod=TOLERANT)), Level.RESTART, "driver pod.tolerations changed"),
        (_large(pod=TOLERANT), Level.RESIZE, "executor class large pod.tolerations changed"),
        (_large(cost_per_hour=0.4), Level.IGNORE, "executor class large costPerHour: none -> 0.4"),
        (_with(suspend=True), Level.IGNORE, "suspend: False -> True"),
        (_with(migration=Migration(2**30)), Level.IGNORE, "migration threshold: 64Mi -> 1Gi"),
        (_with(migration=Migration(storage_bytes=2**30)), Level.IGNORE, "migration storage: none -> 1Gi"),
        (_with(restore=Restore("/b/c")), Level.IGNORE, "restore: none -> Clone from /b/c"),
        (
            _with(snapshots=SnapshotSchedule("30 3 * * *", "s3://b/c")),
            Level.IGNORE,
            "snapshots: none -> 30 3 * * * to s3://b/c, keep all",
        ),
        (_with(autoscale=Autoscale("large")), Level.IGNORE, "autoscale: none -> large"),
        (_with(name="other"), Level.RESTART, "name: flights -> other"),
    ],
)  # fmt: skip
def test_single_change_has_its_level_and_sentence(new: Topology, level: Level, sentence: str) -> None:
    change = difference(OLD, new)
    assert change.sentences == (sentence,)
    assert change.level is level


def _scaled(**fields: Any) -> Topology:
    """OLD with its class large scaled by somebody, as it is in the manifest: not yet resolved."""
    autoscale = Autoscale("large", replicas=3, max_replicas=9)
    changed = replace(autoscale, **fields)
    return replace(_large(replicas=changed.within(changed.replicas)), autoscale=changed)


@pytest.mark.parametrize(
    ("fields", "level", "sentence"),
    [
        ({"min_replicas": 2}, Level.IGNORE, "autoscale minReplicas: 1 -> 2"),
        ({"max_replicas": 5}, Level.IGNORE, "autoscale maxReplicas: 9 -> 5"),
        ({"by": "Nobody"}, Level.IGNORE, "autoscale by: External -> Nobody"),
        ({"target_utilisation": 0.5}, Level.IGNORE, "autoscale targetUtilisation: 0.7 -> 0.5"),
        ({"stabilisation_seconds": 60.0}, Level.IGNORE, "autoscale stabilisation: 5m -> 1m"),
        (
            {"executor_class": "", "classes": (ScaledClass("large", 3, 9),)},
            Level.IGNORE,
            "autoscale class: large -> none; autoscale classes: none -> large 3 to 9",
        ),
        ({"replicas": 4}, Level.SCALE, "executor class large replicas: 3 -> 4"),
    ],
)
def test_a_change_of_autoscaling_is_nothing_to_the_topology_until_replicas_change(
    fields: dict[str, Any], level: Level, sentence: str
) -> None:
    change = difference(_scaled(), _scaled(**fields))
    assert (change.level, "; ".join(change.sentences)) == (level, sentence)
    resolved = difference(_scaled().resolved({"large": 3}), _scaled(**fields).resolved({"large": 3}))
    assert (resolved.level, resolved.sentences) == (Level.IGNORE, ())
    assert difference(_scaled().resolved({"large": 3}), _scaled(**fields).resolved({"large": 5})).level is Level.SCALE


def test_nothing_changed() -> None:
    assert difference(OLD, replace(OLD)) == difference(OLD, OLD)
    assert difference(OLD, OLD).level is Level.IGNORE
    assert difference(OLD, OLD).sentences == ()


def test_order_and_place_in_the_manifest_mean_nothing() -> None:
    moved = _with(operators=(NEXT, replace(OPERATOR, path="spec.operators[1]")), executors=(SMALL, LARGE))
    assert difference(OLD, moved).level is Level.IGNORE


def test_the_deepest_of_several_changes_decides() -> None:
    new = replace(_large(cpu=0.3, replicas=5), rebalance=Rebalance(tolerance=0.2))
    change = difference(OLD, new)
    assert change.level is Level.SCALE
    assert change.sentences == (
        "executor class large replicas: 3 -> 5",
        "executor class large cpu: 450m -> 300m",
        "rebalance tolerance: 0.08 -> 0.2",
    )
    assert Level.IGNORE < Level.ROUTE < Level.RESIZE < Level.SCALE < Level.RESTART
