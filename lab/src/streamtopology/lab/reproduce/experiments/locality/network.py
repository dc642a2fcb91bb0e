"""The throughput that a division of traffic allows: a bottleneck model of servers and their links, in place of a testbed.

Every server has one processor for A_i, B_i and the passing on, and one full-duplex link. A tuple that stays costs work
alone; one that leaves costs either end a message, its bytes on the processor (serialised, copied) and on the link. The
slowest of all processors and links decides. It is a model: no queues, no latency, no back pressure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Two integers and the framing of a message: what a tuple without padding takes on the link.
HEADER_BYTES = 20

# Per tuple at A and B together; per message and per byte at either end. 10 us is a round number: only ratios count. The message
# is the one figure taken from the paper: without padding, the network costs 22 % (10 / (10 + 2 * 1.41) = 0.78). A gigabyte per
# second is what a processor serialises and copies.
MODEL = {
    "work_seconds": 10e-6,
    "message_seconds": 1.41e-6,
    "byte_seconds": 1e-9,
}


@dataclass(frozen=True)
class Network:
    """Seconds as in `MODEL`; the link in bits per second each way."""

    link_bits: float
    work_seconds: float
    message_seconds: float
    byte_seconds: float

    @staticmethod
    def of(parameters: Mapping[str, float], link_gigabits: float) -> Network:
        return Network(link_gigabits * 1e9, *(float(parameters[name]) for name in MODEL))

    def throughput(self, traffic: Floats, padding: int) -> float:
        """Tuples/s of the whole application; traffic[i, j]: tuples (any unit) from A on server i to B on server j."""
        share = traffic / traffic.sum()
        at_a, at_b, local = share.sum(axis=1), share.sum(axis=0), np.diagonal(share)
        out, into = at_a - local, at_b - local
        size = HEADER_BYTES + padding
        processor = (at_a + at_b) * self.work_seconds / 2 + (out + into) * (self.message_seconds + size * self.byte_seconds)
        link = np.maximum(out, into) * size * 8 / self.link_bits
        return 1 / float(max(processor.max(), link.max()))
