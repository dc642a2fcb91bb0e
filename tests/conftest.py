"""Rules for every test: shared helpers are found, and in CI a test that does not run has failed."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # `from support.histories import ...`

# One profile on every machine; nothing in it goes by a clock. With the seed that pyproject.toml gives, a test draws the same
# cases everywhere, also once it is renamed or edited (`derandomize` draws by name and text). `make test-long` draws new ones.
settings.register_profile(
    "streamtopology",
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("streamtopology")

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A skip in CI hides what was promised; an expected failure (xfail) is a promise of its own."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} did not run, which counts as failed in CI. {why}"


SHARED = ("cluster", "kafka_broker", "s3_server", "api_server")
"""Fixtures of a session that are dear to start: their tests run in one process, one after the other."""

NEEDS_MORE = ("kafka_broker", "s3_server", "api_server", "node")
"""Fixtures that need more than Python and Java: what they start is downloaded or built first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="the one case that random tests of tests/jobs/test_differential.py play")
    parser.addoption("--new-seeds", action="store_true", help="its thorough tests play cases that no run had before")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests of a dear fixture in one of the parallel processes; mark what `make test` leaves to `make test-all`."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        shared = [name for name in SHARED if name in fixtures]
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[0]))
        if any(name in fixtures for name in NEEDS_MORE):
            item.add_marker(pytest.mark.thorough)


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
