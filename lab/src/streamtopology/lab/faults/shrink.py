"""A failing story made shorter: faults, events, operators and files are left out as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from streamtopology.lab.faults.story import Story

MOST_TRIES = 120


def shrunk(story: Story, fails: Callable[[Story], bool], tries: int = MOST_TRIES) -> Story:
    """The shortest story found that still `fails`, after at most `tries` plays."""
    left = tries
    is_shorter = True
    while is_shorter and left:
        is_shorter = False
        for shorter in _shorter(story):
            if not left:
                break
            left -= 1
            if fails(shorter):
                story, is_shorter = shorter, True
                break
    return story


def _shorter(story: Story) -> Iterator[Story]:
    """Shorter stories, those first that leave out most."""
    for name in story.shape.operators:
        if len(story.shape.operators) > 1:
            yield replace(story, shape=story.shape.of({*story.shape.operators} - {name}))
    for many in (len(story.files) // 2, len(story.files) // 4, 1):
        if 0 < many < len(story.files):
            yield replace(story, files=story.files[:-many])
    for size in (8, 4, 2, 1):
        for start in range(0, len(story.faults), size):
            if size <= len(story.faults):
                yield story.without(faults=frozenset(range(start, start + size)))
        for start in range(0, len(story.events), size):
            if size <= len(story.events):
                yield story.without(events=frozenset(range(start, start + size)))
    if story.switching:
        yield replace(story, switching=0.0)
    if story.contested:
        yield replace(story, contested="")
