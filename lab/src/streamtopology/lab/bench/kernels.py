"""The cost of routing a tuple: each kernel against a numpy `take` of as many numbers, in turns within one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

import numba
import numpy as np

from streamtopology.lab.bench.figures import figure, machine
from streamtopology.lab.groupings.fish import FishChooser
from streamtopology.lab.groupings.prompt import PromptChooser
from streamtopology.routing.groupings import learning_of, make_chooser
from streamtopology.routing.groupings.learning import LearningChooser
from streamtopology.routing.table.hashing import hash_bytes, hash_int64
from streamtopology.routing.table.splits import Splits
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of
from streamtopology.topology import groupings

ENTRIES = 3_000
# Entries that have all instances as owners.
SPLIT = 300

# Rows of a router's part of a batch: its arrays stay in the caches.
PART = 400_000

INSTANCES = 8
DISTINCT_KEYS = 1_000_000
ZIPF_EXPONENT = 1.2
SEED = 1
BASELINE = "take"
# Cases that are measured after another than `take`.
COMPARED = {"table_deal": "table_lookup", "table_deal_in_parts": "table_lookup_in_parts"}

CHOOSERS = ("shuffle", "partial-key", "potc", "porc", "bounded-hash", "d-choices", "w-choices")


def run(runs: int = 5, size: int = 10_000_000) -> dict[str, object]:
    """Time per tuple of each case over `size` tuples, `runs` times in turns, as the design's bench JSON.

    Before each measurement stands one of `take` (or of another case), and `ratio_to` is the median of the ratios between the
    two: other work on the machine slows both. Keys are Zipf; the heaviest have the entries.
    """
    cases = _cases(size)
    for work in cases.values():
        work()
    pairs: dict[str, list[tuple[float, float]]] = {case: [] for case in cases if case != BASELINE}
    for _ in range(runs):
        for case, measured in pairs.items():
            measured.append((_seconds(cases[COMPARED.get(case, BASELINE)]), _seconds(cases[case])))
    takes = [before for case, measured in pairs.items() if case not in COMPARED for before, _ in measured]
    results = [_result(BASELINE, [(seconds, seconds) for seconds in takes], size)]
    results += [_result(case, measured, size) for case, measured in pairs.items()]
    return {"name": "kernels", "machine": machine(numpy=np.__version__, numba=numba.__version__), "results": results}


def _cases(size: int) -> dict[str, Callable[[], object]]:
    """Every case as a call that does its work once. `take` gathers int64 from an array as long as there are buckets."""
    keys = _zipf_keys(size, np.random.default_rng(SEED))
    hashes = hash_int64(keys)
    offsets, text = _as_text(keys)
    entries = hash_int64(np.arange(ENTRIES, dtype=np.int64))
    active = np.arange(INSTANCES, dtype=np.int32)
    table = RoutingTable.uniform(range(INSTANCES)).with_entries(entries, np.arange(ENTRIES, dtype=np.int32) % INSTANCES)
    owners, weights = np.tile(active, SPLIT), np.random.default_rng(SEED).dirichlet(np.ones(INSTANCES), SPLIT).ravel()
    split = table.with_splits(Splits.of(entries[:SPLIT], np.arange(SPLIT + 1) * INSTANCES, owners, weights))
    parts = [hashes[start : start + PART] for start in range(0, size, PART)]
    numbers, indices = np.arange(BUCKETS, dtype=np.int64), bucket_of(hashes, BUCKETS)
    no_loads = np.zeros(INSTANCES)
    choosers = {name: make_chooser(name, active, no_loads, SEED) for name in CHOOSERS} | {
        "fish": FishChooser(active, no_loads, SEED, {}),
        "prompt": PromptChooser(active, no_loads, SEED, {}),
    }
    return {
        BASELINE: lambda: np.take(numbers, indices),
        "hash_int64": lambda: hash_int64(keys),
        "table_lookup": lambda: table.lookup(hashes),
        "table_deal": lambda: split.deal(hashes, SEED),
        "table_lookup_in_parts": lambda: [table.lookup(part) for part in parts],
        "table_deal_in_parts": lambda: [split.deal(part, SEED) for part in parts],
        "posg_16": _learnt("posg", hashes),
        "earliest_finish_16": _learnt("earliest-finish", hashes),
        "hash_bytes": lambda: hash_bytes(offsets, text),
        **{name.replace("-", "_"): partial(chooser.choose, hashes, size) for name, chooser in choosers.items()},
    }


def _learnt(policy: str, hashes: np.ndarray, k: int = 16) -> Callable[[], object]:
    """A chooser that learns, over k instances each of which has reported a part of the stream, 1 to 64 ms a tuple."""
    learning = learning_of(policy)
    chooser = make_chooser(policy, np.arange(k, dtype=np.int32), np.zeros(k), SEED)
    if learning is None or not isinstance(chooser, LearningChooser):
        raise ValueError(f"{policy} learns nothing from instances")
    options = groupings.get(policy).check_options({})
    reports = []
    for instance, seen in enumerate(np.array_split(hashes[: k * 20_000], k)):
        observer = learning.make_observer(instance, options)
        observer.observe(seen, (1 + seen % np.uint64(64)).astype(np.float64) * 1e-3)
        reports.append(observer.report())
    chooser.learn(learning.nothing_known(options).after(reports))
    return lambda: chooser.choose(hashes, len(hashes))


def _zipf_keys(size: int, random: np.random.Generator) -> np.ndarray:
    """int64[size] in 0..DISTINCT_KEYS-1, key 0 the heaviest."""
    weights = np.arange(1, DISTINCT_KEYS + 1) ** -ZIPF_EXPONENT
    cumulated = np.cumsum(weights / weights.sum())
    return np.minimum(np.searchsorted(cumulated, random.random(size)), DISTINCT_KEYS - 1).astype(np.int64)


def _as_text(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys as ten bytes each, such as a flight's tail number: offsets int64[n + 1] and data uint8[10 n]."""
    labels = np.char.zfill(np.arange(DISTINCT_KEYS).astype("S10"), 10)
    return np.arange(len(keys) + 1, dtype=np.int64) * 10, labels[keys].view(np.uint8)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _result(case: str, measured: list[tuple[float, float]], size: int) -> dict[str, object]:
    """The figures of one case from its pairs (seconds of the one that it is compared with, its own seconds)."""
    nanoseconds, before = [seconds / size * 1e9 for _, seconds in measured], [seconds / size * 1e9 for seconds, _ in measured]
    return figure(case, "time per tuple", "ns", nanoseconds, {COMPARED.get(case, BASELINE): before})


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
