"""The result of each policy on one operator's stream, before anything is deployed.

Batch by batch the same rows go through the groupings, planners and the controller that run on Spark (`contender`).
Stages are barriers, so operators can be compared one by one. Left out: the source, and fixed seconds unless the site has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopology.lab.simulate.contender import Contender, Result, last_third
from streamtopology.lab.simulate.site import Batch, Hashes, Site
from streamtopology.routing.planners import PlanError
from streamtopology.topology import OperatorSpec
from streamtopology.topology.groupings import GROUPINGS, GroupingError, GroupingSpec

__all__ = ["Batch", "Comparison", "Result", "Site"]


class Comparison:
    """Feed it batches with `take`, all policies get each of them; `results` at any time after the first.

    `others`: of routing that is in no catalogue, on the same site. `skipped`: policy -> a sentence why it is not simulated. The
    same batches and seed give the same results.
    """

    def __init__(
        self,
        site: Site,
        specs: Mapping[str, GroupingSpec] = GROUPINGS,
        seed: int = 1,
        others: Sequence[Contender] = (),
    ) -> None:
        self.site = site
        self.skipped: dict[str, str] = {}
        self._sizes: list[tuple[int, float]] = []
        self._seen: Hashes = np.empty(0, np.uint64)
        self._contenders: list[Contender] = list(others)
        for spec in specs.values():
            if reason := _reason_to_skip(spec, site):
                self.skipped[spec.name] = reason
            else:
                self._contenders.append(Contender(site, spec, seed))

    def run_on(self, cpu: tuple[float, ...]) -> None:
        """The slots have other cores from the next batch on; declared ones stay."""
        self.site = replace(self.site, cpu=cpu)
        for contender in self._contenders:
            contender.run_on(cpu)

    def take(self, batch: Batch) -> None:
        """One more batch, of at least one row, for every policy."""
        self._seen = np.union1d(self._seen, batch.keys)
        best_seconds = float(batch.work.sum() / self.site.used_cpu.sum())
        self._sizes.append((len(batch.hashes), best_seconds))
        for contender in list(self._contenders):
            try:
                contender.take(batch, self._seen, best_seconds)
            except (GroupingError, PlanError) as error:
                self._contenders.remove(contender)
                self.skipped[contender.policy] = str(error)

    def bound(self) -> float:
        """Rows/s that no routing can beat: all cores of the operator's slots fully busy with rows, in the last third."""
        settled = last_third(self._sizes)
        return sum(rows for rows, _ in settled) / sum(best_seconds for _, best_seconds in settled)

    def results(self) -> list[Result]:
        """One for each policy, the one with most rows/s first."""
        results = [contender.result() for contender in self._contenders]
        return sorted(results, key=lambda result: -result.rows_per_second)


def _reason_to_skip(spec: GroupingSpec, site: Site) -> str | None:
    if spec.prefers_local:
        return "it depends on where the rows come from, which is not simulated here"
    if spec.needs_key and not site.has_key:
        return "it routes by key, and the operator has none"
    if spec.splits_keys and site.stateful and not site.combinable:
        return "it may send one key to several instances, and the operator's state cannot be combined"
    if spec.plans_jointly:
        return "it plans several operators together, which is not simulated here"
    return None


@dataclass(frozen=True)
class Compared:
    """One operator's comparison: `skipped` maps policies to why, `notes` are sentences about the stream."""

    operator: OperatorSpec
    site: Site
    seconds_per_row: float
    bound: float
    results: Sequence[Result]
    skipped: dict[str, str]
    notes: tuple[str, ...]
