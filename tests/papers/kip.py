"""KIP as the authors' library (zzvara/dynamic-repartitioning) updates its partitioner, slowly: instances are alike, loads are
whole numbers, and shares of the load are fractions, so that nothing is rounded but where the library rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

ERROR = Fraction(1, 1000)


@dataclass
class Kip:
    """`hosts`: the partition of each host; `host_of`: the host of each key; `isolated`: the partition of the heavy keys."""

    partitions: int
    hosts: list[int]
    host_of: Sequence[int]
    isolated: Mapping[int, int]

    def partition(self, key: int) -> int:
        return self.isolated.get(key, self.hosts[self.host_of[key]])

    def updated(self, load: Sequence[int], heavy_keys: int) -> Kip:
        """The partitioner after it has seen these loads, of which it knows those of its heaviest keys."""
        total = sum(load)
        heavy = sorted((key for key in range(len(load)) if load[key] > 0), key=lambda key: (-load[key], key))[:heavy_keys]
        level = max(Fraction(load[heavy[0]], total), Fraction(1, self.partitions)) + ERROR
        size = [Fraction(0)] * self.partitions
        isolated: dict[int, int] = {}

        def put(key: int, partition: int) -> None:
            isolated[key] = partition
            size[partition] += Fraction(load[key], total)

        def fits(key: int, partition: int) -> Fraction:
            return size[partition] + Fraction(load[key], total)

        to_migrate: list[int] = []
        for key in heavy:
            at = self.partition(key)
            if fits(key, at) <= level or size[at] == 0:
                put(key, at)
            else:
                to_migrate.append(key)
        for key in to_migrate:
            hashed = self.hosts[self.host_of[key]]
            if hashed != self.partition(key) and (fits(key, hashed) < level or size[hashed] == 0):
                put(key, hashed)
            else:
                put(key, min(range(self.partitions), key=lambda one: (size[one], one)))
        return Kip(self.partitions, self.rehosted(size), self.host_of, isolated)

    def rehosted(self, size: list[Fraction]) -> list[int]:
        """The hosts after as many have gone to other partitions as fill all up to one level."""
        light = 1 - sum(size)
        if light <= 0:
            return self.hosts
        below = sorted(size)
        while (level := (light + sum(below)) / len(below)) < below[-1]:
            below.pop()
        wanted = [max(level - one, Fraction(0)) / light for one in size]
        ends = [round(sum(wanted[: one + 1]) * len(self.hosts)) for one in range(self.partitions)]
        quota = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        missing = [quota[one] - self.hosts.count(one) for one in range(self.partitions)]
        after = list(self.hosts)
        for host, partition in enumerate(self.hosts):
            if missing[partition] < 0:
                taker = next(one for one in range(self.partitions) if missing[one] > 0)
                after[host] = taker
                missing[partition] += 1
                missing[taker] -= 1
        return after
