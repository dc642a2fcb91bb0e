"""The `streamtopology` command itself: what it lists, refuses, completes and loads; its reference page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from support.commands import parse_command, program

from streamtopology.jobs.cli.command_group import LAB_COMMANDS, CommandGroup, commands_added
from streamtopology.jobs.cli.examples import EXAMPLES
from streamtopology.jobs.cli.main import COMMANDS, main, streamtopology
from streamtopology.jobs.cli.parameters import FAILURE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.interrupts import SIGNALS

ROOT = Path(__file__).parents[2]
STREAMTOPOLOGY = [sys.executable, "-m", "streamtopology.jobs.cli.main"]
MANIFEST = str(ROOT / "examples" / "wordcount.yaml")
FOR_PODS = {"driver", "executor", "migrate", "snapshot"}
SLOW = {
    "numpy",
    "numba",
    "pyarrow",
    "pyspark",
    "yaml",
    "rich",
    "matplotlib",
    "streamtopology.topology",
    "streamtopology.routing",
}


def ran(*command: str, **environment: str) -> str:
    return subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_help_lists_every_command_but_those_for_pods(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == main(["-h"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line[2:3].strip()}
    assert listed >= (COMMANDS.keys() | set(LAB_COMMANDS)) - FOR_PODS
    assert not listed & FOR_PODS
    for command in FOR_PODS:
        assert main([command, "--help"]) == 0


def test_help_loads_nothing_slow():
    seen = "import sys; from streamtopology.jobs.cli.main import main; main(['--help']); print('loaded', *sys.modules)"
    loaded = set(ran(sys.executable, "-c", seen).rpartition("loaded")[2].split())
    assert "streamtopology.lab.commands" in loaded
    assert not loaded & SLOW


def test_unknown_command_and_option_are_usage_errors_that_name_the_known(capsys: pytest.CaptureFixture[str]):
    for given, message in (
        (["runn"], "No such command 'runn'; there are: run, validate"),
        (
            ["state", "got"],
            "No such command 'got'; there are: check, clone, delete, export-batch, get, list, rollback, skip-file, watermark",
        ),
        (["bench", "kernel"], "No such command 'kernel'; there are: auto, chaos, dataplane"),
        (["bench", "kernels", "--seed", "3"], "No such option '--seed'; kernels has: --runs, --json"),
        (["bench", "--json", "x.json", "kernels"], "write --json after the benchmark's name: bench NAME --json VALUE"),
        (["bench", "--runs=3", "kernels"], "write --runs after the benchmark's name"),
        (["bench", "--quiet", "kernels"], "No such option '--quiet'"),
        (["run"], "Missing argument 'MANIFEST'"),
        (["scale", "large"], "Missing option '--replicas'"),
        (["scale", "large", "--replicas", "-1"], "'-1' is not a whole number of 0 or more"),
    ):
        assert main(given) == 2
        assert message in capsys.readouterr().err


def test_commands_of_the_lab_name_its_package_when_it_is_not_installed(capsys: pytest.CaptureFixture[str]):
    alone = CommandGroup(COMMANDS, added=dict, name="streamtopology")
    for command in LAB_COMMANDS:
        with pytest.raises(SystemExit) as ended:
            alone.main([command], prog_name="streamtopology")
        assert ended.value.code == 2
        assert f"`{command}` comes with streamtopology-lab, which is not installed: pip install" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        alone.main(["--help"])
    assert "bench" not in capsys.readouterr().out


def test_command_that_does_not_load_is_hidden_and_says_why(capsys: pytest.CaptureFixture[str]):
    nowhere = EntryPoint("bench", "streamtopology.lab.nowhere:bench", "streamtopology.commands")
    half = CommandGroup(COMMANDS, added=lambda: {"bench": nowhere}, name="streamtopology")
    with pytest.raises(SystemExit) as ended:
        half.main(["--help"], prog_name="streamtopology")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "validate" in shown
    assert "bench" not in shown
    for given in ([], ["kernels", "--runs", "3"], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            half.main(["bench", *given], prog_name="streamtopology")
        assert ended.value.code == 2
        assert "does not load (ModuleNotFoundError: No module named 'streamtopology.lab.nowhere')" in capsys.readouterr().err


def test_installed_distributions_are_looked_through_once():
    assert commands_added() is commands_added()


def test_manifest_may_come_from_a_named_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(pipe := tmp_path / "manifest")
    writing = threading.Thread(target=pipe.write_text, args=("kind: Other\n",), daemon=True)
    writing.start()
    # in another process: where this fails, it waits for ever
    ran = subprocess.run([*STREAMTOPOLOGY, "validate", pipe], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 2
    assert "kind" in ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["run", MANIFEST, "--work-dir"],
        ["run", MANIFEST, "--report"],
        ["plan", MANIFEST, "--stats", "nowhere", "--json"],
        ["simulate", MANIFEST, "--report"],
        ["reproduce", "dkg-k", "--json"],
        ["reproduce", "dkg-k", "--report"],
        ["bench", "kernels", "--json"],
        ["demo", "--report"],
        ["sample-data"],
        ["nexmark"],
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_refused_before_the_work(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert main([*command, str(tmp_path / "file" / "below")]) == 2
    assert f"{tmp_path / 'file'} is not a folder" in capsys.readouterr().err
    wrong, why = (tmp_path, "it is a folder") if command[-1] == "--json" else (tmp_path / "file", "it is no folder")
    assert main([*command, str(wrong)]) == 2
    assert f"cannot write {wrong}: {why}" in capsys.readouterr().err


def test_demo_outside_a_checkout_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 2
    assert "there is no examples/flights.yaml" in capsys.readouterr().err


def test_keys_may_begin_with_a_dash_and_unknown_options_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    get = ["state", "get", MANIFEST, "--work-dir", str(tmp_path)]
    for key in (["-5"], ["-.5"], ["-"], ["-5h"], ["-foo bar"], ["--", "-five"], ["--operator", "counts", "-5"]):
        assert main([*get, *key]) == 1, key
        assert "checkpoint" in capsys.readouterr().err
    taken: list[tuple[str, ...]] = []

    def take(manifest: Path, operator: str | None, key: tuple[str, ...], work_dir: Path) -> str:
        taken.append((operator or "", *key))
        return ""

    monkeypatch.setattr("streamtopology.jobs.admin.inspect_key.describe_key", take)
    assert main([*get, "-5", "--operator", "counts", "b", "-c d", "--", "--help"]) == 0
    assert taken == [("counts", "-5", "b", "-c d", "--help")]
    capsys.readouterr()
    assert main([*get, "5", "--operater", "counts"]) == 2
    assert "No such option '--operater'. Did you mean '--operator'?" in capsys.readouterr().err


@pytest.mark.parametrize("error", [EOFError("ran out of input"), BrokenPipeError(32, "the driver's pipe is broken")])
def test_programming_errors_show_their_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch):
    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(streamtopology, "get_command", lambda context, name: broken)
    with pytest.raises(type(error)):
        main(["broken"])


def test_output_that_nobody_reads_is_dropped_without_a_traceback():
    shown = "import sys; from streamtopology.jobs.cli.main import main; sys.stdout.reconfigure(line_buffering=True)"
    command = [sys.executable, "-c", f"{shown}; sys.exit(main(['--help']))"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_the_shell_completes_commands_and_options():
    name = "_STREAMTOPOLOGY_COMPLETE"
    completed = ran(*STREAMTOPOLOGY, COMP_WORDS="streamtopology va", COMP_CWORD="1", **{name: "bash_complete"})
    assert completed.split() == ["plain,validate"]
    completed = ran(*STREAMTOPOLOGY, COMP_WORDS="streamtopology bench chaos --ki", COMP_CWORD="3", **{name: "bash_complete"})
    assert completed.split() == ["plain,--kills"]


def visible(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that `--help` lists, by what is typed behind the program's name."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        if not command.hidden:
            yield inner.command_path.removeprefix("streamtopology "), command
        if isinstance(command, click.Group):
            yield from visible(command, inner)


EVERY = dict(visible(streamtopology, program()))


def test_every_option_has_a_text():
    silent = [
        (path, option.name)
        for path, one in EVERY.items()
        for option in one.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert not silent


def test_every_command_but_single_benchmarks_has_examples():
    assert {path for path in EVERY if not path.startswith("bench ")} | {""} == EXAMPLES.keys()


@pytest.mark.parametrize("example", sorted({example for examples in EXAMPLES.values() for example in examples}))
def test_examples_of_help_are_parsed(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trips.yaml").touch()
    parse_command(example.rpartition("| ")[2])


def test_help_shows_examples_and_a_link_to_its_page(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    assert "Examples:\n    streamtopology init data/trips\n" in capsys.readouterr().out
    headings = (ROOT / "docs" / "reference" / "command-line.md").read_text().splitlines()
    for path in ("run", "state get", "simulate"):
        assert main([*path.split(), "--help"]) == 0
        anchor = f"streamtopology-{path.replace(' ', '-')}"
        link = (ROOT / "docs" / "reference" / "command-line.md").as_uri()
        assert f"Documentation: {link}#{anchor}\n" in capsys.readouterr().out
        assert f"## streamtopology {path}" in headings


def test_version_names_the_package_python_and_spark(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"streamtopology \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+, Spark \d+\.\d+\.\d+\)\n", capsys.readouterr().out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_documented_line_gives_each_shell_its_completion(shell: str):
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert f"_STREAMTOPOLOGY_COMPLETE={shell}_source streamtopology" in page
    script = ran(sys.executable, "-m", "streamtopology.jobs.cli.main", _STREAMTOPOLOGY_COMPLETE=f"{shell}_source")
    assert f"_STREAMTOPOLOGY_COMPLETE={shell}_complete" in script


def test_bash_completes_after_the_documented_line():
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    line = page.partition("| bash | `")[2].partition("` |")[0]
    typed = (
        'COMP_WORDS=(streamtopology run --ba); COMP_CWORD=2; _streamtopology_completion streamtopology; echo "${COMPREPLY[@]}"'
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    assert ran("bash", "-c", f"{line}\n{typed}", PATH=path).split() == ["--batches", "--baseline"]


def test_the_reference_page_is_up_to_date():
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert page == ran(sys.executable, "scripts/command_line_reference.py"), "run `make reference`"
    assert {f"## streamtopology {command}" for command in COMMANDS.keys() - FOR_PODS} <= set(page.splitlines())


def test_reference_page_has_the_exit_code_of_each_way_to_end() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    table = page.partition("## Exit codes")[2].partition("## ")[0]
    codes = {SUCCESS, FAILURE, WrongUse.exit_code, *(128 + number for number in SIGNALS)}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes
