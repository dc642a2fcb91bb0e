"""Rules for every test: shared helpers are found, and in CI a test that does not run has failed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # `from support.histories import ...`
from support import depth
from support.levels import Level, level_of

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


@pytest.fixture(scope="session", autouse=True)
def commands_of_its_own() -> Generator[None]:
    """A folder of this process for the sockets of commands: topologies of one name exclude each other on a machine."""
    with tempfile.TemporaryDirectory(prefix="st-") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", folder)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--level", choices=[level.mark for level in Level], help="only tests of this level, without unstable ones")
    parser.addoption("--unstable", action="store_true", help="only unstable tests, of any level")
    parser.addoption("--rerun-log", type=Path, help="a file that gets a line for each try that is repeated")
    parser.addoption("--seed", type=int, help="the one case that random tests of tests/jobs/test_differential.py play")


def _level(item: pytest.Item) -> Level:
    marks = {mark.name for mark in item.iter_markers()}
    return level_of(item.path.parent.name, getattr(item, "fixturenames", ()), marks)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of one level, or the unstable ones, where they are asked for. The long level plays deep ones again."""
    asked, unstable = config.getoption("--level"), config.getoption("--unstable")
    if asked is not None or unstable:
        kept = [
            item
            for item in items
            if (asked in (None, _level(item).mark) or (depth.is_long and item.get_closest_marker(depth.DEEP)))
            and (item.get_closest_marker("unstable") is not None) == unstable
        ]
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


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


class RerunLog:
    """Notes the tries that pytest-rerunfailures repeats."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":
            with self._file.open("a") as log:
                log.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    depth.is_long = config.getoption("--level") == Level.LONG.mark
    file = config.getoption("--rerun-log")
    if file is not None and not hasattr(config, "workerinput"):  # parallel processes send their reports to one
        config.pluginmanager.register(RerunLog(file))
