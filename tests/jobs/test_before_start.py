"""What is refused before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.jobs.cli import main
from streamtopology.jobs.control import ControlServer, Refused
from streamtopology.jobs.runner import RunOptions, TopologyRun, check_before_start, new_history
from streamtopology.routing.topology import ManifestError, parse


def test_a_second_run_is_refused_before_cluster_and_checkpoint_are_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, work_dir = tmp_path / "checkpoint", tmp_path / "work"
    given = manifest("twice", [files(tmp_path)], [counting()], [memory_sink("twice", "counts")], checkpoint=str(checkpoint))
    file = tmp_path / "twice.yaml"
    file.write_text(yaml.safe_dump(given))
    refusal = "topology 'twice' runs here already; stop it first: streamtopology stop twice"
    with ControlServer("twice", {}):
        assert main(["run", str(file), "--work-dir", str(work_dir)]) == 1
        assert refusal in capsys.readouterr().err
        topology = parse(given)
        with pytest.raises(Refused, match=refusal):  # both were started at once, and the other has been faster
            TopologyRun(cast(Any, None), topology, tmp_path, new_history(topology), RunOptions(work_dir=work_dir))
    assert not checkpoint.exists()
    assert not work_dir.exists()


@pytest.mark.parametrize("command", ["run", "validate", "apply", "simulate"])
def test_a_manifest_that_cannot_be_read_is_wrong_use(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, why in (("nosuch.yaml", "No such file or directory"), (str(tmp_path), "Is a directory")):
        assert main([command, path]) == 2
        assert capsys.readouterr().err == f"streamtopology: cannot read {path}: {why}\n"


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--duration", "abc", "a duration such as 10us"),
        ("--duration", "90", "a number alone has no unit"),
        ("--port", "70000", "'70000' is not a port: a number from 1 to 65535, or 0 for any free one"),
        ("--port", "-1", "'-1' is not a port"),
        ("--port", "http", "'http' is not a port"),
    ],
)
def test_an_option_that_cannot_be_is_wrong_use(option: str, value: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "any.yaml", f"{option}={value}"])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_before_cluster_and_checkpoint_are_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = manifest("served", [files(tmp_path)], [counting()], [memory_sink("served", "counts")])
    file, work_dir = tmp_path / "served.yaml", tmp_path / "work"
    file.write_text(yaml.safe_dump(given))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", str(file), "--work-dir", str(work_dir), "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert f"cannot serve metrics on 127.0.0.1:{port}: the port is taken; choose another one" in told
    assert not work_dir.exists()


def chain(folder: Path, first: dict[str, object], second: dict[str, object]) -> dict[str, object]:
    """Two operators by `locality`, one after the other."""
    one = counting("first", policy="locality", **first)
    return manifest("chain", [files(folder)], [one, counting("second", of="first", policy="locality", **second)],
                    [memory_sink("chain", "second")])  # fmt: skip


def test_locality_wants_key_columns_passed_on_and_one_parallelism(tmp_path: Path) -> None:
    check_before_start(parse(chain(tmp_path, {"with": {"emit": "tuples"}}, {})), tmp_path)
    unequal = chain(tmp_path, {"with": {"emit": "tuples"}, "parallelism": 2}, {"parallelism": 3})
    with pytest.raises(
        ManifestError, match=r"'first' and 'second' are planned together .* the same parallelism; found 2 and 3"
    ):
        check_before_start(parse(unequal), tmp_path)
    keyed = {"grouping": {"policy": "locality", "key": "value"}}
    mapped = chain(tmp_path, {"run": "map", "with": {"select": ["value"]}}, keyed)
    with pytest.raises(ManifestError, match=r"operator 'first': it does not pass its key column 'key' on.*emit it"):
        check_before_start(parse(mapped), tmp_path)
