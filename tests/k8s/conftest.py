"""A topology that runs, without a cluster."""

from __future__ import annotations

import pytest
from support.operator_world import World, manifest


@pytest.fixture
def world() -> World:
    """A topology that runs and has settled."""
    world = World(manifest())
    world.settle()
    world.events.clear()
    return world
