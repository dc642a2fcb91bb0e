"""The keys and links that make most of a plan's difference, as its epoch carries them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import KeyMove, LinkMove
from streamtopology.routing.planners.joint import JointPlanInput
from streamtopology.routing.planners.plan import Hashes, Plan, PlanInput

# Keys, and links, that an epoch names.
MOST_MOVES = 3


def heaviest_moves(stage: str, given: PlanInput, plan: Plan) -> tuple[KeyMove, ...]:
    """The keys with most work among those that change their owner by `plan`, heaviest first."""
    before, after = given.current.lookup(given.key_hashes), plan.table.lookup(given.key_hashes)
    heaviest = _largest(given.key_loads, before != after)
    keys, rows = given.key_hashes, given.key_loads
    return tuple(KeyMove(stage, _key(keys, at), float(rows[at]), int(before[at]), int(after[at])) for at in heaviest)


def heaviest_links(given: JointPlanInput, plans: Mapping[str, Plan]) -> tuple[LinkMove, ...]:
    """The links with most rows among those whose two keys come to one server by `plans`, heaviest first."""
    found: list[LinkMove] = []
    for (stage, consumer), pairs in given.pairs.items():
        ends = ((stage, pairs.upstream), (consumer, pairs.downstream))
        was = [given.operators[name].current.lookup(keys) for name, keys in ends]
        will = [plans[name].table.lookup(keys) for name, keys in ends]
        rows = pairs.rows / given.batches
        found += [
            LinkMove(stage, _key(pairs.upstream, at), consumer, _key(pairs.downstream, at), float(rows[at]))
            for at in _largest(rows, (was[0] != was[1]) & (will[0] == will[1]))
        ]
    return tuple(sorted(found, key=lambda link: -link.rows)[:MOST_MOVES])


def _largest(values: npt.NDArray[np.float64], which: npt.NDArray[np.bool_]) -> list[int]:
    """The places of the largest of these values."""
    places = np.flatnonzero(which)
    return places[np.argsort(-values[places], kind="stable")[:MOST_MOVES]].tolist()


def _key(hashes: Hashes, at: int) -> str:
    return f"{int(hashes[at]):016x}"
