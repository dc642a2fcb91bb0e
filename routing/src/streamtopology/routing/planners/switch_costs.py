"""The cost of another table, in seconds a batch: what the switch takes, and that what it gains comes later."""

from __future__ import annotations

import math
from dataclasses import dataclass

# The cost of a switch in addition to moving state: an epoch's first batch computes what moves, and is not prefetched.
SWITCH_SECONDS = 0.3

# For which a table is planned at least, however long these take.
FEWEST_BATCHES = 60.0

# The speed of moving state with the batches: 61 MB made 38 batches longer by 0.06 s each (bench migrate).
MOVED_BYTES_PER_SECOND = 25e6


def switch_seconds(moved_bytes: float) -> float:
    """Return the seconds that a switch takes, which moves this much state."""
    return SWITCH_SECONDS + moved_bytes / MOVED_BYTES_PER_SECOND


@dataclass(frozen=True)
class SwitchCosts:
    """The price of a switch in a running topology.

    batches: by which it must have earned its cost. portion_bytes: of state that moves with one batch at first, at all
    executors together; the driver doubles it batch by batch (decision 66).
    """

    batches: float = FEWEST_BATCHES
    portion_bytes: float = math.inf

    def a_batch(self, moved_bytes: float, gain_seconds: float) -> float:
        """Return the cost of a switch that moves this much state and saves `gain_seconds` a batch, spread over `batches`.

        Most of what moves in portions moves with the last ones, so that the batches before are without the gain.
        """
        late = math.log2(max(moved_bytes / self.portion_bytes, 1.0))
        return switch_seconds(moved_bytes) / self.batches + max(gain_seconds, 0.0) * late / (self.batches + late)


# Of batches of a second; all state moves with one.
AT_ONCE = SwitchCosts()
