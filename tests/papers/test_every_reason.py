"""No verdict of docs/internals/papers.md without a reason that a test or another claim shows."""

from __future__ import annotations

import json
from pathlib import Path

from papers import (
    test_reasons_beyond,
    test_reasons_consistent,
    test_reasons_dkg,
    test_reasons_locality,
    test_reasons_mixed,
    test_reasons_posg,
)
from papers.reasons import BY_ANOTHER_CLAIM, SHOWN

from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.verdict import Verdict

VERDICTS = Path(__file__).parents[2] / "docs" / "internals" / "papers" / "verdicts.json"

# Those whose tests are marked with what they show.
MODULES = (
    test_reasons_beyond,
    test_reasons_consistent,
    test_reasons_dkg,
    test_reasons_locality,
    test_reasons_mixed,
    test_reasons_posg,
)


def verdicts() -> dict[str, list[dict[str, str]]]:
    return {result["id"]: result["claims"] for result in json.loads(VERDICTS.read_text())}


def test_every_claim_that_does_not_hold_with_every_seed_has_a_tested_reason():
    named = [*SHOWN, *BY_ANOTHER_CLAIM]
    missing = [
        (experiment, claim["sentence"])
        for experiment, claims in verdicts().items()
        for claim in claims
        if claim["verdict"] in (Verdict.DOES_NOT, Verdict.DEPENDS)
        if not any(experiment == of and claim["sentence"].startswith(beginning) for of, beginning in named)
    ]
    assert missing == []


def test_reasons_are_of_claims_that_there_are():
    for experiment, beginning in [*SHOWN, *BY_ANOTHER_CLAIM]:
        sentences = [claim.sentence for claim in EXPERIMENTS[experiment].claims]
        assert any(sentence.startswith(beginning) for sentence in sentences), (experiment, beginning)


def test_another_claim_that_is_a_reason_holds():
    measured = verdicts()
    for (experiment, _), other in BY_ANOTHER_CLAIM.items():
        found = [claim["verdict"] for claim in measured.get(experiment, ()) if claim["sentence"].startswith(other)]
        assert set(found) <= {Verdict.HOLDS}, (experiment, other)
