"""Prometheus metrics: real names and units, and every batch, row and moved key counted exactly once."""

from __future__ import annotations

import threading
from dataclasses import replace
from importlib.metadata import version

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.histories import BY_CAPACITY, CAPACITIES, HASHED, SLOTS, load_report, outcome, reconfiguration, run, sent_on

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.contract.stats import Messages, Slot
from streamtopology.jobs.observe.figures import imbalance
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.routing.load.load_report import SourceReport

PROMISED = {
    "streamtopology_batches_total": set(),
    "streamtopology_source_rows_total": set(),
    "streamtopology_rows_total": {"operator", "instance"},
    "streamtopology_batch_seconds_bucket": {"le"},
    "streamtopology_busy_seconds_total": {"class"},
    "streamtopology_instance_busy_seconds": {"operator", "instance"},
    "streamtopology_instance_capacity_rows_per_second": {"operator", "instance"},
    "streamtopology_imbalance_ratio": {"operator"},
    "streamtopology_epoch": set(),
    "streamtopology_reroutings_total": {"operator", "reason"},
    "streamtopology_keys_moved_total": {"operator"},
    "streamtopology_bytes_moved_total": {"operator"},
    "streamtopology_time_to_reconfigure_seconds_bucket": {"le"},
    "streamtopology_late_rows_total": {"operator"},
    "streamtopology_bad_rows_total": {"operator"},
    "streamtopology_state_bytes": {"operator", "instance"},
    "streamtopology_state_keys": {"operator", "instance"},
    "streamtopology_executors": {"class"},
    "streamtopology_rows_away_total": {"operator"},
    "streamtopology_parts_merged_total": {"operator"},
}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"streamtopology_{name}", labels)


def test_every_promised_metric_is_exposed_with_its_labels_and_a_help_text():
    metrics = Metrics(run(10, reroute_at=5))
    families = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    exposed = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    assert {name: exposed.get(name) for name in PROMISED} == PROMISED
    assert all(family.documentation for family in families)


class Interrupted(History):
    """While the first listener after `interrupt` asks for batches, another thread has an event."""

    other: threading.Thread | None = None

    def interrupt(self) -> None:
        self.other = threading.Thread(target=self.event, args=(0.0, 0, "an executor is lost"))

    def batches_since(self, seen: int) -> tuple[int, tuple[BatchOutcome, ...]]:
        answer = super().batches_since(seen)
        if self.other and not self.other.ident:
            self.other.start()
            self.other.join(0.2)  # it ends only if nothing makes it wait for its turn
        return answer


def test_a_batch_counts_once_while_another_thread_has_an_event():
    history = Interrupted("flights", SLOTS, {})
    metrics = Metrics(history)
    history.interrupt()
    history.batch_done(outcome(0, {"counts": HASHED}))
    assert history.other
    history.other.join()
    assert value(metrics, "batches_total") == 1


@settings(max_examples=20)
@given(before=st.integers(0, 4), after=st.integers(0, 4), events=st.integers(0, 3))
def test_batches_and_rows_are_counted_once_whenever_the_listening_began(before, after, events):
    history = run(before)
    metrics = Metrics(history)
    for number in range(before, before + after):
        history.batch_done(outcome(number, {"tail": HASHED}))
        for _ in range(events):  # changes of other kinds must not count a batch again
            history.event(0.0, number, "something")
    batches = before + after
    assert value(metrics, "batches_total") == batches
    assert value(metrics, "source_rows_total") == 40_000 * batches
    assert value(metrics, "batch_seconds_count") == batches
    rows = [value(metrics, "rows_total", operator="tail", instance=str(i)) or 0 for i in range(4)]
    assert rows == [40_000 * batches * share for share in HASHED]


def test_gauges_say_what_the_last_batch_did():
    history = run(3)
    history.batch_done(outcome(3, {"tail": BY_CAPACITY}, epoch=7))
    metrics = Metrics(history)
    assert value(metrics, "epoch") == 7
    assert value(metrics, "imbalance_ratio", operator="tail") == imbalance(history.batches[-1], "tail")
    for instance, report in enumerate(history.batches[-1].reports):
        labels = {"operator": "tail", "instance": str(instance)}
        assert value(metrics, "instance_busy_seconds", **labels) == report.busy_seconds
        assert value(metrics, "instance_capacity_rows_per_second", **labels) == CAPACITIES[instance]
        assert value(metrics, "state_bytes", **labels) == report.state_bytes
        assert value(metrics, "state_keys", **labels) == report.state_keys
    for slot in SLOTS:
        assert value(metrics, "executor_load_ratio", executor=slot.executor) == pytest.approx(1.0, rel=0.02)
    assert value(metrics, "executors", **{"class": "large"}) == 3
    assert value(metrics, "executors", **{"class": "small"}) == 1


def test_load_of_a_slow_executor_is_against_its_fair_share_and_goes_with_it():
    history = run(3)
    metrics = Metrics(history)
    source = 0.05 * 4  # of all four, as long as the fair share of reading
    fair = 40_000 / sum(CAPACITIES) + source / 4
    assert value(metrics, "executor_load_ratio", executor="small-0") == pytest.approx(
        (40_000 * HASHED[3] / CAPACITIES[3] + source / 4) / fair, rel=0.01
    )
    history.slots_are([replace(slot, present=slot.executor != "small-0") for slot in SLOTS])
    history.batch_done(outcome(3, {"tail": HASHED[:3]}))
    assert value(metrics, "executor_load_ratio", executor="small-0") is None


def test_an_instance_that_was_drained_has_no_gauges_any_more_but_keeps_its_count():
    history = run(1)
    metrics = Metrics(history)
    history.batch_done(outcome(1, {"tail": HASHED[:3]}))
    drained = {"operator": "tail", "instance": "3"}
    for gauge in ("instance_busy_seconds", "state_bytes", "state_keys", "instance_capacity_rows_per_second"):
        assert value(metrics, gauge, **drained) is None
    assert value(metrics, "rows_total", **drained) == 40_000 * HASHED[3]


def test_a_rerouting_is_counted_once_also_when_its_gain_is_filled_in_later():
    history = run(3)
    metrics = Metrics(history)
    history.rerouted(reconfiguration(epoch=2, batch=3))
    history.gain_measured(2, 0.4)
    history.rerouted(
        reconfiguration(epoch=3, batch=4, reason=EpochReason(EpochCause.APPLIED, changes=("operator tail: policy",)))
    )
    assert value(metrics, "reroutings_total", operator="tail", reason="imbalance") == 1
    assert value(metrics, "reroutings_total", operator="tail", reason="applied") == 1
    assert value(metrics, "keys_moved_total", operator="tail") == 824
    assert value(metrics, "bytes_moved_total", operator="tail") == 2_400_000
    assert value(metrics, "time_to_reconfigure_seconds_count") == 2


def test_rows_ahead_of_the_clock_add_up_by_source():
    history = run(0)
    metrics = Metrics(history)
    for number in range(2):
        sources = tuple(SourceReport(slot, 10, 0.1, 0.1, rows_ahead={"rides": 2}) for slot in range(3))
        history.batch_done(
            BatchOutcome(number=number, epoch=1, rows=30, seconds=0.5, committed_at=0.0, reports=(), source_reports=sources)
        )
    assert value(metrics, "rows_ahead_total", source="rides") == 12


def test_late_and_bad_rows_add_up_over_instances_and_batches():
    history = run(0)
    metrics = Metrics(history)
    for number in range(2):
        reports = tuple(load_report("tail", i, 10, 0.1, late_rows=i, bad_rows=1) for i in range(3))
        history.batch_done(
            BatchOutcome(number=number, epoch=1, rows=30, seconds=0.5, committed_at=0.0, reports=reports, source_reports=())
        )
    assert value(metrics, "late_rows_total", operator="tail") == 6
    assert value(metrics, "bad_rows_total", operator="tail") == 6


def test_divided_keys_are_counted_by_operator_where_routers_pour():
    history = History("flights", SLOTS, {"tail": "auto", "others": "mixed"})
    metrics = Metrics(history)
    for number in range(2):
        batch = outcome(number, {"tail": HASHED, "others": HASHED})
        parts = [replace(report, rows_away=50, parts_merged=3 * number) for report in batch.reports]
        history.batch_done(replace(batch, reports=tuple(parts)))
    assert value(metrics, "rows_away_total", operator="tail") == 2 * 4 * 50
    assert value(metrics, "parts_merged_total", operator="tail") == 4 * 3
    assert value(metrics, "divided_keys", operator="tail") == 1
    assert value(metrics, "divided_keys", operator="others") is None
    history.policies = {"tail": "mixed", "others": "mixed"}
    history.batch_done(outcome(2, {"tail": HASHED, "others": HASHED}))
    assert value(metrics, "divided_keys", operator="tail") is None


def test_rows_that_a_source_skipped_add_up_over_tasks_and_batches():
    history = run(0)
    metrics = Metrics(history)
    for number in range(2):
        reports = tuple(SourceReport(slot, 0, 0.1, 0.1, skipped_rows={"clicks": 3}) for slot in range(2))
        history.batch_done(
            BatchOutcome(number=number, epoch=1, rows=0, seconds=0.5, committed_at=0.0, reports=(), source_reports=reports)
        )
    assert value(metrics, "skipped_rows_total", source="clicks") == 12


def test_reports_to_choosers_add_up_and_locality_is_that_of_the_last_batch():
    history = run(0)
    metrics = Metrics(history)
    for number, stayed in enumerate((1, 3)):
        history.batch_done(sent_on(number, stayed, messages={"tail": Messages("tail", 4, 1000)}))
    assert value(metrics, "messages_total", operator="tail") == 8
    assert value(metrics, "message_bytes_total", operator="tail") == 2000
    assert value(metrics, "locality_ratio", operator="tail", to="next") == 0.3
    stats = build_stats(history)["last_batch"]
    assert stats["messages"] == [{"operator": "tail", "count": 4, "bytes": 1000}]
    assert stats["locality"] == [{"operator": "tail", "to": "next", "share": 0.3}]


def test_busy_seconds_of_a_class_are_those_of_its_executors_reading_included():
    """The input of an autoscaler of one class: seconds of others would have it ask for too many."""
    history = run(2)
    metrics = Metrics(history)
    for class_name, slots in (("large", {0, 1, 2}), ("small", {3})):
        reports = [r for batch in history.batches for r in (*batch.reports, *batch.source_reports) if r.slot in slots]
        busy = value(metrics, "busy_seconds_total", **{"class": class_name})
        assert busy == pytest.approx(sum(report.busy_seconds for report in reports))


def test_rows_that_spark_reads_itself_are_no_classs_work():
    history = run(1)
    before = value(Metrics(history), "busy_seconds_total", **{"class": "large"})
    last = history.batches[-1]
    history.batch_done(replace(last, number=1, reports=(), source_reports=(replace(last.source_reports[0], slot=-1),)))
    assert value(Metrics(history), "busy_seconds_total", **{"class": "large"}) == before


def test_two_runs_in_one_process_do_not_share_their_metrics():
    one, other = Metrics(run(2)), Metrics(History("words", SLOTS, {}))
    assert value(one, "batches_total") == 2
    assert value(other, "batches_total") == 0


def test_executors_that_come_and_go_are_counted_as_they_do():
    history = run(1)
    metrics = Metrics(history)
    history.slots_are([*SLOTS[:3], replace(SLOTS[3], present=False), Slot(4, "large-3", "large", 1.0)])
    assert value(metrics, "executors", **{"class": "large"}) == 4
    assert value(metrics, "executors", **{"class": "small"}) == 0
    stats = build_stats(history)
    assert [slot["executor"] for slot in stats["slots"] if slot["present"]] == ["large-0", "large-1", "large-2", "large-3"]


def test_what_waits_is_asked_for_at_each_scrape():
    standing = Standing(lag={"rides": 500, "fares": None}, watermark=1000.0)
    metrics = Metrics(run(1), lambda: standing)
    assert value(metrics, "lag_rows", source="rides") == 500
    assert value(metrics, "lag_rows", source="fares") is None, "no broker answers: nobody knows"
    assert value(metrics, "watermark_timestamp_seconds") == 1000
    standing = Standing(lag={"rides": 0}, watermark=1060.0)
    assert value(metrics, "lag_rows", source="rides") == 0
    assert value(metrics, "watermark_timestamp_seconds") == 1060


def test_run_without_kafka_and_event_time_has_neither_lag_nor_watermark():
    metrics = Metrics(run(1))
    served = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    assert served & {"streamtopology_lag_rows", "streamtopology_watermark_timestamp_seconds"} == set()
    assert value(metrics, "build_info", version=version("streamtopology")) == 1


def test_present_batch_has_its_seconds_and_no_batch_has_none():
    now = 100.0
    history = History("flights", SLOTS, {}, clock=lambda: now)
    metrics = Metrics(history)
    assert value(metrics, "running_batch_seconds") == 0
    history.batch_begins(0, 10)
    now = 1100.0
    assert value(metrics, "running_batch_seconds") == 1000
    history.batch_done(outcome(0, {"tail": HASHED}))
    assert value(metrics, "running_batch_seconds") == 0
