"""The code of the policy `blocks`: each router has one chooser for each edge, and asks it batch by batch."""

import numpy as np

from streamtopology.routing.groupings import Chooser

GOLDEN = 0.6180339887498949  # its multiples, modulo 1, are spread evenly


class BlocksChooser(Chooser):
    """Deals blocks of rows to the instances, in proportion to their capacities."""

    def __init__(self, instances, loads, seed, options):
        super().__init__(instances, loads, seed, options)
        self.rows = options["rows"]
        self.next = seed % 1_000 * self.rows  # routers begin at different places
        self.upto = np.cumsum(self.capacities / self.capacities.sum())[:-1]

    def choose(self, hashes, n):
        block = np.arange(self.next, self.next + n) // self.rows
        self.next += n
        return self.instances[np.searchsorted(self.upto, block * GOLDEN % 1.0, side="right")]
