"""Write verdicts of `streamtopology reproduce` into docs/internals/papers.md.

    streamtopology reproduce all --json build/papers.json
    python scripts/papers_page.py build/papers.json

The file may have one experiment or several. Their verdicts replace those in docs/internals/papers/verdicts.json, from which
the generated part of the page is written; other experiments keep theirs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamtopology.lab.reproduce.experiment import NOT_KNOWN
from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.verdict import Verdict, claims_in_words, figures_of, verdict_in_words

DOCS = Path(__file__).parents[1] / "docs" / "internals"
PAGE, VERDICTS = DOCS / "papers.md", DOCS / "papers" / "verdicts.json"
BEGIN, END = "<!-- verdicts: written by scripts/papers_page.py -->", "<!-- verdicts: end -->"
COLUMNS = (Verdict.HOLDS, Verdict.DEPENDS, Verdict.DOES_NOT, Verdict.BY_CONSTRUCTION)
KEPT = ("sentence", "verdict", "held", "paper", "spread", "by_construction")

Result = Mapping[str, Any]


def main(files: Iterable[str]) -> int:
    known = {result["id"]: result for result in json.loads(VERDICTS.read_text())} if VERDICTS.exists() else {}
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for file in files:
        results = json.loads(Path(file).read_text())
        for result in [results] if isinstance(results, dict) else results:
            if "error" in result or result["quick"]:
                print(f"{result['id']}: {'failed' if 'error' in result else 'run with --quick'}: left out", file=sys.stderr)
            elif result["id"] in EXPERIMENTS:
                known[result["id"]] = _short(result, today)
    in_order = [known[name] for name in EXPERIMENTS if name in known]
    VERDICTS.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{page(in_order)}\n{END}{rest.partition(END)[2]}")
    return 0


def _short(result: Result, today: str) -> dict[str, Any]:
    """The parts of a result that the page shows: the verdicts with the figures that decided."""
    claims = [{name: claim[name] for name in KEPT} for claim in result["claims"]]
    read = {name for claim in claims for name in (*claim["paper"], *claim["spread"])}
    return {
        "id": result["id"],
        "measured": today,
        "seeds": result["seeds"],
        "runs": result["runs"],
        "cpu_seconds": round(result["cpu_seconds"], 1),
        "summary": {name: value for name, value in result["summary"].items() if name in read},
        "verdict": result["verdict"],
        "claims": claims,
    }


def page(results: list[Result]) -> str:
    """The generated part: totals, a row for each experiment, then a row for each claim that does not hold with every seed."""
    claims = [claim for result in results for claim in result["claims"]]
    verdicts = [result["verdict"] for result in results]
    held, depend = (verdicts.count(verdict) for verdict in (Verdict.HOLDS, Verdict.DEPENDS))
    lines = [
        f"Measured so far: {len(results)} of {len(EXPERIMENTS)} experiments. {held} hold, {depend} depend on the seed;",
        f"{claims_in_words(claims)}; {sum(result['cpu_seconds'] for result in results) / 60:.0f} minutes of CPU in all.",
        "",
        "| id | | holds | depends | no | by construction | seeds x runs | measured |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        counts = [sum(claim["verdict"] == column for claim in result["claims"]) or "" for column in COLUMNS]
        cells = [f"`{result['id']}`", EXPERIMENTS[result["id"]].title, *counts]
        cells += [f"{len(result['seeds'])} x {result['runs']}", result["measured"]]
        lines.append(_row(cells))
    lines += ["", "### What does not hold, and what depends on the seed", ""]
    lines += ["| id | the paper | verdict | figures: mean (least to largest over the seeds) | reason |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for result in results:
        for claim in result["claims"]:
            if claim["verdict"] in (Verdict.DEPENDS, Verdict.DOES_NOT):
                seeds = len(result["seeds"])
                figures, reason = figures_of(claim, result["summary"], seeds), _reason(result["id"], claim["sentence"])
                lines.append(_row([f"`{result['id']}`", claim["sentence"], verdict_in_words(claim, seeds), figures, reason]))
    return "\n".join(lines)


def _reason(experiment: str, sentence: str) -> str:
    """The reason as the experiment has it now, which may be known better than when it was measured."""
    claims = EXPERIMENTS[experiment].claims
    return next((claim.why_not for claim in claims if claim.sentence == sentence), "") or NOT_KNOWN


def _row(cells: Iterable[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
