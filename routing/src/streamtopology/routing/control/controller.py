"""The control loop: observe batches, judge now and then, and re-route when that pays. Pure; the clock is passed in.

Measurements are noisy and every move costs, so a controller that follows each batch makes a stream slower. This one is
quiet at balance by four rules:

- It judges only every interval and over enough batches of the current epoch (few where it is glaringly out of balance).
  It judges out of turn if two batches are worse than those before by more than their noise: then something has changed,
  and only these two show what is now.
- It does nothing within the tolerance.
- After a re-routing an imbalance must be clear, or last.
- The seconds saved over the horizon must outweigh the cost.

It also checks itself. A re-routing that made batches slower is taken back. After predictions that failed, the next ones
count for less.

Stages (the source and each operator) are barriers: a batch waits for the slowest instance of each. So each stage is
balanced on its own, except for operators that are planned together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from streamtopology.contract.reasons import Binding, EpochReason, Hold, HoldReason
from streamtopology.routing.control.assessment import Assessment, worst
from streamtopology.routing.control.decisions import (
    Decision,
    Outcome,
    Proposal,
    RebalanceSettings,
    Recommend,
    Reroute,
    TopologyFacts,
)
from streamtopology.routing.control.next_epoch import next_epoch, with_remedies
from streamtopology.routing.control.observed import ObservedBatch
from streamtopology.routing.control.slot_model import SlotModel, estimate, settled_from
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.control.trials import Trial, Trials
from streamtopology.routing.control.weighing import Scales, contradicted
from streamtopology.routing.control.window import FEW_BATCHES, MIN_BATCHES, LoadSpan, Window, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch

# An imbalance beyond this is answered after `FEW_BATCHES`: no noise looks like it, and every batch under it is dear.
GLARING = 0.5

# Intervals over which a re-routing must earn its cost.
HORIZON_INTERVALS = 6


class Controller:
    """Feed it every committed batch with `observe`, ask it with `step`. It keeps a bounded window and does no I/O."""

    def __init__(self, settings: RebalanceSettings, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, monotonic; `settings` may be replaced while running by `configure`."""
        self._settings = settings
        self._clock = clock
        self._window = Window()
        self._scales = Scales()
        self._trials = Trials()
        self._first_of_epoch = -1
        self._judged_at = clock()
        self._has_changed = False  # what is judged now is judged out of turn, by the newest batches alone
        self._settling = False  # a change of capacity is believed once: judging the shortened window again would never end
        self._verdict: Hold | EpochReason | None = None
        self._imbalance: float | None = None

    @property
    def verdict(self) -> Hold | EpochReason | None:
        """The reason of the last judgement, which holds until the next one; None before the first."""
        return self._verdict

    @property
    def imbalance(self) -> float | None:
        """Of the worst stage at the last judgement, over its window; None before the first."""
        return self._imbalance

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The newest re-routings whose gain has been measured, in order."""
        return tuple(self._trials.outcomes)

    def configure(self, settings: RebalanceSettings) -> None:
        """Other settings from now on; what was observed stays."""
        self._settings = settings

    def observe(self, batch: ObservedBatch, after_others: bool = False) -> None:
        """Take note of a committed batch. The first of an epoch moves state or compiles: it is not judged by.

        `after_others`: it is the first that is observed here, but other batches have run under its epoch.
        """
        if not len(batch.timings):
            return
        is_first = self._first_of_epoch < batch.epoch
        self._first_of_epoch = max(self._first_of_epoch, batch.epoch)
        if is_first and not after_others:
            return
        self._window.add(WindowBatch.of(batch, self._clock(), self._settings.tolerance))
        if batch.batches:
            self._window.add_loads(LoadSpan(batch.number, batch.epoch, batch.batches, batch.loads), self._span_seconds)
        self._trials.measure(self._window)

    def model(self, facts: TopologyFacts) -> SlotModel | None:
        """The slots by what the window shows of them, since a rate changed if one did; None before the first batch."""
        timings = [batch.timings for batch in self._recent()]
        return estimate(timings[settled_from(timings) :], facts.declared_cpu) if timings else None

    def step(self, now: float, current: Epoch, facts: TopologyFacts) -> Decision:
        """Decide at time `now` under the epoch that batches run under; cheap when it is not time to judge."""
        due = self.begin(now, current, facts)
        if not isinstance(due, Assessment):
            return due
        quiet = due.if_quiet()
        return self.conclude(now, due, quiet if quiet is not None else due.remedies())

    def begin(self, now: float, current: Epoch, facts: TopologyFacts) -> Hold | Reroute | Assessment:
        """The first half of a step: a reason to wait, a re-routing to take back, or what is to be judged here or elsewhere."""
        taken_back = self._trials.take_back(current) if self._settings.mode == "Auto" else None
        if taken_back is not None:
            self._judged_at, self._verdict = now, taken_back.reason
            self._trials.begin(taken_back, now, None)
            return taken_back
        waiting = self._wait(now, current)
        if waiting is not None:
            return waiting
        if self._has_changed:
            self._window.begin_at_change()
        window = self._recent()
        if self._window.batches_under(current.number) < self._enough and not self._has_changed:
            return self._assess(window, current, facts, GLARING)
        if not self._settling and not self._has_changed and (start := settled_from([batch.timings for batch in window])):
            self._settling = True
            self._window.keep(len(window) - start)
            return Hold(HoldReason.CAPACITY_CHANGED)
        self._settling = False
        return self._assess(window, current, facts, self._settings.tolerance)

    def conclude(self, now: float, assessment: Assessment, judged: Mapping[str, Remedy]) -> Decision:
        """The second half of a step: the decision by the remedies of `assessment`."""
        current = assessment.current
        too_few = self._window.batches_under(current.number) < self._enough and not self._has_changed
        if too_few and worst(judged) <= GLARING:
            return self._too_few(current, self._enough)
        return self._decide(now, judged, assessment)

    def preview(self, current: Epoch, facts: TopologyFacts) -> tuple[Decision, Mapping[str, Remedy]]:
        """Return the decision on the observations, due or not, and the assessment of each stage."""
        window = self._recent()
        if not window:
            return Hold(HoldReason.NOTHING_OBSERVED), {}
        assessment = self._assess(window, current, facts, 0.0)
        judged = assessment.remedies()
        return self._weigh(judged, assessment), judged

    def binding(self, current: Epoch, facts: TopologyFacts) -> Binding | None:
        """Return the constraint that bounds the batches under `current`; None where none was observed."""
        window = self._recent()
        return self._assess(window, current, facts, 0.0).binding() if window else None

    def one_more(
        self, current: Epoch, facts: TopologyFacts, classes: Mapping[str, Sequence[int]], growing: Collection[str]
    ) -> Mapping[str, float]:
        """Return, by class of executors, how many times the rows/s there could be with one more of it; {} if unknown."""
        window = self._recent()
        return self._assess(window, current, facts, 0.0).one_more(classes, growing) if window else {}

    def fit_epoch(self, rescaled: Epoch, facts: TopologyFacts) -> Epoch:
        """`rescaled`, an epoch over other slots or instances than those observed, with the tables and shares that fit them.

        A slot that nothing was measured of counts by its declared CPU. What it costs is not weighed, as the change is
        wanted; only what is noticeably better is taken. Unless the mode is Auto, or where nothing was observed, the epoch
        stays as it is.
        """
        window = self._recent()
        if not window or self._settings.mode != "Auto":
            return rescaled
        judged = self._assess(window, rescaled, facts, 0.0).remedies()
        return with_remedies(rescaled, {name: remedy for name, remedy in judged.items() if remedy.is_noticeable})

    def _wait(self, now: float, current: Epoch) -> Hold | None:
        """The reason not to judge at this time; None if it is time."""
        settings = self._settings
        if settings.mode == "Off":
            return Hold(HoldReason.OFF)
        awaited = self._trials.awaited(current.number, now, self._horizon_seconds)
        if awaited is not None:
            return Hold(HoldReason.NOT_ACTIVE, epoch=awaited)
        due_seconds = self._judged_at + settings.interval_seconds * self._trials.patience - now
        is_new = self._window.has_worsened(current.number, settings.tolerance)
        self._has_changed = is_new and not self._trials.is_pending
        if self._has_changed:
            return None
        if due_seconds > 0:
            return Hold(HoldReason.NOT_DUE, due_seconds=due_seconds)
        few = FEW_BATCHES if self._trials.patience == 1 and not self._trials.is_pending else self._enough
        if self._window.batches_under(current.number) < few:
            return self._too_few(current, few)
        return None

    @property
    def _enough(self) -> int:
        """Batches under the current epoch before it is judged, unless it is glaringly out of balance."""
        return MIN_BATCHES * self._trials.patience

    def _too_few(self, current: Epoch, needed: int) -> Hold:
        seen = self._window.batches_under(current.number)
        return Hold(HoldReason.TOO_FEW_BATCHES, epoch=current.number, batches=seen, needed=needed)

    def _assess(self, window: Sequence[WindowBatch], current: Epoch, facts: TopologyFacts, bar: float) -> Assessment:
        return Assessment(
            window=tuple(window),
            spans=tuple(self._window.spans(window)),
            current=current,
            facts=facts,
            tolerance=self._settings.tolerance,
            max_entries=self._settings.max_table_entries,
            bar=bar,
            horizon_seconds=self._horizon_seconds,
        )

    def _weigh(self, judged: Mapping[str, Remedy], assessment: Assessment) -> Decision:
        """The next epoch, where one is worth its cost."""
        window, current, trust = assessment.window, assessment.current, self._trials.trust
        contradiction = contradicted(judged, [batch for batch in window if batch.epoch == current.number])
        if contradiction is not None:
            return contradiction
        usual, free = assessment.usual_seconds, assessment.facts.free_bytes
        found = self._scales.weigh(judged, self._settings.tolerance, usual, self._horizon_seconds, trust, free)
        if isinstance(found, Hold):
            return found
        plans = {name: plan for remedy in found.remedies.values() for name, plan in remedy.plans.items()}
        kind = Recommend if self._settings.mode == "Recommend" else Reroute
        weighed = found.weighed(judged, usual, trust, assessment.binding_if_quick())
        return kind(next_epoch(current, found.remedies, weighed), plans, found.gain_seconds, found.cost_seconds)

    def _decide(self, now: float, judged: Mapping[str, Remedy], assessment: Assessment) -> Decision:
        """Weigh, and remember the verdict and what is to be measured of it."""
        if not self._has_changed:  # what two batches showed is looked at again when that is due
            self._judged_at = now
        decision = self._weigh(judged, assessment)
        self._verdict = decision.reason if isinstance(decision, Proposal) else decision
        self._imbalance = max((remedy.imbalance for remedy in judged.values()), default=None)
        if isinstance(decision, Reroute):
            self._scales.rerouted(judged.keys())
            self._trials.begin(decision, now, Trial.of(decision, assessment.current, assessment.window))
        elif isinstance(decision, Hold):
            self._trials.regain_trust()
        return decision

    @property
    def _horizon_seconds(self) -> float:
        return HORIZON_INTERVALS * self._settings.interval_seconds

    def _recent(self) -> list[WindowBatch]:
        return self._window.recent(self._span_seconds)

    @property
    def _span_seconds(self) -> float:
        return self._settings.interval_seconds * self._settings.window_intervals
