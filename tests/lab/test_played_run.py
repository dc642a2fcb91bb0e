"""The run that `bench drivers` plays has each batch once, however long it lasts."""

from __future__ import annotations

from streamtopology.contract.stats_question import Question
from streamtopology.lab.bench.played_run import BATCH_SECONDS, PlayedRun


def test_batches_are_played_once_after_more_of_them_than_are_kept() -> None:
    now = 0.0
    run = PlayedRun(lambda: now)
    for batches in (1_200, 1_203):
        now = batches * BATCH_SECONDS
        answer = run.stats("played", 1, Question(since=1_197))
    assert [batch["number"] for batch in answer["batches"]] == list(range(1_198, 1_204))
