"""The story of an epoch: its reason, what was weighed, the predicted and the measured gain. A value, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamtopology.contract.formatting import count, duration, percent
from streamtopology.contract.reason_text import describe, stage_name
from streamtopology.contract.reasons import EpochReason, KeyMove, LinkMove, RemedyKind, Weighed, WeighedStage

AS_PREDICTED = (2 / 3, 4 / 3)
NO_GAIN = 0.01

_REMEDIES = {
    RemedyKind.SHARES: "in other shares",
    RemedyKind.TABLE: "by another table",
    RemedyKind.LOCALITY: "by tables for locality",
}


@dataclass(frozen=True)
class EpochStory:
    """One epoch. `batch`: the first under it, None where that is not known any more.

    `predicted_gain`, `measured_gain`: shares of a batch's time, None where there is none (yet). `taken_back_by`: the epoch
    that routes as before it.
    """

    epoch: int
    reason: EpochReason
    batch: int | None = None
    predicted_gain: float | None = None
    measured_gain: float | None = None
    taken_back_by: int | None = None


def helped(predicted: float, measured: float | None) -> str:
    """The measured gain against the predicted one, in words; empty where nothing was predicted."""
    if predicted <= 0:
        return ""
    if measured is None:
        return "being measured"
    least, most = AS_PREDICTED
    if measured < NO_GAIN:
        return "did not help"
    if measured < predicted * least:
        return "helped less than predicted"
    return "helped more than predicted" if measured > predicted * most else "helped as predicted"


def story_lines(story: EpochStory) -> tuple[str, ...]:
    """The story, a line for each of its parts; without full stops."""
    since = "" if story.batch is None else f", from batch {story.batch} on"
    weighed = () if story.reason.weighed is None else _weighed(story.reason.weighed)
    return (f"epoch {story.epoch}{since}: {describe(story.reason) or 'the manifest changed'}", *weighed, *_gain(story))


def _weighed(weighed: Weighed) -> Iterator[str]:
    if weighed.binding is not None:
        yield f"before it, {describe(weighed.binding)}"
    yield from (_stage(stage) for stage in weighed.stages)
    believed = f", {percent(weighed.trust)} of it believed" if percent(weighed.trust) != percent(1.0) else ""
    saves = "saves" if weighed.gain_seconds >= 0 else "loses"
    yield (
        f"{saves} {duration(abs(weighed.gain_seconds))} of a batch of {duration(weighed.batch_seconds)}, over "
        f"{weighed.batches:.0f} batches{believed}; costs {duration(weighed.cost_seconds)} once"
    )
    yield from (_key(move) for move in weighed.keys)
    yield from (_link(link) for link in weighed.links)


def _stage(stage: WeighedStage) -> str:
    routed = f"{_REMEDIES[stage.kind]} {duration(stage.planned_seconds)}"
    outcome = "taken"
    if not stage.taken:
        outcome = f"left, as less than {duration(stage.noise_seconds)} is noise"
    return f"{stage_name(stage.stage)}: kept as it was {duration(stage.keep_seconds)}, {routed}: {outcome}"


def _key(move: KeyMove) -> str:
    where = f"from instance {move.before} to {move.after}"
    return f"key {move.key} of {stage_name(move.stage)}, {count(move.rows)} rows a batch, moves {where}"


def _link(link: LinkMove) -> str:
    ends = f"{link.key} of {stage_name(link.stage)} and {link.next_key} of {stage_name(link.next_stage)}"
    return f"keys {ends}, {count(link.rows)} rows a batch, come to one server"


def _gain(story: EpochStory) -> Iterator[str]:
    back = f"taken back by epoch {story.taken_back_by}" if story.taken_back_by is not None else ""
    if story.predicted_gain is None and story.measured_gain is None:
        yield from filter(None, (back,))
        return
    measured = "not measured yet" if story.measured_gain is None else f"measured {percent(story.measured_gain)}"
    judged = helped(story.predicted_gain or 0.0, story.measured_gain) if story.measured_gain is not None else ""
    kept = back or ("kept" if story.measured_gain is not None else "")
    parts = (f"gain: predicted {percent(story.predicted_gain)}, {measured}", judged, kept)
    yield "; ".join(filter(None, parts))
