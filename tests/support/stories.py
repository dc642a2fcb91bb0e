"""Changes of a topology from batch to batch, drawn by hypothesis: losses, restarts, new tables, other executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from streamtopology.routing.table.hashing import hash_int64
from support.stages import SLOTS, Flow, Loss, manifest, random_table

MIXED = {"policy": "mixed", "key": "k"}
COUNTS = {"name": "counts", "inputs": ["s"], "grouping": MIXED, "run": "count"}
# A chain of operators on the columns of `some_rows`.
CHAIN = manifest(
    [
        COUNTS | {"with": {"emit": "tuples"}},
        {"name": "groups", "inputs": ["counts"], "grouping": {"policy": "mixed", "key": "g"}, "run": "count"},
        {
            "name": "spread", "inputs": ["counts"], "grouping": MIXED, "run": "quantiles",
            "with": {"column": "v", "min": 0, "max": 99, "quantiles": [0.5, 0.9]},
        },
    ],
    {"s": "k BIGINT, g STRING, v BIGINT"},
)  # fmt: skip

losses = st.builds(Loss, st.integers(0, 3), st.integers(0, SLOTS - 1), st.booleans())
steps = st.fixed_dictionaries(
    {
        "reroute": st.booleans(),
        "losses": st.lists(losses, max_size=2, unique_by=lambda loss: loss.slot),
        "forget": st.sets(st.integers(0, SLOTS - 1), max_size=2),
        "slots": st.sets(st.integers(0, SLOTS - 1), min_size=2),
        "restart": st.booleans(),
    }
)
# A seed for rows and tables, and the changes at each batch.
stories = st.tuples(st.integers(0, 10_000), st.lists(steps, min_size=3, max_size=5))


def some_rows(random: np.random.Generator, n: int = 200) -> pa.Table:
    """k with one very heavy key and NULLs, g a coarse group, v from 0 to 99."""
    keys = np.where(random.random(n) < 0.4, 3, random.integers(0, 40, n))
    return pa.table(
        {
            "k": pa.array(keys, pa.int64(), mask=random.random(n) < 0.05),
            "g": pa.array([f"g{key % 5}" for key in keys]),
            "v": pa.array(random.integers(0, 100, n)),
        }
    )


def played(
    flow: Flow, seed: int, story: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> Iterator[np.random.Generator]:
    """Make what the story says happen to the flow, then let the caller run the batch."""
    random = np.random.default_rng(seed)
    for step in story:
        if step["restart"]:
            flow.start(given)
        if step["reroute"]:
            routes = flow.router.ready().epoch.routes
            hashes = hash_int64(np.arange(40))
            tables = {name: random_table(random, SLOTS, hashes) for name, route in routes.items() if route.table}
            shares = random.random(SLOTS) + 0.01
            flow.router.reroute(tables, tuple(shares / shares.sum()))
        for slot in step["forget"]:
            flow.forget(slot)
        flow.slots = tuple(sorted(step["slots"]))
        # An executor that stays away must leave another one to continue.
        flow.losses = [loss for loss in step["losses"] if loss.slot in flow.slots and (loss.returns or len(flow.slots) > 2)]
        yield random
