"""Reasons are values: they travel, are rendered and documented, and no code reads the texts."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest
from support.compared_texts import compared_texts

from streamtopology.contract import conditions, reasons
from streamtopology.contract.conditions import BalancedReason, DegradedReason, EventReason, ReadyReason, ReconfiguringReason
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import (
    Binding,
    BindingKind,
    Choice,
    ChoiceReason,
    Documented,
    EpochCause,
    EpochReason,
    Hold,
    HoldReason,
    KeyMove,
    LinkMove,
    RemedyKind,
    ReroutingTrigger,
    ScalingReason,
    Sizing,
    StageReason,
    Weighed,
    WeighedStage,
)
from streamtopology.routing.epochs.epoch import Epoch

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/run/operations.md").read_text()
STAGES = (
    StageReason(RemedyKind.TABLE, "counts", 0.5, 0.02),
    StageReason(RemedyKind.SHARES, reasons.SOURCE, 0.3),
    StageReason(RemedyKind.LOCALITY, "first+second", 0.1, local_before=0.25, local_planned=1.0),
)
WEIGHED = Weighed(
    stages=(
        WeighedStage("counts", RemedyKind.TABLE, 1.3, 0.7, 0.05),
        WeighedStage("tail", RemedyKind.TABLE, 0.2, 0.19, 0.02, False),
    ),
    batch_seconds=2.0,
    gain_seconds=0.6,
    cost_seconds=0.4,
    batches=30.0,
    trust=0.5,
    binding=Binding(BindingKind.KEY, "counts", 1.27, 0.61, instance=1, key="00000000deadbeef", combinable=False),
    keys=(KeyMove("counts", "00000000deadbeef", 12_000.0, 3, 1),),
    links=(LinkMove("counts", "00000000deadbeef", "tail", "0000000000000007", 900.0),),
)
EPOCHS = [
    EpochReason(EpochCause.FIRST),
    EpochReason(EpochCause.REBALANCED, STAGES),
    EpochReason(EpochCause.REBALANCED, STAGES[:1], weighed=WEIGHED),
    EpochReason(EpochCause.APPLIED, changes=("operator tail: policy fields -> mixed", "é")),
    EpochReason(EpochCause.TAKEN_BACK, epoch=7, lost_seconds=0.25),
    EpochReason(EpochCause.RESTARTED),
    EpochReason(EpochCause.JOINED, slots=("large-0", "large-1")),
    EpochReason(EpochCause.DRAINED),
    EpochReason(EpochCause.WITHDRAWN, epoch=7),
    EpochReason.of_text("tail: imbalance 142.0%, planned 2.1%"),
]
# File -> the number of comparisons in it with a text that its words alone distinguish, and whose text that is.
FOREIGN = {
    "lab/src/streamtopology/lab/arena/peer.py": (1, "a traceback of another engine, in its log"),
    "spark-jobs/src/streamtopology/jobs/bucket.py": (2, "object_store's own text, shortened"),
    "spark-jobs/src/streamtopology/jobs/columnar/expressions.py": (1, "DuckDB's own text, which has no type"),
    "spark-jobs/src/streamtopology/jobs/local/stderr_filter.py": (1, "Python's own traceback"),
    "spark-jobs/src/streamtopology/jobs/runtime/spark_rows.py": (1, "Spark's own text, which has no type"),
    "spark-jobs/src/streamtopology/jobs/runtime/streaming_query.py": (2, "Spark's own text, which has no type"),
    "spark-jobs/src/streamtopology/jobs/spark/executor_watch.py": (1, "Spark's own text, which has no type"),
    "spark-jobs/src/streamtopology/jobs/spark/pinned_rdd.py": (1, "Spark's own text, which has no type"),
    "tests/routing/test_crd.py": (1, "the fields that the parser knows: it lists them in its message alone"),
}


@pytest.mark.parametrize("reason", EPOCHS, ids=lambda reason: reason.cause.value)
def test_reason_of_an_epoch_survives_the_wire(reason: EpochReason):
    assert EpochReason.from_text(reason.to_text()) == reason
    epoch = Epoch(3, {}, (), reason)
    assert Epoch.from_json(epoch.to_json()) == epoch


def test_every_cause_is_tried():
    assert {reason.cause for reason in EPOCHS} == set(EpochCause)


@pytest.mark.parametrize("text", ["the first epoch", "", "{", "[1]", "7", '{"cause": "of another program"}', '{"stages": []}'])
def test_epoch_of_another_program_keeps_its_text(text: str):
    """Written by another program, as a plan by hand."""
    wire = {**Epoch(3, {}, (), EpochReason(EpochCause.FIRST)).to_wire(), "reason": text}
    epoch = Epoch.from_wire(wire)
    assert epoch.reason == EpochReason(EpochCause.UNKNOWN, text=text)
    assert describe(epoch.reason) == text
    assert epoch.to_wire() == wire


def test_every_reason_has_a_text_of_one_line():
    every = chain(
        (Hold(reason, stages=("counts",)) for reason in HoldReason),
        EPOCHS,
        (Sizing(reason, 3) for reason in ScalingReason),
        (Sizing(ScalingReason.LOAD, 3, choice=Choice((("spot", 3),), reason, "spot", "large")) for reason in ChoiceReason),
    )
    texts = [describe(reason) for reason in every]
    assert len(set(texts)) == len(texts)
    assert all(text and "\n" not in text and not text.endswith(".") for text in texts)


def test_figures_are_in_the_text():
    cost = describe(Hold(HoldReason.NOT_WORTH_COST, gain_seconds=0.012, batches=30, cost_seconds=0.42))
    assert cost.endswith("saves 0.012 s a batch over 30 batches, costs 0.42 s")
    assert describe(EPOCHS[1]) == (
        "counts: imbalance 50.0%, planned 2.0%; source: shares by measured capacity, imbalance 30.0%; "
        "first+second: 25% of the tuples stay on their server, planned 100%; imbalance 10.0%"
    )
    load = Sizing(ScalingReason.AT_MAXIMUM, 20, 26, 18, 1.0, 0.7, lag_rows=130_000, lag_seconds=130)
    assert describe(load) == (
        "20 executors: busy 100% of the measured capacity of 18 executors, 130000 rows behind (130 s), target 70%, "
        "26 would be needed: held at maxReplicas"
    )


def test_every_member_has_one_line_of_documentation():
    kinds = [kind for module in (reasons, conditions) for kind in vars(module).values() if isinstance(kind, type)]
    members = [member for kind in kinds if issubclass(kind, Documented) for member in kind]
    assert len(members) > 50
    assert all(member.meaning and "\n" not in member.meaning for member in members)


@pytest.mark.parametrize(
    ("heading", "kind"), [("### Ready", ReadyReason), ("### Balanced", BalancedReason), ("### Degraded", DegradedReason)]
)
def test_table_of_reasons_has_those_of_the_enum(heading: str, kind: type[Documented]):
    rows = [line for line in _section(heading).splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])} == {member.value for member in kind}


def test_page_names_every_kind_of_change_and_every_event():
    changes = set(re.findall(r"`([A-Z]\w+)`", _section("### Reconfiguring")))
    assert changes == {reason.value for reason in ReconfiguringReason}
    rows = [line for line in _section("## Events").splitlines() if line.startswith("| `")]
    events = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    known = chain(EventReason, ReconfiguringReason, BalancedReason)
    assert {reason.value for reason in EventReason} <= events <= {reason.value for reason in known}


@pytest.mark.parametrize("page", ["docs/run/operations.md", "docs/reference/stats.md"])
def test_pages_name_the_labels_of_reroutings(page: str):
    (row,) = [line for line in (ROOT / page).read_text().splitlines() if "reroutings_total`" in line]
    assert all(f"`{trigger.value}`" in row for trigger in ReroutingTrigger)


def test_alert_counts_the_reroutings_of_an_operator_of_the_release_before():
    """Its epochs state their reason as a text alone, which is of an unknown cause."""
    rules = (ROOT / "charts/streamtopology/files/rules.yaml").read_text()
    (counted,) = re.findall(r'streamtopology_reroutings_total{reason=~"([^"]+)"}', rules)
    by_controller = {EpochCause.REBALANCED, EpochReason.from_text("tail: imbalance 142.0%, planned 2.1%").cause}
    assert set(counted.split("|")) == {cause.trigger.value for cause in by_controller}


def _compared(package: str, *, of_tests: bool) -> dict[str, list[str]]:
    """File -> the comparisons of texts in it."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for line, code in compared_texts(path.read_text(), of_tests=of_tests):
            found.setdefault(str(path.relative_to(ROOT)), []).append(f"{line}: {code}")
    return found


def test_no_code_compares_sentences_and_no_test_decides_by_one():
    """A test may assert a text: there the text is under test."""
    found = _compared("tests", of_tests=True)
    for package in ("routing", "operator", "spark-jobs", "lab"):
        found |= _compared(f"{package}/src", of_tests=False)
    assert {path: lines for path, lines in found.items() if len(lines) != FOREIGN.get(path, (0, ""))[0]} == {}
    assert FOREIGN.keys() <= found.keys(), "an exception that nothing needs"


@pytest.mark.parametrize(
    "code",
    [
        'verdict.startswith("not worth it")',
        '"no plan is noticeably better" in verdict',
        '"imbalance" in (decision.reason or "").lower()',
        'judgement.reason.startswith(("the next judgement", "1 of"))',
        '[c for c in found if "stay on their server" in change.reason]',
        'decision.reason == "not worth it"',
        '"not worth it" == decision.reason',
        're.match("not worth", decision.reason)',
        '[error, text if text.startswith("source ") else ""]',
        'message.startswith(f"epoch {epoch} runs since")',
        '"is missing" in str(error)',
        '"is missing" in problem.problems[0].detail',
        'line.endswith("is missing")',
        'PREFIX = "the driver"\nstatus["message"].startswith(PREFIX)',
    ],
)
def test_comparison_of_a_sentence_is_found(code: str):
    assert len(list(compared_texts(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        'reason in ("Rerouted", "GainMeasured")',
        'reason == "EpochRefused"',
        '"EpochRefused" in reasons',
        '"EpochRefused" in topologies.reasons("flow")',
        'line.startswith("Pss:")',
        'line.split(": ")',
        'text in ("earliest", "latest")',
        "describe(reason) == describe(other)",
    ],
)
def test_comparison_of_an_identifier_is_no_finding(code: str):
    assert list(compared_texts(code)) == []


def _section(heading: str) -> str:
    """The text under a heading, up to the next one."""
    rest = OPERATIONS[OPERATIONS.index(heading) + len(heading) :]
    return re.split(r"\n#+ ", rest)[0]
