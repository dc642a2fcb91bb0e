"""The end of a run over the available input, recorded with what was run. Pure.

Another generation of the manifest asks for another run, but for one: a scale (`kubectl scale`, an HPA) is a generation, too,
and asks for nothing but another number of executors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.resources.objects import digest


@dataclass(frozen=True)
class Completion:
    """A run that came to its end under `generation`. `up_to`: the last generation since that was a scale, else the same.

    `work` and `numbers`: digests of the manifest of `up_to`, without the numbers of executors, and of these.
    """

    generation: int
    up_to: int
    work: str
    numbers: str

    def to_text(self) -> str:
        return json.dumps([self.generation, self.up_to, self.work, self.numbers])


def completed_now(manifest: Mapping[str, Any], generation: int) -> Completion:
    """The end of a run of this manifest under this generation."""
    work, numbers = _parts(manifest)
    return Completion(generation, int(manifest["metadata"]["generation"]), work, numbers)


def read_completion(text: object) -> Completion | None:
    """The record in an annotation or a status; None where there is none, or not one of ours."""
    try:
        generation, up_to, work, numbers = json.loads(str(text))
        return Completion(int(generation), int(up_to), str(work), str(numbers))
    except (ValueError, TypeError):
        return None


def still_completed(known: Completion, manifest: Mapping[str, Any]) -> Completion | None:
    """The record as of this manifest; None where that asks for another run.

    Of several generations at once one may have been a request for a run that was taken back, as a schedule suspends and
    resumes: only the very next one is known to be no more than a scale.
    """
    generation = int(manifest["metadata"]["generation"])
    if generation == known.up_to:
        return known
    work, numbers = _parts(manifest)
    if generation == known.up_to + 1 and work == known.work and numbers != known.numbers:
        return replace(known, up_to=generation, numbers=numbers)
    return None


def _parts(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Digests of what is run, and of the numbers of executors that run it."""
    spec = mapping_at(manifest, "spec")
    executors = items_at(spec, "executors")
    kinds = [{name: value for name, value in one.items() if name != "replicas"} for one in executors]
    work = {name: value for name, value in spec.items() if name != "autoscale"}
    return digest({**work, "executors": kinds}), digest([[one.get("replicas") for one in executors], spec.get("autoscale")])
