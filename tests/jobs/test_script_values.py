"""Scripts without Spark: their executors, their names, and commands that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scripts.executors import shape_of
from streamtopology.jobs.scripts.lifted import name_of
from streamtopology.topology import ManifestError, Source


def test_executors_in_a_word_are_classes_as_in_a_manifest() -> None:
    classes = shape_of("job", "fast:2:1.5,slow:1:250m", {}).executors
    assert [(each.name, each.replicas, each.cpu) for each in classes] == [("fast", 2, 1.5), ("slow", 1, 0.25)]


def test_executors_may_be_a_file_of_classes(tmp_path: Path) -> None:
    file = tmp_path / "classes.yaml"
    file.write_text("- {name: big, replicas: 1, cpu: 2, memory: 2Gi}\n")
    (only,) = shape_of("job", str(file), {}).executors
    assert (only.name, only.memory_bytes) == ("big", 2 << 30)


def test_without_a_word_there_are_executors_of_one_core() -> None:
    (only,) = shape_of("job", None, {}).executors
    assert only.cpu == 1
    assert 1 <= only.replicas <= 4


@pytest.mark.parametrize("text", ["", "fast", "fast:1", "fast::1", "fast:1:1:1", "a:1:1,"])
def test_executors_that_are_no_classes_are_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="write NAME:REPLICAS:CPU"):
        shape_of("job", text, {})


@pytest.mark.parametrize(("text", "part"), [("fast:x:1", "replicas"), ("fast:1:much", "cpu"), ("-:1:1", "name")])
def test_wrong_values_are_named_as_in_a_manifest(text: str, part: str) -> None:
    with pytest.raises(ManifestError, match=rf"spec\.executors\[0\]\.{part}"):
        shape_of("job", text, {})


def test_a_policy_that_is_none_is_refused_before_anything_starts() -> None:
    with pytest.raises(ManifestError, match="found 'nix', installed: auto"):
        shape_of("job", None, {}, "nix")


def test_a_file_that_is_no_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "classes.yml"
    file.write_text("name: big\n")
    with pytest.raises(WrongUse, match="a list of executor classes is needed"):
        shape_of("job", str(file), {})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Daily Sessions!", "daily-sessions"),
        ("job_2.final", "job-2-final"),
        ("2nd", "job-2nd"),
        ("日本", "job"),
        ("a" * 90, "a" * 40),
    ],
)
def test_a_topologys_name_is_made_of_any_text(text: str, name: str) -> None:
    assert name_of(text) == name


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["job.py", "--batches", "2"], "--batches is for manifests"),
        (["job.py", "--fresh"], "--fresh is for manifests"),
        (["job.py", "--baseline", "fields"], "--baseline is for manifests"),
        (["job.py", "--conf", "spark.x"], "--conf takes NAME=VALUE"),
        (["job.yaml", "--strict"], "are for scripts"),
        (["job.yaml", "word"], "are for scripts"),
    ],
)
def test_options_of_the_other_kind_are_refused(
    arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job.py", "job.yaml"):
        Path(name).touch()
    assert main(["run", *arguments]) == WrongUse.exit_code
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "schema", "place", "part"),
    [
        ({}, None, "options.run", "needs option run"),
        ({"run": "frames.py:gone"}, None, "options.run", "'gone' is no function in frames.py"),
        ({"run": "frames.py:of_two"}, None, "options.run", "declare `def of_two(spark)`"),
        ({"run": "frames.py:events", "path": "x"}, None, "options.path", "takes option run alone"),
        ({"run": "frames.py:events"}, "a INT", "schema", "takes option run alone"),
    ],
)
def test_a_source_whose_function_cannot_make_its_frame_is_refused_before_spark(
    options: dict[str, str], schema: str | None, place: str, part: str, tmp_path: Path
) -> None:
    (tmp_path / "frames.py").write_text("def events(spark): ...\ndef of_two(spark, path): ...\n")
    (problem,) = check(Source("f", "dataframe", schema, options), tmp_path).findings
    assert problem.path == place
    assert part in problem.message
