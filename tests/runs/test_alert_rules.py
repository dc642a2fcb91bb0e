"""The chart's rules, judged by promtool: each alert fires in its case, alone, and none fires while nothing is wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[2] / "charts" / "streamtopology" / "files" / "rules.yaml"
ALERTS = set(re.findall(r"alert: StreamTopology(\w+)", RULES.read_text()))
FLOW = 'namespace="streams", topology="flow"'
OPERATOR, DRIVER = "streamtopology_operator_", "streamtopology_"


def condition(kind: str, reason: str) -> str:
    return f'{OPERATOR}condition{{condition="{kind}", reason="{reason}", {FLOW}}}'


def driver(name: str, labels: str = "") -> str:
    return f"{DRIVER}{name}{{{labels}{FLOW}}}"


MISSED = f"{OPERATOR}snapshots_missed{{{FLOW}}}"
# A series for each minute of eight hours, in promtool's notation: a + b x 480 is a, a + b, a + 2b ...
HEALTHY = {
    f"{OPERATOR}leading": "1x480",
    f"{OPERATOR}queue_length": "0x480",
    f'{OPERATOR}api_requests_total{{method="GET", code="200"}}': "0+60x480",
    condition("Ready", "Running"): "1x480",
    condition("Degraded", "AsExpected"): "0x480",
    condition("Stalled", "AsExpected"): "0x480",
    condition("Reconfiguring", "Settled"): "0x480",
    f"{OPERATOR}imbalance_ratio{{{FLOW}}}": "0.1x480",
    f'{OPERATOR}snapshots{{phase="Completed", {FLOW}}}': "3x480",
    MISSED: "0x30 1x480",
    driver("batches_total"): "0+12x480",
    driver("source_rows_total"): "0+60000x480",
    driver("rows_total", 'operator="sums", instance="0", '): "0+60000x480",
    driver("late_rows_total", 'operator="sums", '): "0x480",
    driver("bad_rows_total", 'operator="sums", '): "0x480",
    driver("running_batch_seconds"): "3x480",
    driver("lag_rows", 'source="rides", '): "500x480",
    driver("watermark_timestamp_seconds"): "1000+60x480",
}
RUNS = condition("Ready", "Running")
BEHIND = {driver("lag_rows", 'source="rides", '): "0+60000x480"}
SLOW = {f'{OPERATOR}reconcile_seconds_bucket{{outcome="done", le="{le}"}}': "0+10x480" for le in ("+Inf",)}
SLOW[f'{OPERATOR}reconcile_seconds_bucket{{outcome="done", le="10"}}'] = "0x480"
LONG = {f'{OPERATOR}time_to_reconfigure_seconds_bucket{{kind="Routing", le="{le}"}}': "0+1x480" for le in ("120", "+Inf")}
LONG[f'{OPERATOR}time_to_reconfigure_seconds_bucket{{kind="Routing", le="60"}}'] = "0x480"


def without(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


IDLE = {name: "7x480" for name in HEALTHY if "rows_total" in name or "batches" in name} | {
    driver("watermark_timestamp_seconds"): "1000x480",
    driver("lag_rows", 'source="rides", '): "0x480",
    driver("running_batch_seconds"): "0x480",
    f"{OPERATOR}imbalance_ratio{{{FLOW}}}": "0.9x480",
}
# Its driver is gone, and with it all that it served.
STOPPED = without(*(name for name in HEALTHY if not name.startswith(OPERATOR)), f"{OPERATOR}imbalance_ratio{{{FLOW}}}", RUNS)
# Whatever is wrong, and the driver's figures as they were.
TROUBLED = {
    condition("Degraded", "ExecutorsMissing"): "1x480",
    condition("Degraded", "AsExpected"): "",
    condition("Stalled", "ApplyRefused"): "1x480",
    driver("running_batch_seconds"): "0+60x480",
    f"{OPERATOR}imbalance_ratio{{{FLOW}}}": "0.9x480",
    **BEHIND,
    driver("watermark_timestamp_seconds"): "1000x480",
}


@dataclass(frozen=True)
class Case:
    """What differs from `HEALTHY` (an empty text: the series is not there), and the alerts that fire after `minutes`."""

    name: str
    series: Mapping[str, str]
    fires: set[str] = field(default_factory=set[str])
    minutes: int = 45


CASES = [
    Case("all is well", {}),
    Case("sources without rows", IDLE, minutes=400),
    Case("suspended", {**STOPPED, condition("Ready", "Suspended"): "1x480"}, minutes=400),
    Case("completed", {**STOPPED, condition("Ready", "Completed"): "1x480"}, minutes=400),
    Case("completed, and nothing was left as it should be", {**TROUBLED, RUNS: "", condition("Ready", "Completed"): "1x480"}),
    Case("finishes its batch to be suspended", {**TROUBLED, RUNS: "", condition("Ready", "Suspending"): "0x480"}),
    Case("paused", {**TROUBLED, RUNS: "0x480", condition("Reconfiguring", "Paused"): "0x480"}),
    Case("asleep", {**IDLE, RUNS: "", condition("Ready", "Asleep"): "1x480"}, minutes=400),
    Case("a new topology starts", {RUNS: "", condition("Ready", "DriverStarting"): "0x4 _x480"}, minutes=6),
    Case("no operator", {f"{OPERATOR}leading": "0x480"}, {"OperatorAway"}),
    Case("slow", SLOW, {"ReconcileSlow"}),
    Case("queue", {f"{OPERATOR}queue_length": "80x480"}, {"QueueLong"}),
    Case("API", {f'{OPERATOR}api_requests_total{{method="PATCH", code="none"}}': "0+20x480"}, {"ApiErrors"}),
    Case("refused", {f'{OPERATOR}reconcile_seconds_count{{outcome="refused"}}': "0+2x480"}, {"ReconcileFails"}),
    Case("not ready", {RUNS: "", condition("Ready", "DriverFailed"): "0x480"}, {"NotReady"}),
    Case("not ready, and known for long", {RUNS: "1x70 0x480"}, {"NotReady", "AvailabilityBudget"}, 85),
    Case("fails now and then", {RUNS: "1x70 0x3 1x2 0x3 1x2 0x3"}, {"AvailabilityBudget"}, 84),
    Case("stalled", {condition("Stalled", "ApplyRefused"): "1x480", condition("Stalled", "AsExpected"): ""}, {"Stalled"}),
    Case("degraded", {condition("Degraded", "ResizeRefused"): "1x480"}, {"Degraded"}),
    Case("degraded for a moment", {condition("Degraded", "ResizeRefused"): "1x10 _x480"}),
    Case("roll-out", {condition("Reconfiguring", "Upgrading"): "1x480"}, {"ChangeStuck"}, 90),
    Case("unbalanced", {f"{OPERATOR}imbalance_ratio{{{FLOW}}}": "0.9x480"}, {"Unbalanced"}),
    Case("re-routes", {driver("reroutings_total", 'operator="sums", reason="imbalance", '): "0+2x480"}, {"ReroutesTooOften"}),
    Case("changes take long", LONG, {"ReconfigureSlow"}),
    Case("one batch", {driver("running_batch_seconds"): "0+60x480"}, {"NoBatches"}),
    Case("falls behind", BEHIND, {"FallsBehind"}),
    Case("rows wait and none is read", {driver("source_rows_total"): "7x480"}, {"FallsBehind"}),
    Case("peaks", {driver("lag_rows", 'source="rides", '): "400000x5 0x10 " * 30}, {"FreshnessBudget"}, 376),
    Case("a source is silent", {driver("watermark_timestamp_seconds"): "1000x480"}, {"WatermarkStuck"}, 75),
    Case("late", {driver("late_rows_total", 'operator="sums", '): "0+6000x480"}, {"LateRows"}),
    Case("a few late rows", {driver("late_rows_total", 'operator="sums", '): "0+60x480"}),
    Case("skipped once", {driver("skipped_rows_total", 'source="rides", '): "_x40 7x480"}, {"SkippedRows"}),
    Case("skipped long ago", {driver("skipped_rows_total", 'source="rides", '): "7x480"}),
    Case("bad rows", {driver("bad_rows_total", 'operator="sums", '): "0x40 3x480"}, {"BadRows"}),
    Case("bad rows of a source", {driver("bad_rows_total", 'operator="rides", '): "_x40 3x480"}, {"BadRows"}),
    Case("snapshot failed", {f'{OPERATOR}snapshots{{phase="Failed", {FLOW}}}': "1x480"}, {"SnapshotFails"}),
    Case("snapshot waits", {f'{OPERATOR}snapshots{{phase="Pending", {FLOW}}}': "1x480"}, {"SnapshotStuck"}, 365),
    Case("no snapshot at two times of its schedule", {MISSED: "1x10 2x480"}, {"SnapshotOverdue"}),
    Case("a snapshot is under way", {MISSED: "5x480", f'{OPERATOR}snapshots{{phase="Running", {FLOW}}}': "1x480"}),
    Case("no driver's figures", {**STOPPED, RUNS: "1x480"}, {"NotScraped"}),
]


def as_promtool(case: Case) -> dict[str, object]:
    series = {name: values for name, values in {**HEALTHY, **case.series}.items() if values}
    fired = [{"labels": f'{{alertname="StreamTopology{name}"}}', "value": 1} for name in sorted(case.fires)]
    asked = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{case.minutes}m",
        "exp_samples": fired,
    }
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"name": case.name, "interval": "1m", "input_series": given, "promql_expr_test": [asked]}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("promtool")
    if command is None:
        pytest.fail("no promtool: scripts/prometheus-packages.sh installs it (Debian: apt-get install prometheus)")
    return subprocess.run([command, *arguments], capture_output=True, text=True, timeout=300, check=False)


def test_every_alert_fires_in_a_case_of_its_own():
    assert {name for case in CASES for name in case.fires} == ALERTS


def test_alerts_fire_in_their_cases_and_in_no_other(tmp_path: Path):
    cases = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [as_promtool(case) for case in CASES]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    judged = promtool("test", "rules", str(tmp_path / "cases.yaml"))
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_promtool_finds_nothing_to_say_about_the_rules():
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert checked.returncode == 0, checked.stdout + checked.stderr
