"""The experiments beyond the five papers: rivals on the same engine, streams that drift, micro-batches, gradual switches."""

from __future__ import annotations

from streamtopology.lab.reproduce.experiments.beyond.fish import FISH_DRIFT
from streamtopology.lab.reproduce.experiments.beyond.kip import KIP_SPEEDUP
from streamtopology.lab.reproduce.experiments.beyond.prompt import PROMPT_BATCHES
from streamtopology.lab.reproduce.experiments.beyond.switch import SWITCH_WAITS

__all__ = ["BEYOND"]

BEYOND = (KIP_SPEEDUP, FISH_DRIFT, PROMPT_BATCHES, SWITCH_WAITS)
