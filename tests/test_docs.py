"""The pages are true: generated ones are current, and commands and code in pages work. `make lint` builds the site."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from support.scripts import load_script

from streamtopology.jobs.cli.main import streamtopology
from streamtopology.topology import load, parse

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


reference_pages = load_script("reference_pages")
check_site = load_script("check_site")


def _blocks(language: str) -> list[tuple[str, str]]:
    """Page and text of each fenced block in `language`."""
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for found, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


def _commands() -> list[tuple[str, str]]:
    """Page and line of each `streamtopology` command in a fenced block or in backticks."""
    found: set[tuple[str, str]] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
        lines += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        found |= {(str(page.relative_to(ROOT)), line.strip()) for line in lines if line.strip().startswith("streamtopology ")}
    return sorted(found)


def test_check_of_the_site_finds_broken_links_and_orphans(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text('<a href="gone.html"></a><a href="other.html#gone"></a><a href="other.html#there"></a>')
    (site / "other.html").write_text('<h2 id="there"></h2>')
    assert list(check_site.broken_links(site)) == [
        "index.html: link to gone.html: no such page in the site",
        "index.html: link to other.html#gone: no such anchor",
    ]
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "docs" / "decisions" / "README.md").write_text("# Decisions\n")
    (tmp_path / "docs" / "orphan.md").write_text("# Orphan\n")
    (tmp_path / "zensical.toml").write_text('[project]\nnav = [{"Gone" = "gone.md"}, "decisions/README.md"]\n')
    findings = list(check_site.orphans(tmp_path / "zensical.toml", tmp_path / "docs"))
    assert [finding.split(":")[0] for finding in findings] == ["docs/orphan.md", "zensical.toml"]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("[a](gone.md)", "link to gone.md: no such file"),
        ("[a]( gone.md )", "link to gone.md: no such file"),
        ("[a](<gone.md>)", "link to gone.md: no such file"),
        ('<a href="gone.md">a</a>', "link to gone.md: no such file"),
        ('<img src="gone.png">', "link to gone.png: no such file"),
        ("[a][r]\n\n[r]: gone.md", "link to gone.md: no such file"),
        ("[a][r]", "link to [r]: no such definition"),
        ("[a](README.md#gone)", "link to README.md#gone: no such heading"),
    ],
)
@pytest.mark.parametrize("page", ["README.md", "docs/page.md"])
def test_broken_link_of_a_page_is_found(tmp_path: Path, page: str, text: str, finding: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / page).write_text(f"# A page\n\n{text}\n")
    expected = [] if page != "README.md" and finding.endswith("heading") else [f"{page}: {finding}"]
    (tmp_path / "docs" / "README.md").write_text("# Another\n")
    assert list(check_site.broken_links_of_pages(tmp_path)) == expected


def test_whole_links_and_links_in_code_are_no_findings(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    text = "# A page\n\n[a][r] [b]( docs ) [c](#a-page) [d](https://d.example) `[e](gone.md)` `x[0][1]`\n\n[r]: docs\n"
    (tmp_path / "README.md").write_text(f"{text}\n```\n[f](gone.md)\n```\n")
    assert list(check_site.broken_links_of_pages(tmp_path)) == []


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("jobs/worker/nosuch.py", "jobs/worker/nosuch.py"),
        ("jobs/worker/nosuch.py:func", "jobs/worker/nosuch.py"),
        ("jobs/worker/tasks.py:nosuch", "jobs/worker/tasks.py:nosuch"),
        ("jobs/worker/tasks.py:Task.nosuch", "jobs/worker/tasks.py:Task.nosuch"),
        ("spark-jobs/src/nosuch.py --x", "spark-jobs/src/nosuch.py"),
        ("uv run tests/nosuch.py", "tests/nosuch.py"),
        ("worker/nosuch.py", "worker/nosuch.py"),
        ("streamtopology.jobs.nosuch.Thing", "streamtopology.jobs.nosuch.Thing"),
        ("streamtopology.jobs.worker.tasks.Thing", "streamtopology.jobs.worker.tasks.Thing"),
        ("from streamtopology.jobs.worker import x", None),
        ("streamtopology.jobs.worker.tasks.Task.run", None),
        ("jobs/worker/tasks.py:Task.run --x", None),
        ("worker/tasks.py", None),
        ("jobs/worker/*.py", None),
        ("run: path/file.py:Class", None),
        ("/opt/jobs/worker/nosuch.py", None),
    ],
)
def test_path_or_name_of_a_page_that_does_not_exist_is_found(tmp_path: Path, code: str, missing: str | None) -> None:
    module = tmp_path / "spark-jobs" / "src" / "streamtopology" / "jobs" / "worker" / "tasks.py"
    module.parent.mkdir(parents=True)
    module.write_text("class Task:\n    def run(self): ...\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"See `{code}`.\n")
    findings = [finding.split("`")[1] for finding in check_site.missing_files(tmp_path)]
    assert findings == ([missing] if missing else [])


def test_walks_of_the_architecture_name_functions_of_their_modules() -> None:
    page = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    walks = " ".join(page[page.index("## Walk 1") : page.index("## Rules of imports")].split())
    named = re.findall(r"`([a-z0-9_/]+\.py)` \(((?:`[\w.]+`(?:, )?)+)\)", walks)
    assert len(named) > 10
    for path, names in named:
        (source,) = ROOT.glob(f"*/src/streamtopology/{path}")
        defined = {node.name for node in ast.walk(ast.parse(source.read_text())) if hasattr(node, "name")}
        for name in re.findall(r"[\w.]+", names):
            assert set(name.split(".")) <= defined, f"{path}: {name}"


@pytest.mark.parametrize("package", ["jobs", "k8s", "lab", "routing"])
def test_architecture_names_every_room(package: str) -> None:
    page = (DOCS / "internals" / "architecture.md").read_text(encoding="utf-8")
    (folder,) = ROOT.glob(f"*/src/streamtopology/{package}")
    rooms = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    named = {f"{package}/{path.name}{'/' if path.is_dir() else ''}" for path in rooms if not path.name.startswith("__")}
    assert {name for name in named if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("name", sorted(reference_pages.GENERATED))
def test_generated_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == reference_pages.GENERATED[name](), "run `make reference`"


def test_every_decision_has_date_status_and_subject_and_no_number_is_missing() -> None:
    found = reference_pages.decisions()
    numbers = [decision.number for decision in found]
    assert sorted([*numbers, *reference_pages.UNUSED]) == list(range(1, max(numbers) + 1))
    for decision in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", decision.date), decision.file
        assert re.fullmatch(r"(accepted|revised|superseded by \d+)", decision.status), decision.file


@pytest.mark.parametrize(("page", "line"), _commands())
def test_command_in_a_page_exists_with_its_options(page: str, line: str) -> None:
    words = shlex.split(re.sub(r"[\[\]|]", " ", line.split(" #")[0]))[1:]
    for word in [word for word in words if not word.startswith("-")]:
        if word.isupper() or not word.isalpha():
            break
        assert word in _below(words[: words.index(word)]), f"{page}: {line}"
        if not _below(words[: words.index(word) + 1]):
            break
    known = _options(words)
    unknown = {word.split("=")[0] for word in words if word.startswith("-") and word != "-"} - known
    assert not unknown, f"{page}: {line}"


@pytest.mark.parametrize("path", sorted({path for _, line in _commands() for path in re.findall(r"examples/\S+\.yaml", line)}))
def test_manifest_of_a_command_exists_and_parses(path: str) -> None:
    load(ROOT / path)


def _found(words: list[str]) -> list[click.Command]:
    """The command that `words` name; the commands of a group where a placeholder such as NAME stands for one."""
    command: click.Command = streamtopology
    for word in words:
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(click.Context(command), word)
        if inner is None:
            return _commands_of(command)
        command = inner
    return [command]


def _commands_of(group: click.Group) -> list[click.Command]:
    context = click.Context(group)
    return [command for name in group.list_commands(context) if (command := group.get_command(context, name)) is not None]


def _below(words: list[str]) -> set[str]:
    return {
        inner.name or "" for command in _found(words) if isinstance(command, click.Group) for inner in _commands_of(command)
    }


def _options(words: list[str]) -> set[str]:
    return {
        option
        for command in _found(words)
        for parameter in command.get_params(click.Context(command))
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize(("page", "text"), _blocks("python"))
def test_python_block_compiles(page: str, text: str) -> None:
    compile(text, page, "exec")


@pytest.mark.parametrize(("page", "text"), _blocks("yaml"))
def test_yaml_block_parses_and_a_whole_manifest_is_valid(page: str, text: str) -> None:
    documents = list(yaml.safe_load_all(io.StringIO(text)))
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "StreamTopology":
            parse(document)


@pytest.mark.parametrize(("page", "text"), _blocks("json"))
def test_json_block_parses(page: str, text: str) -> None:
    assert json.loads(text) is not None, page


def test_every_example_is_in_the_table_of_the_page_on_manifests() -> None:
    table = (DOCS / "guide" / "manifest.md").read_text(encoding="utf-8").partition("## Examples")[2]
    manifests = {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.yaml")}
    assert manifests == set(re.findall(r"^\| `(examples/\S+\.yaml)` \|", table, re.MULTILINE))


def test_jobs_of_examples_run_below_the_tini_of_our_images() -> None:
    """As a container's first process, Python ignores the request to end: a deletion waits for the whole grace period."""
    objects = [one for file in (ROOT / "examples").glob("*.yaml") for one in yaml.safe_load_all(file.read_text()) if one]
    jobs = [one for one in objects if one["kind"] == "Job"]
    containers = [container for job in jobs for container in job["spec"]["template"]["spec"]["containers"]]
    ours = [container for container in containers if container["image"].startswith("streamtopology/")]
    assert ours
    assert [container["name"] for container in ours if "command" in container] == []
