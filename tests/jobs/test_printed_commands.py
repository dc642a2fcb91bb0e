"""Every command that a message, a page or an alert names is one that the program takes, with all that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import parse_command

ROOT = Path(__file__).parents[2]
# Where a command in a text ends; the name of a program in front of its error has a colon.
_COMMAND = re.compile(r"streamtopology (?![a-z-]+:)[a-z-]+(?: [^`;,()\n]*)?")
# What a message fills in, where it is not spelled out in the code.
_FILLED_IN = "1"
_PLACEHOLDERS = {"BATCH": "41"}


def printed_texts(source: Path) -> Iterator[str]:
    """The strings of a Python module but its docstrings, as they may be printed."""
    code = source.read_text(encoding="utf-8")
    if "streamtopology " not in code:  # most modules name no command
        return
    nodes = list(ast.walk(ast.parse(code)))
    skipped = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    skipped |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    for node in nodes:
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in skipped:
            yield _spelled(node)


def _spelled(text: ast.expr) -> str:
    if isinstance(text, ast.JoinedStr):
        return "".join(map(_spelled, text.values))
    if isinstance(text, ast.FormattedValue):
        return _spelled(text.value.body) if isinstance(text.value, ast.IfExp) else _FILLED_IN
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else _FILLED_IN


def other_texts(source: Path) -> Iterator[str]:
    """The text of a page's script, a template or a list of alerts, on one line."""
    yield " ".join(re.sub(r"\$\{.*?\}|\{\{.*?\}\}", _FILLED_IN, source.read_text(encoding="utf-8"), flags=re.DOTALL).split())


def commands() -> Iterator[tuple[str, str]]:
    """File and command of every hint."""
    modules = [path for room in ("operator", "routing", "spark-jobs") for path in (ROOT / room / "src").rglob("*.py")]
    others = [path for room in ("operator", "routing", "spark-jobs") for path in (ROOT / room / "src").rglob("*.js")]
    others += [ROOT / "charts/streamtopology/files/rules.yaml", ROOT / "charts/streamtopology/templates/NOTES.txt"]
    for paths, texts_of in ((modules, printed_texts), (others, other_texts)):
        for path in paths:
            if path.name != "examples.py":  # tests/jobs/test_command_line.py parses those of the help
                for text in texts_of(path):
                    yield from ((str(path.relative_to(ROOT)), found.strip(" .")) for found in _COMMAND.findall(text))


COMMANDS = sorted(set(commands()))


def test_hints_are_found_in_messages_pages_and_alerts() -> None:
    assert len(COMMANDS) > 20
    assert {path.rpartition(".")[2] for path, _ in COMMANDS} == {"py", "js", "yaml"}


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_printed_command_is_parsed(path: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for manifest in ("MANIFEST", "FILE", _FILLED_IN):
        (tmp_path / manifest).touch()
    parse_command(" ".join(_PLACEHOLDERS.get(word, word) for word in command.split()))


@pytest.mark.parametrize("code", ["f'`streamtopology state get {file}`'", "'run: streamtopology rollback FILE'"])
def test_command_that_lacks_an_argument_or_does_not_exist_is_found(code: str, tmp_path: Path) -> None:
    (module := tmp_path / "module.py").write_text(f"print({code})\n")
    (found,) = [command for text in printed_texts(module) for command in _COMMAND.findall(text)]
    with pytest.raises(Exception, match=r"Missing argument|No such command|cannot read"):
        parse_command(found)
