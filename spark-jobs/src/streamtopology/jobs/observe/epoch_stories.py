"""The stories of a run's epochs, from its history. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamtopology.contract.epoch_story import EpochStory
from streamtopology.contract.reasons import EpochCause
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.history import History
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.key_label import with_labels

# All re-routings of one epoch.
Change = Sequence[Rerouting]


def by_epoch(changes: Sequence[Rerouting]) -> Mapping[int, Change]:
    """Epoch -> its re-routings, oldest first."""
    grouped: dict[int, list[Rerouting]] = {}
    for change in changes:
        grouped.setdefault(change.epoch, []).append(change)
    return grouped


def epoch_stories(history: History, current: Epoch | None = None) -> tuple[EpochStory, ...]:
    """The stories of the epochs that the history has, oldest first, and of `current`, which may be of before it."""
    grouped = by_epoch(history.reconfigurations)
    taken_back = {
        change[0].reason.epoch: epoch for epoch, change in grouped.items() if change[0].reason.cause is EpochCause.TAKEN_BACK
    }
    stories = [_story(change, taken_back.get(epoch)) for epoch, change in grouped.items()]
    if current is not None and current.number not in grouped:
        reports = history.last.reports if history.last is not None else ()
        stories.append(EpochStory(current.number, with_labels(current.reason, reports)))
    return tuple(sorted(stories, key=lambda story: story.epoch))


def _story(change: Change, taken_back_by: int | None) -> EpochStory:
    """Of an epoch of the operator's the driver has no prediction of its own: it is in what was weighed."""
    first, weighed = change[0], change[0].reason.weighed
    predicted = sum(one.predicted_gain for one in change)
    if not predicted and weighed is not None and weighed.batch_seconds > 0:
        predicted = weighed.gain_seconds / weighed.batch_seconds
    return EpochStory(first.epoch, first.reason, first.batch, predicted or None, first.measured_gain, taken_back_by)
