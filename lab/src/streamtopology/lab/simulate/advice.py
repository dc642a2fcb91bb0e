"""The sentence under a comparison: which policy to use, and why."""

from __future__ import annotations

from collections.abc import Sequence

from streamtopology.contract import formatting
from streamtopology.lab.simulate.comparison import Compared, Result

# Policies within this share of the fastest are as good: the one that changes least wins.
NOTICEABLE = 0.03


def recommendation(compared: Compared) -> str:
    """`use X because ...`, or `keep X because ...` for the manifest's own policy."""
    own = next((result for result in compared.results if result.policy == compared.site.policy), None)
    best = _choose(compared.results, compared.site.policy)
    if own is not None and best is own:
        return (
            f"keep {own.policy} because no other policy is more than {formatting.percent(NOTICEABLE)} faster: {_figures(own)}"
        )
    if own is None:
        why = f"it reaches {_figures(best)}; the manifest's {compared.site.policy} is not simulated"
    else:
        ratio = best.rows_per_second / own.rows_per_second
        share = formatting.percent(own.share_of_bound)
        why = f"it has {ratio:.2f}x the rows/s of the manifest's {own.policy} ({share} of the bound): {_figures(best)}"
    return f"use {best.policy} because {why}"


def _choose(results: Sequence[Result], own: str) -> Result:
    """The manifest's own policy if it is as good as the fastest, else one that keeps keys together, else the fastest."""
    fastest = max(results, key=lambda result: result.rows_per_second)
    enough = (1 - NOTICEABLE) * fastest.rows_per_second
    good = [result for result in results if result.rows_per_second >= enough]
    return min(good, key=lambda result: (result.policy != own, result.copies > 1, -result.rows_per_second))


def _figures(result: Result) -> str:
    text = f"{formatting.percent(result.share_of_bound)} of the bound, imbalance {formatting.percent(result.imbalance_after)}"
    if result.merging:
        return f"{text}, although merging the parts of its keys takes {formatting.percent(result.merging)} of the time"
    return f"{text}, each key at one instance" if result.copies == 1 else text
