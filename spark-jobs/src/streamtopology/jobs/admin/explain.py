"""`streamtopology explain`: the story of an epoch of a running topology, by what its driver serves at `/stats`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamtopology.contract.divided_key import DividedKey
from streamtopology.contract.epoch_story import EpochStory, story_lines
from streamtopology.contract.stats import Stats, StatsFormatError, read_stats
from streamtopology.contract.wire_values import to_wire
from streamtopology.jobs.admin.ask_cluster import ClusterDriver
from streamtopology.jobs.admin.find_run import AskDriver, Where, asking_url, find_run
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import the_running

# The number of a batch after which there are none.
_NO_BATCHES = 10**17

_STATS = "/stats"


def explain(name: str | None, where: Where, epoch: int | None, as_json: bool) -> int:
    """Print the story of `epoch` (default: the newest) of the topology at an address, or of this name; returns 0."""
    if name is None and where.only_cluster:
        raise WrongUse("name the topology: streamtopology explain NAME; only on this machine is it found without")
    asking = _asking(name or the_running(), where)
    try:
        stats = read_stats(asking(_NO_BATCHES))
    except StatsFormatError as wrong:
        raise WrongUse(str(wrong)) from wrong
    story = story_of(stats, epoch)
    if isinstance(asking, ClusterDriver):
        story = with_gain(story, asking.measured_gains())
    keys = divided_now(stats, story)
    value, text = as_value(stats.topology, story, keys), as_text(stats.topology, story, keys)
    print(json.dumps(value, indent=2, allow_nan=False) if as_json else text)
    return 0


def story_of(stats: Stats, epoch: int | None) -> EpochStory:
    """The story of this epoch, or of the newest one. WrongUse: the driver does not have it."""
    by_number = {story.epoch: story for story in stats.epochs}
    if not by_number:
        raise WrongUse(f"topology {stats.topology!r} has not committed a batch yet: ask again later")
    if epoch is not None and epoch not in by_number:
        known = ", ".join(map(str, by_number))
        raise WrongUse(f"epoch {epoch} is not among those that the driver of {stats.topology!r} remembers: {known}")
    return by_number[max(by_number) if epoch is None else epoch]


def with_gain(story: EpochStory, measured: Mapping[int, float]) -> EpochStory:
    """The story with the gain that the operator has `measured` of an epoch of its own, by epoch."""
    if story.measured_gain is not None:
        return story
    return replace(story, measured_gain=measured.get(story.epoch))


def divided_now(stats: Stats, story: EpochStory) -> Sequence[DividedKey]:
    """The heaviest keys that routers divide now; none if the story is of an earlier epoch."""
    return stats.divided_keys if story.epoch == max(known.epoch for known in stats.epochs) else ()


def as_text(topology: str, story: EpochStory, divided: Sequence[DividedKey] = ()) -> str:
    """The topology, then the lines of the story and of the keys `divided` now; all but the first are indented."""
    first, *others = _lines(story, divided)
    return "\n".join([f"{topology}, {first}", *(f"  {line}" for line in others)])


def as_value(topology: str, story: EpochStory, divided: Sequence[DividedKey] = ()) -> dict[str, Any]:
    """The story as `--json` prints it: as `/stats` has it, with its topology, the keys `divided` now, and its text."""
    keys = {"divided_keys": [to_wire(key) for key in divided]} if divided else {}
    return {"topology": topology, **to_wire(story), **keys, "text": list(_lines(story, divided))}


def _lines(story: EpochStory, divided: Sequence[DividedKey]) -> tuple[str, ...]:
    return (*story_lines(story), *(f"now {key.text}" for key in divided))


def _asking(name: str, where: Where) -> AskDriver:
    if name.startswith(("http://", "https://")):
        return asking_url(f"{name.rstrip('/').removesuffix(_STATS)}{_STATS}")
    return find_run(name, where)
