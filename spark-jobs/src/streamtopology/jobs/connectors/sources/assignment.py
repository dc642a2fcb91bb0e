"""Dealing a batch's descriptors to slots in proportion to the plan's shares."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamtopology.jobs.connectors.sources.descriptors import DIVISIBLE, Descriptor

TOLERANCE = 0.05
# A range of Kafka takes as long as so many rows, however few it has. So small ones are whole, and alike: each partition stays
# where it was read, and where what follows has been fetched already.
_FEW_ROWS = 1024


@dataclass
class _Bin:
    """The share of one slot: `pieces` are (position in the batch, descriptor)."""

    share: float
    pieces: list[tuple[int, Descriptor]] = field(default_factory=list)
    rows: int = 0

    def add(self, position: int, descriptor: Descriptor) -> None:
        self.pieces.append((position, descriptor))
        self.rows += descriptor.rows


def deal(
    descriptors: Sequence[str], shares: Sequence[float], slots: Sequence[int], present: Collection[int]
) -> tuple[tuple[str, ...], ...]:
    """Each place's part of a batch's descriptors (JSON), by the plan's shares of the slots whose executors are there.

    `slots[place]` is the slot at a place; one that is not `present` only hands its state over, and reads nothing.
    """
    there = frozenset(present)
    wanted = [(shares[slot] if shares else 1.0) if slot in there else 0.0 for slot in slots]
    if sum(wanted) <= 0:
        wanted = [float(slot in there) for slot in slots]
    dealt = assign([Descriptor.from_json(text) for text in descriptors], wanted)
    return tuple(tuple(descriptor.to_json() for descriptor in part) for part in dealt)


def assign(descriptors: Iterable[Descriptor], shares: Sequence[float]) -> list[list[Descriptor]]:
    """One list of descriptors per slot, rows in proportion to `shares` (any scale; a slot of share 0 gets none).

    Largest first to the slot that would finish first. Only when that leaves a slot more than 5 % above its part are
    row groups and offset ranges cut: both readers of a cut row group decode it, so whole ones are better. Every row
    of every descriptor is given out once, in the batch's order within a slot; the same input gives the same answer.
    """
    if not shares or min(shares) < 0 or sum(shares) <= 0:
        raise ValueError(f"source shares must be 0 or more and not all 0, not {list(shares)}")
    bins = [_Bin(share / sum(shares)) for share in shares if share > 0]
    rows, shared = np.zeros(len(bins)), np.array([bin_.share for bin_ in bins])
    order = sorted(enumerate(descriptors), key=lambda piece: (-_weight(piece[1]), piece[0]))
    for position, descriptor in order:
        with np.errstate(over="ignore"):  # by a share as good as none
            first = int(np.argmin((rows + _weight(descriptor)) / shared))
        bins[first].add(position, descriptor)
        rows[first] += _weight(descriptor)
    _even_out(bins)
    dealt = ([d for _, d in sorted(b.pieces, key=lambda piece: (piece[0], piece[1].start))] for b in bins)
    return [next(dealt) if share > 0 else [] for share in shares]


def _weight(descriptor: Descriptor) -> int:
    """The rows of a descriptor; of a range of Kafka to the next power of two."""
    return max(_FEW_ROWS, 1 << (descriptor.rows - 1).bit_length()) if descriptor.kind == "kafka" else descriptor.rows


def _even_out(bins: list[_Bin]) -> None:
    """Move whole or cut pieces from slots above their part to the slots furthest below theirs."""
    total = sum(bin_.rows for bin_ in bins)
    for donor in sorted(bins, key=lambda bin_: bin_.rows - bin_.share * total, reverse=True):
        if donor.rows <= (1 + TOLERANCE) * donor.share * total:
            continue
        while (excess := int(donor.rows - donor.share * total)) > 0:
            taker = max(bins, key=lambda bin_: bin_.share * total - bin_.rows)
            room = int(taker.share * total - taker.rows)
            kinds = DIVISIBLE if excess >= _FEW_ROWS else ("parquet",)
            divisible = [piece for piece in donor.pieces if piece[1].kind in kinds and piece[1].rows > 0]
            if room < 1 or not divisible:
                break
            position, largest = max(divisible, key=lambda piece: (piece[1].rows, -piece[0], -piece[1].start))
            donor.pieces.remove((position, largest))
            donor.rows -= largest.rows
            kept, given = _cut(largest, min(excess, room))
            for bin_, part in ((donor, kept), (taker, given)):
                if part.rows:
                    bin_.add(position, part)


def _cut(descriptor: Descriptor, rows: int) -> tuple[Descriptor, Descriptor]:
    """A descriptor without its last `rows` rows, and these; all of it is given when it has no more."""
    middle = max(descriptor.start, descriptor.end - rows)
    return descriptor.between(descriptor.start, middle), descriptor.between(middle, descriptor.end)
