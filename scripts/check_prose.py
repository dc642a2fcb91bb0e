"""Check the prose of this repository against `scripts/prose.toml`: banned words, first words, names of tests, long lines.

`scripts/check_prose.py` checks all tracked files apart from the folders listed as `not_yet`; `scripts/check_prose.py PATH ...`
checks these files and folders, listed or not. Exit codes: 0 no finding, 1 findings, 2 usage error. Standard library only.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = {".py"}
PAGES = {".md"}
PLAIN = {
    *(".yaml", ".yml", ".toml", ".sh", ".txt", ".tpl", ".json", ".properties", ".svg", ".css", ".html", ".go", ".mod", ""),
}
"""Suffixes of files whose whole text is checked; none: Makefile, Dockerfile, .ci/run."""


@dataclass(frozen=True)
class Word:
    """A banned word or phrase, its replacements, and the phrases in which it is right."""

    pattern: re.Pattern[str]
    say: str
    allowed: tuple[re.Pattern[str], ...]
    names: bool
    only_names: bool


@dataclass(frozen=True)
class Vocabulary:
    words: tuple[Word, ...]
    openers: re.Pattern[str]
    openers_say: str
    test_openers: frozenset[str]
    longest_test_name: int
    test_names_say: str
    longest_line: int
    skip: tuple[str, ...]
    not_yet: tuple[str, ...]


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def read_vocabulary(path: Path) -> Vocabulary:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    words = tuple(
        Word(
            _phrase(word["match"]),
            word["say"],
            tuple(_phrase(phrase) for phrase in word.get("allowed", ())),
            word.get("names", False),
            word.get("only_names", False),
        )
        for word in document["word"]
    )
    openers = "|".join(document["docstring"]["openers"])
    return Vocabulary(
        words,
        re.compile(rf"\s*({openers})\b"),
        document["docstring"]["say"],
        frozenset(document["tests"]["openers"]),
        document["tests"]["longest_name"],
        document["tests"]["say"],
        document["pages"]["longest_line"],
        tuple(document["files"]["skip"]),
        tuple(document["files"]["not_yet"]),
    )


def _phrase(match: str) -> re.Pattern[str]:
    with_breaks = match.replace(" ", r"(?:\s+|-)")
    return re.compile(rf"(?<![\w-])(?:{with_breaks})(?![\w-])", re.IGNORECASE)


def check_python(path: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Check docstrings, comments, strings, and names: each where it occurs first; tests' as sentences.

    A string without a blank may be a key on the wire: it is checked as a name is.
    """
    yield from _banned(path, _comments(text), vocabulary)
    names = {token.string: (token.start[0], "name") for token in reversed(list(_tokens(text))) if token.type == tokenize.NAME}
    for line, end, string in _strings(ast.parse(text)):
        if " " in string.strip():
            for finding in _banned(path, string, vocabulary):
                yield Finding(path, min(line + finding.line - 1, end), finding.text)
        else:
            names.setdefault(string.strip(), (line, "string"))
    for name, (line, kind) in names.items():
        for word in vocabulary.words:
            if word.names and not (kind == "string" and word.only_names) and word.pattern.search(_words_of(name)):
                yield Finding(path, line, f"{kind} `{name}`; say: {word.say}")
    for line, docstring in _docstrings(text):
        if opener := vocabulary.openers.match(docstring):
            yield Finding(path, line, f"docstring opens with `{opener[1]}`; {vocabulary.openers_say}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from _check_test_name(path, node.lineno, node.name, vocabulary)


def _words_of(name: str) -> str:
    """The words of `snake_case`, `kebab-case` and `CamelCase`, with blanks between them."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)).lower()


def _check_test_name(path: str, line: int, name: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Check the length of the name, its first word, and the banned words in it, read as a sentence."""
    words = name.split("_")[1:]
    if len(name) > vocabulary.longest_test_name:
        yield Finding(
            path, line, f"name of {len(name)} characters, at most {vocabulary.longest_test_name}; {vocabulary.test_names_say}"
        )
    if words[0] in vocabulary.test_openers:
        yield Finding(path, line, f"test opens with `{words[0]}`; {vocabulary.test_names_say}")
    for finding in _banned(path, " ".join(words), vocabulary):
        yield Finding(path, line, f"test says {finding.text}")


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


def _comments(text: str) -> str:
    """The comments of `text`, each in its line."""
    kept = [""] * (text.count("\n") + 1)
    for token in _tokens(text):
        if token.type == tokenize.COMMENT:
            kept[token.start[0] - 1] = token.string[1:]
    return "\n".join(kept)


def _strings(node: ast.AST) -> Iterator[tuple[int, int, str]]:
    """Yield first and last line and text of each string: adjacent literals are one; what an f-string inserts is a 0."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.end_lineno or node.lineno, node.value
    inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.JoinedStr):
        literal = "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        yield node.lineno, node.end_lineno or node.lineno, literal
        inner = [part for part in node.values if not isinstance(part, ast.Constant)]
    for child in inner:
        yield from _strings(child)


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string that is a statement: docstrings, also those of attributes and constants."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def check_page(path: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Check Markdown: inline code, targets of links, tags and emphasis are not prose."""
    prose = re.sub(r"`[^`\n]*`", "`0", text)
    prose = re.sub(r"\[([^\]]*)\](?:\([^)\s]*\)|\[[^\]\n]*\])|</?\w[^>\n]*>|\*+", r"\1", prose)
    yield from _banned(path, prose, vocabulary)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        table_or_link = line.lstrip().startswith(("|", "[")) or re.search(r"https?://\S{40}", line)
        if len(line) > vocabulary.longest_line and not fenced and not table_or_link:
            yield Finding(path, number, f"{len(line)} columns; lines of pages end at {vocabulary.longest_line}")


def check_plain(path: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    yield from _banned(path, re.sub(r"(?m)^(\s*)(?:#|//)", r"\1 ", text), vocabulary)


def _banned(path: str, prose: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    for word in vocabulary.words:
        if word.only_names:
            continue
        right = [found.span() for phrase in word.allowed for found in phrase.finditer(prose)]
        for found in word.pattern.finditer(prose):
            if not any(start <= found.start() and found.end() <= end for start, end in right):
                line = prose.count("\n", 0, found.start()) + 1
                yield Finding(path, line, f"`{' '.join(found[0].split())}`; say: {word.say}")


def check(path: Path, name: str, vocabulary: Vocabulary) -> list[Finding]:
    """All findings of the file at `path`, which reports call `name`."""
    checks = {**dict.fromkeys(PYTHON, check_python), **dict.fromkeys(PAGES, check_page), **dict.fromkeys(PLAIN, check_plain)}
    if path.suffix not in checks:
        return []
    return sorted(set(checks[path.suffix](name, path.read_text(encoding="utf-8"), vocabulary)))


def tracked_files(paths: Iterable[str] = ()) -> list[str]:
    """Names of the files under `paths` that git knows or that are new and not ignored; without `paths`, all of them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def _under(name: str, folders: Iterable[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def main(arguments: list[str]) -> int:
    vocabulary = read_vocabulary(ROOT / "scripts" / "prose.toml")
    missing = [path for path in arguments if not Path(path).exists()]
    if missing:
        print(f"no such file or folder: {', '.join(missing)}\nusage: check_prose.py [PATH ...]", file=sys.stderr)
        return 2
    names = tracked_files(str(Path(path).resolve()) for path in arguments)
    passed_over = () if arguments else vocabulary.not_yet
    findings: list[Finding] = []
    for name in names:
        if _under(name, vocabulary.skip) or _under(name, passed_over):
            continue
        findings += check(ROOT / name, name, vocabulary)
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"{len(names)} files, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
