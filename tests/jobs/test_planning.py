"""`streamtopology plan`: what the controller would do with what a driver served, and what it cannot be asked."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.histories import SLOTS
from support.manifests import counting, files, manifest, memory_sink
from support.reasons import BY_TEST

from streamtopology.contract.reasons import SOURCE
from streamtopology.jobs.admin.plan_preview import Snapshot, as_json, as_text, look_ahead
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import KeyPairs, LoadReport, SourceReport
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of, partition
from streamtopology.topology import Topology, parse

CPU = tuple(slot.cpu for slot in SLOTS)
COST = 1e-5
FIXED_SECONDS = 0.05
EPOCH = 3


def topology(policy: str = "mixed", **spec: Any) -> Topology:
    return parse(given(policy, **spec))


def given(policy: str = "mixed", **spec: Any) -> dict[str, Any]:
    executors = [{"name": "large", "replicas": 3, "cpu": "1"}, {"name": "small", "replicas": 1, "cpu": "300m"}]
    one = counting(policy=policy)
    return manifest("trips", [files(Path("unused"))], [one], [memory_sink("all", "counts")], **{"executors": executors, **spec})


def served(table: RoutingTable | None = None, policy: str = "mixed", keys: int = 400, rows: int = 40_000) -> dict[str, Any]:
    """The answer of a driver whose last batch ran under `table`, parsed from JSON; each key has as many rows."""
    table = table or RoutingTable.uniform(range(4))
    hashes = hash_int64(np.arange(keys, dtype=np.int64))
    order, bounds = partition(table.lookup(hashes), 4)
    reports = []
    for instance, slot in enumerate(SLOTS):
        mine = hashes[order[bounds[instance] : bounds[instance + 1]]]
        count, busy = len(mine) * (rows // keys), len(mine) * (rows // keys) * COST / slot.cpu
        buckets = np.bincount(bucket_of(mine, BUCKETS), minlength=BUCKETS) * (rows // keys)
        reports.append(
            LoadReport(
                "counts",
                instance,
                instance,
                count,
                busy,
                busy + FIXED_SECONDS,
                len(mine),
                1_000 * len(mine),
                bucket_rows=BucketRows.of(buckets.astype(np.int64)),
            )
        )
    sources = tuple(
        SourceReport(slot.index, rows // 4, rows / 4 * 1e-6 / slot.cpu, rows / 4 * 1e-6 / slot.cpu + 0.01) for slot in SLOTS
    )
    history = History("trips", SLOTS, {"counts": policy})
    history.batch_done(
        BatchOutcome(
            number=7,
            epoch=EPOCH,
            rows=rows,
            seconds=0.6,
            committed_at=1_700_000_000.0,
            reports=tuple(reports),
            source_reports=sources,
        )
    )
    routing = Epoch(EPOCH, {"counts": Route(policy, table, (0, 1, 2, 3))}, (), BY_TEST)
    return json.loads(json.dumps(build_stats(history, Standing(routing)), allow_nan=False))


def test_a_slow_executor_is_relieved():
    outlook = look_ahead(topology(), Snapshot.from_stats(served()))
    reported = as_json(outlook)
    source, counts = reported["stages"]
    assert reported["reroute"]
    assert (reported["epoch"], reported["batch"], reported["batch_seconds"]) == (EPOCH, 7, 0.6)
    assert (source["name"], counts["name"], counts["policy"]) == (SOURCE, "counts", "mixed")
    assert counts["imbalance_before"] > 0.5
    assert counts["imbalance_after"] < 0.08
    assert counts["rerouted"]
    assert 0 < counts["keys_moved"] < 400
    assert counts["bytes_moved"] == pytest.approx(1_000 * counts["keys_moved"], rel=0.25)
    assert 0 < reported["predicted_gain_seconds"] < 0.6
    assert reported["cost_seconds"] > 0
    assert np.argmin(source["shares"]) == 3
    json.dumps(reported, allow_nan=False)
    text = as_text(outlook)
    assert 1 <= reported["one_more"]["small"] < reported["one_more"]["large"] < 1.4
    assert f"one more executor would bring, in rows/s: of large {reported['one_more']['large']:.2f} x, of small " in text
    assert "would be re-routed: saves " in text
    assert "re-routed" in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("large", "small", "best"), [(1.0, 0.05, "small"), (0.2, 0.2, "large"), (0.2, None, None), (None, None, None)]
)
def test_executors_of_a_class_are_compared_by_their_price(large: float | None, small: float | None, best: str | None):
    priced = given()
    for of_class, price in zip(priced["spec"]["executors"], (large, small), strict=True):
        of_class |= {} if price is None else {"costPerHour": price}
    outlook = look_ahead(parse(priced), Snapshot.from_stats(served()))
    assert as_json(outlook)["most_for_its_price"] == best
    text = as_text(outlook)
    assert ("x for 0.2 an hour" in text) == (large == 0.2)
    assert ("most for its price" in text) == (best is not None)
    assert best is None or f"; most for its price: {best}" in text


def test_predicted_imbalance_matches_the_planned_table():
    first = look_ahead(topology(), Snapshot.from_stats(served()))
    assert first.proposal is not None
    after = first.proposal.epoch.routes["counts"].table
    shares = np.array(first.proposal.epoch.source_shares)
    again = served(after)
    for report, share in zip(again["last_batch"]["source_reports"], shares, strict=True):
        report["rows"] = round(40_000 * share)
    again["routing"]["source_shares"] = shares.tolist()
    counts = as_json(look_ahead(topology(), Snapshot.from_stats(again)))["stages"][-1]
    assert counts["imbalance_before"] == pytest.approx(as_json(first)["stages"][-1]["imbalance_after"], abs=0.03)
    assert not counts["rerouted"]


def test_the_manifests_policy_and_settings_decide():
    fields = as_json(look_ahead(topology("fields"), Snapshot.from_stats(served())))
    assert [stage["name"] for stage in fields["stages"]] == [SOURCE]
    from_fields = as_json(look_ahead(topology("mixed"), Snapshot.from_stats(served(policy="fields"))))
    assert from_fields["stages"][-1]["rerouted"]
    tolerant = look_ahead(topology(rebalance={"tolerance": 1.0, "interval": "1s"}), Snapshot.from_stats(served(keys=40_000)))
    strict = look_ahead(topology(rebalance={"tolerance": 0.01, "interval": "1s"}), Snapshot.from_stats(served(keys=40_000)))
    assert as_json(tolerant)["stages"][-1]["imbalance_before"] == as_json(strict)["stages"][-1]["imbalance_before"]
    recommended = look_ahead(topology(rebalance={"mode": "Recommend"}), Snapshot.from_stats(served()))
    assert recommended.proposal is not None


def test_a_split_operator_keeps_its_halves():
    stats = served()
    routes = stats["routing"]["routes"]
    routes["counts.partial"] = {"policy": "partial-key", "table": None, "instances": [0, 1, 2, 3], "options": {}}
    routes["counts"]["policy"] = "fields"
    outlook = look_ahead(topology("mixed"), Snapshot.from_stats(stats))
    assert outlook.snapshot.routing.routes["counts"].policy == "fields"


def test_at_balance_nothing_is_done():
    equal = tuple(replace(slot, cpu=1.0) for slot in SLOTS)
    stats = served(keys=40_000)
    for report in stats["last_batch"]["reports"] + stats["last_batch"]["source_reports"]:
        seconds = report["rows"] * (COST if "operator" in report else 1e-6)
        report["busy_seconds"], report["task_seconds"] = seconds, seconds + 0.01
    stats["slots"] = [
        {"index": s.index, "executor": s.executor, "class": "large", "cpu": s.cpu, "present": True} for s in equal
    ]
    outlook = look_ahead(topology(), Snapshot.from_stats(stats))
    assert outlook.proposal is None
    assert "nothing would be re-routed: balanced" in as_text(outlook)
    assert "routing is not the bound: tasks take" in as_text(outlook)
    assert as_json(outlook)["bound"] in as_text(outlook)
    assert not any(stage["rerouted"] for stage in as_json(outlook)["stages"])


def test_the_command_reads_files_and_the_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    file, stats = tmp_path / "trips.yaml", tmp_path / "stats.json"
    file.write_text(json.dumps(given()))
    stats.write_text(json.dumps(served()))
    assert main(["plan", str(file), "--stats", str(stats), "--json", str(tmp_path / "new" / "plan.json")]) == 0
    text = capsys.readouterr().out
    assert "trips, epoch 3, batch 7, 600 ms" in text
    assert json.loads((tmp_path / "new" / "plan.json").read_text())["reroute"]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(served())))
    assert main(["plan", str(file), "--stats", "-"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({"format": 0}, "format 0, not 1"),
        ({"last_batch": None}, "has not committed a batch yet"),
        ({"routing": None}, "has not committed a batch yet"),
        ({"epoch": 2}, "epoch 3 has just begun"),
        ({"routing": {"format": 1}}, "the epoch does not hold: number is missing"),
        ({"routing": 1.5}, "the stats do not hold: routing is 1.5, not a JSON object"),
        (
            {"routing": {**served()["routing"], "source_shares": [10**400]}},
            r"epoch does not hold: source_shares\[0\] is 1000",
        ),
        ({"rows_per_second": 10**400}, "the stats do not hold: rows_per_second is 1000.*, not a finite number"),
        ({"epoch": float("inf")}, "the stats do not hold: epoch is inf, not a whole number"),
        (
            {"last_batch": {**served()["last_batch"], "reports": [7]}},
            r"the stats do not hold: last_batch.reports\[0\] is 7, not a JSON object",
        ),
        (
            {"last_batch": {**served()["last_batch"], "source_reports": ["x"]}},
            r"last_batch.source_reports\[0\] is 'x', not a JSON",
        ),
        ({"topology": "others"}, "of topology 'others', the manifest is of 'trips'"),
        ({"last_batch": {"seconds": 1}}, "the stats do not hold: last_batch.rows is missing"),
    ],
)
def test_stats_that_do_not_do_are_reported(changed: dict[str, Any], output: str):
    with pytest.raises(WrongUse, match=output):
        look_ahead(topology(), Snapshot.from_stats({**served(), **changed}))


def test_files_that_do_not_do_are_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, stats = tmp_path / "trips.yaml", tmp_path / "stats.json"
    file.write_text(json.dumps(given()))
    for text, output in ((None, "cannot read"), ("{", "is not JSON"), ("[]", "but not an object"), ("{}", "before 0.1.0")):
        if text is not None:
            stats.write_text(text)
        assert main(["plan", str(file), "--stats", str(stats)]) == 2
        assert output in capsys.readouterr().err


def test_operators_planned_together_are_reported_one_by_one():
    """Each key of `first` is followed by itself at `second`, whose table sends all keys one instance further."""
    uniform = RoutingTable.uniform(range(4))
    tables = {"first": uniform, "second": replace(uniform, buckets=(uniform.buckets + 1) % 4)}
    hashes = hash_int64(np.arange(400, dtype=np.int64))
    reports = []
    for operator, table in tables.items():
        for instance in range(4):
            mine = hashes[table.lookup(hashes) == instance]
            buckets = BucketRows.of_keys(mine, np.full(len(mine), 100), BUCKETS)
            pairs = {"second": KeyPairs.summed(mine, mine, np.full(len(mine), 100), 100 * len(mine))}
            report = LoadReport(operator, instance, instance, 100 * len(mine), 100 * len(mine) * COST, 1.0, bucket_rows=buckets)
            reports.append(replace(report, key_pairs=pairs if operator == "first" else {}))
    history = History("trips", SLOTS, {"first": "locality", "second": "locality"})
    history.batch_done(
        BatchOutcome(
            number=7,
            epoch=EPOCH,
            rows=40_000,
            seconds=2.0,
            committed_at=1_700_000_000.0,
            reports=tuple(reports),
            source_reports=(),
        )
    )
    routes = {name: Route("locality", table, (0, 1, 2, 3)) for name, table in tables.items()}
    stats = json.loads(json.dumps(build_stats(history, Standing(Epoch(EPOCH, routes, (), BY_TEST))), allow_nan=False))
    chain = given() | {"metadata": {"name": "trips"}}
    chain["spec"]["operators"] = [
        counting("first", policy="locality", **{"with": {"emit": "tuples"}}),
        counting("second", "locality", of="first"),
    ]
    chain["spec"]["sinks"] = []
    reported = as_json(look_ahead(parse(chain), Snapshot.from_stats(stats)))
    assert reported["reroute"]
    assert [stage["name"] for stage in reported["stages"]] == ["first", "second"]
    assert all("0% of the tuples stay on their server, planned 100%" in stage["reason"] for stage in reported["stages"])
    assert sum(stage["keys_moved"] for stage in reported["stages"]) >= 300
