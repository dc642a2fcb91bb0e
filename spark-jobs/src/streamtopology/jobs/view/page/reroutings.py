"""The re-routings on the page: for each epoch why it came, what it cost and what it brought, as sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamtopology.contract.epoch_story import EpochStory, helped, story_lines
from streamtopology.contract.formatting import counted, duration, percent, size
from streamtopology.contract.page import PageRerouting
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import SOURCE, EpochCause
from streamtopology.jobs.observe.epoch_stories import Change, by_epoch, epoch_stories
from streamtopology.jobs.observe.fair_share import RECENT_BATCHES, Loads, measure, recent_loads
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.speeds import changed_speeds
from streamtopology.jobs.view.formatting import shown_name
from streamtopology.jobs.view.page.figures import rounded

# Re-routings that the page lists, the newest.
MOST_REROUTINGS = 40

# Epochs, the newest, whose stories the page has.
MOST_STORIES = 16

# Batches of one epoch from which a change of speed is looked for.
_JUDGED_BATCHES = 10


def why(change: Change, before: Sequence[BatchOutcome], names: Mapping[int, str], tolerance: float) -> str:
    """The reason in a sentence with figures. `before`: the batches ahead of the epoch; `names`: executor by slot."""
    reason = change[0].reason
    same = [batch for batch in before if batch.epoch == before[-1].epoch]
    loads = recent_loads([measure(batch) for batch in same[-RECENT_BATCHES:]])
    if reason.cause is not EpochCause.REBALANCED or not loads.by_slot:
        text = describe(reason) or "the manifest changed"
        return f"{text[0].upper()}{text[1:]}."
    cause = "; ".join(filter(None, [_changed_speed(same, loads, names), _overload(loads, names, tolerance)]))
    return f"{cause or 'Loads had drifted apart'}; so {_effect(change)}."


def reroutings(history: History, reasons: Mapping[int, str]) -> tuple[tuple[PageRerouting, ...], int]:
    """The newest epochs with their `reasons`, oldest first, and the number of those before."""
    grouped = by_epoch(history.reconfigurations)
    listed = list(grouped.values())[-MOST_REROUTINGS:]
    at = {batch.number: batch.committed_at for batch in (*history.opening, *history.batches)}
    stories = {story.epoch: story for story in epoch_stories(history)[-MOST_STORIES:]}
    shown = tuple(
        _rerouting(change, reasons.get(change[0].epoch), at.get(change[0].batch), stories.get(change[0].epoch))
        for change in listed
    )
    return shown, len(grouped) - len(listed)


def _rerouting(change: Change, reason: str | None, at: float | None, story: EpochStory | None) -> PageRerouting:
    first = change[0]
    predicted = sum(one.predicted_gain for one in change)
    return PageRerouting(
        epoch=first.epoch,
        batch=first.batch,
        batches=max(one.batches for one in change),
        operators=tuple(one.operator for one in _affected(change)),
        why=reason or describe(first.reason),
        helped=helped(predicted, first.measured_gain),
        cost=_cost(change),
        keys_moved=sum(one.keys_moved for one in change),
        bytes_moved=sum(one.bytes_moved for one in change),
        predicted_gain=rounded(predicted),
        measured_gain=rounded(first.measured_gain),
        at=at,
        story=story_lines(story) if story is not None else (),
    )


def _changed_speed(batches: Sequence[BatchOutcome], loads: Loads, names: Mapping[int, str]) -> str:
    """A clause on the executor whose speed changed within these batches of one epoch."""
    if len(batches) < _JUDGED_BATCHES:
        return ""
    early = recent_loads([measure(batch) for batch in batches[1 : 1 + RECENT_BATCHES]])
    changed = {slot: times for slot, times in changed_speeds(early, loads).items() if slot in names}
    if not changed:
        return ""
    slot = max(changed, key=lambda one: (abs(loads.by_slot.get(one, 1.0) - 1), one))
    more = f", as {len(changed) - 1} more have" if len(changed) > 1 else ""
    if changed[slot] > 1:
        return f"{names[slot]} had become {changed[slot]:.1f} × as fast{more}"
    return f"{names[slot]} had fallen to {percent(changed[slot])} of its speed{more}"


def _overload(loads: Loads, names: Mapping[int, str], tolerance: float) -> str:
    """A clause on the most and the least loaded executor, if the first is beyond the tolerance."""
    by_slot = loads.by_slot
    worst, least = max(by_slot, key=lambda slot: by_slot[slot]), min(by_slot, key=lambda slot: by_slot[slot])
    if by_slot[worst] <= 1 + tolerance:
        return ""
    whole = sum(stage.fair_seconds for stage in loads.stages.values())
    name, other = names.get(worst, f"slot {worst}"), names.get(least, f"slot {least}")
    return (
        f"{name} needed {duration(by_slot[worst] * whole)} for its part of a batch, {by_slot[worst]:.1f} × its fair share, "
        f"and {other} only {duration(by_slot[least] * whole)}"
    )


def _affected(change: Change) -> Change:
    """Those that moved keys; if none did, those that changed shares of rows; else all."""
    moved = [one for one in change if one.keys_moved]
    return moved or [one for one in change if one.changes_shares or one.predicted_gain] or change


def _effect(change: Change) -> str:
    affected = _affected(change)
    names = ["the source" if one.operator == SOURCE else shown_name(one.operator) for one in affected]
    joined = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    keys = sum(one.keys_moved for one in affected)
    if keys:
        return f"{counted(keys, 'key', 'keys')} of {joined} changed owner"
    return f"the rows of {joined} are divided in other shares"


def _cost(change: Change) -> str:
    first, moved = change[0], sum(one.bytes_moved for one in change)
    batches = max(one.batches for one in change)
    over = "with one batch" if batches == 1 else f"over {batches} batches"
    state = f"{size(moved)} of state moved {over}" if moved else "No state moved"
    planned = f"planned in {duration(first.plan_seconds)}, in force {duration(first.published_to_active_seconds)} later"
    return f"{state}; {planned}."
