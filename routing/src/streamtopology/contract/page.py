"""All that the page of a running topology reads (docs/reference/page.md): its schema, its writer and its one reader.

Loads are relative to the fair share: 1 is the work of an executor when all finish together, in proportion to their
capacities. Figures have three digits; a figure that is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.contract.reasons import Documented
from streamtopology.contract.stats import BatchFigures, BatchSteps, NumberedBatch, RunFigures
from streamtopology.contract.wire_values import SPARSE, WireError, from_wire, to_wire

PAGE_FORMAT = 1

# Characters of a key that are passed on.
MOST_LABEL = 256

# Of the heaviest key of each executor.
MOST_SHORT_LABEL = 32


class PageFormatError(UnreadableData):
    """The answer is no value of a page, damaged, or of another version; the message says which, and what to do."""


class VerdictState(Documented):
    """The state of a run in one word."""

    GOOD = "good", "no executor holds the others up"
    WATCH = "watch", "a re-routing is under way"
    ACT = "act", "an executor holds the others up"
    WAIT = "wait", "nothing has been measured: the run starts, or had too few rows"


class NodeKind(Documented):
    """The kinds of a node of the graph."""

    SOURCE = "source", "a source"
    OPERATOR = "operator", "an operator"
    SINK = "sink", "a sink"


@dataclass(frozen=True)
class Verdict:
    """The state of the run as a sentence. `text`: two clauses, split at `; `. `since_batch`: the first batch of this state."""

    state: VerdictState
    text: str
    since_batch: int | None = None


@dataclass(frozen=True)
class PageExecutorClass:
    """The executors of one class that take part. `cpu`: cores of each."""

    name: str
    cpu: float
    executors: int


@dataclass(frozen=True)
class HeaviestKey:
    """The heaviest key of an executor. `label`: at most 32 characters; `share`: of the rows that it has of this operator."""

    operator: str
    label: str
    share: float


@dataclass(frozen=True)
class PageExecutor:
    """An executor that takes part. `cpu`: cores; `speed`: against the fastest, over all operators.

    `busy`: seconds a batch by stage, `loads`: load by stage, `load`: over all stages; medians of the newest batches.
    """

    slot: int
    name: str
    class_name: str
    cpu: float
    load: float | None
    speed: float | None
    loads: Mapping[str, float]
    busy: Mapping[str, float]
    state_bytes: int
    state_keys: int
    heaviest: HeaviestKey | None = None


@dataclass(frozen=True)
class Distribution:
    """The loads of many executors. `edges`: of the bins; the last bin has all above, too. `classes`: executors by bin.

    `quantiles`: least, 10 %, median, 90 %, most. `over`: executors above the tolerance, of `total`.
    """

    edges: tuple[float, ...]
    classes: Mapping[str, tuple[int, ...]]
    quantiles: tuple[float, ...]
    over: int
    total: int


@dataclass(frozen=True)
class PageNode:
    """A source, operator or sink. What only operators have is None or 0 elsewhere. `lag_rows`: waiting, of a Kafka source.

    `imbalance`: the highest load minus 1; `busy_share`: of all busy seconds; `limits`: most of them are here. `entries`: keys
    with a place of their own in the routing table. `late_rows`, `bad_rows`: of the whole run.
    """

    name: str
    kind: NodeKind
    format: str | None = None
    policy: str | None = None
    instances: int | None = None
    imbalance: float | None = None
    busy_share: float | None = None
    limits: bool = False
    entries: int = 0
    state_bytes: int = 0
    state_keys: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    lag_rows: int | None = None


@dataclass(frozen=True)
class PageEdge:
    """A connection of two nodes. `key`: the columns that route its rows; `stays`: the share that stays on its executor."""

    from_node: str
    to_node: str
    key: tuple[str, ...] = ()
    rows_per_second: float | None = None
    stays: float | None = None


@dataclass(frozen=True, kw_only=True)
class PageBatch(NumberedBatch):
    """One committed batch of the timeline. `bound`: rows/s that no routing can beat with the capacities measured then.

    `loads`: by slot number, or, of many executors, `spread`: least, 10 %, median, 90 %, most.
    """

    bound: float | None = None
    loads: Mapping[str, float] | None = None
    spread: tuple[float, ...] | None = None


@dataclass(frozen=True)
class PageRerouting:
    """A new epoch. `at`: seconds since 1970; `batches`: those that moved state. Gains: shares of a batch's time.

    `why`, `helped`, `cost`: sentences. `story`: as `streamtopology explain` prints it, line by line.
    """

    epoch: int
    batch: int
    batches: int
    operators: tuple[str, ...]
    why: str
    helped: str
    cost: str
    keys_moved: int
    bytes_moved: int
    predicted_gain: float
    measured_gain: float | None = None
    at: float | None = None
    story: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyOwner:
    """An executor that has rows of a key. `share`: of the key's rows."""

    slot: int
    executor: str
    share: float


@dataclass(frozen=True)
class PageKey:
    """A heavy key in the newest batch. `share`: of the operator's rows. `owned_by`: executors, of which `owners` has the first.

    `entry`: it has a place of its own in the routing table. `label`: at most 256 characters; `state_bytes`: an estimate.
    """

    operator: str
    hash: str
    label: str
    share: float
    rows_per_second: float | None
    owners: tuple[KeyOwner, ...]
    owned_by: int
    entry: bool
    state_bytes: int


@dataclass(frozen=True)
class KeySummary:
    """The weight of an operator's heaviest keys. `top`: their number, of `total` keys; `share`: of the operator's rows."""

    operator: str
    top: int
    total: int
    share: float


@dataclass(frozen=True)
class RunEvent:
    """Something a person should read: an executor lost, a plan not executed and why. `at`: seconds since 1970."""

    at: float
    batch: int
    text: str


@dataclass(frozen=True)
class PageCondition:
    """A condition of the resource, as `kubectl describe` shows it. `since`: seconds since 1970."""

    type: str
    status: str
    reason: str
    message: str
    since: float | None = None


@dataclass(frozen=True, kw_only=True)
class Page(RunFigures):
    """The value at one moment. `run`: of this driver process: batches of another one are forgotten. `now`: its clock.

    `mode`, `tolerance`: of `rebalance`. `slots`: executors that the topology has; those that take part are in `executors`,
    of many only the ten with the highest load. `running_seconds`: of the batch that runs now, `steps`: of the newest.
    `judgement`: the controller's reason to leave the routing as it is. `recommended`: what it would re-route if the mode
    were not Recommend. `watermark`: seconds since 1970. `namespace`, `conditions`: of the resource; a driver does not know
    them, `streamtopology ui` adds them. `batches`: those after the number asked for. `reroutings_before`: older ones that
    are not listed.
    """

    run: str
    now: float
    verdict: Verdict
    mode: str | None = None
    tolerance: float | None = None
    running_seconds: float | None = None
    judgement: str | None = None
    recommended: str | None = None
    watermark: float | None = None
    last_batch: BatchFigures | None = None
    steps: BatchSteps | None = field(default=None, metadata=SPARSE)
    stages: tuple[str, ...] = ()
    classes: tuple[PageExecutorClass, ...] = ()
    executors: tuple[PageExecutor, ...] = ()
    distribution: Distribution | None = None
    nodes: tuple[PageNode, ...] = ()
    edges: tuple[PageEdge, ...] = ()
    keys: tuple[PageKey, ...] = ()
    keys_of: tuple[KeySummary, ...] = ()
    reroutings: tuple[PageRerouting, ...] = ()
    reroutings_before: int = 0
    events: tuple[RunEvent, ...] = ()
    namespace: str | None = None
    conditions: tuple[PageCondition, ...] = ()
    batches: tuple[PageBatch, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The JSON value."""
        return {FORMAT: PAGE_FORMAT, **to_wire(self)}


def read_page(answer: object) -> Page:
    """Read the JSON value of an answer. PageFormatError."""
    if not isinstance(answer, dict):
        raise PageFormatError(f"the answer is {type(answer).__name__}, not a JSON object")
    wire = cast("Mapping[str, object]", answer)
    check_format(wire, PAGE_FORMAT, "this page", "show it with that version", PageFormatError)
    try:
        return from_wire(Page, wire)
    except WireError as wrong:
        raise PageFormatError(f"the page does not hold: {wrong}; pass on all that the driver serves at /page.json") from wrong
