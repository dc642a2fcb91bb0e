"""The tests that show why a sentence of a paper does not hold here, or not with every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

# (experiment, how the sentence of its claim begins) -> the test that shows the reason.
SHOWN: dict[tuple[str, str], str] = {}

# The same key -> how another claim of the experiment begins, which differs in the cause alone, and holds.
BY_ANOTHER_CLAIM: Mapping[tuple[str, str], str] = {
    ("mixed-hash", "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3), averaged by instance"): (
        "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3), averaged by rank"
    ),
    ("mixed-compact", "The error of the load estimate is no more than 1 % for any R from 1 to 256, with the paper's"): (
        "The error of the load estimate is no more than 1 % for any R from 1 to 256, with an error per instance"
    ),
}


def shows(experiment: str, *beginnings: str) -> Callable[[Test], Test]:
    """Mark a test as the reason for the claims of an experiment that begin like this."""

    def marked(test: Test) -> Test:
        for beginning in beginnings:
            SHOWN[experiment, beginning] = getattr(test, "__name__", "")
        return test

    return marked
