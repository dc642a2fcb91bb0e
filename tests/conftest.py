"""Rules for every test: shared helpers are found, and in CI a test that does not run has failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `from support.histories import ...`

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A skip in CI hides what was promised; an expected failure (xfail) is a promise of its own."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} did not run, which counts as failed in CI. {why}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report
