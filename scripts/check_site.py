"""Check the built site and the pages behind it: links, anchors, navigation, and what of the repository pages name.

`scripts/check_site.py SITE` expects the site that `zensical build` wrote. Zensical's own strict mode knows no orphan pages
and passes over links out of `docs/`. Exit codes: 0 no finding, 1 findings, 2 usage error. Standard library only.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("contract", "jobs", "k8s", "lab", "routing", "topology")
FOLDERS = (
    "charts",
    "crds",
    "deploy",
    "docs",
    "examples",
    "images",
    "lab",
    "operator",
    "routing",
    "scripts",
    "spark-jobs",
    "tests",
)
PAGES_OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
# Folders of many pages: in place of the navigation, this page links to each of them.
INDEXED = {"decisions": "decisions/README.md"}
FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2", re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """The links and anchors of one HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            if (tag, name) in {("a", "href"), ("img", "src")}:
                self.links.append(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield a finding for each link within `site` without a file or without an anchor behind it."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:|//", address):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            where = path.relative_to(site)
            if not target.is_file() or site not in target.parents:
                yield f"{where}: link to {link}: no such page in the site"
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                yield f"{where}: link to {link}: no such anchor"


def broken_links_of_pages(root: Path) -> Iterator[str]:
    """Yield a finding for each relative link of a page's source without a file behind it, or without a definition.

    The headings that the pages above docs/ link to are looked up, too; those of docs/ are in the built site.
    """
    for path in pages_of(root, PAGES_OUTSIDE):
        name, text = path.relative_to(root), path.read_text(encoding="utf-8")
        for link in links_of(text):
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:|//", address) or not address:
                continue
            target = path.parent / unquote(address)
            if not target.exists():
                yield f"{name}: link to {link}: no such file"
            elif anchor and str(name) in PAGES_OUTSIDE and anchor not in anchors_of(target.read_text(encoding="utf-8")):
                yield f"{name}: link to {link}: no such heading"
        for label in undefined_labels(text):
            yield f"{name}: link to [{label}]: no such definition"


def pages_of(root: Path, outside: Iterable[str]) -> list[Path]:
    return [*(root / name for name in outside if (root / name).exists()), *sorted((root / "docs").rglob("*.md"))]


def without_code(markdown: str) -> str:
    return re.sub(r"`+[^`\n]*`+", "``", re.sub(FENCED, "", markdown))


def links_of(markdown: str) -> list[str]:
    """The targets of links: in place, by definition, and those of HTML."""
    prose = without_code(markdown)
    in_place = re.findall(r"\]\(\s*<?([^)\s>]+)", prose)
    defined = re.findall(r"(?m)^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)", prose)
    return [*in_place, *defined, *Page(prose).links]


def undefined_labels(markdown: str) -> list[str]:
    """The labels of `[text][label]` and `[label][]` without a `[label]: address`."""
    prose = without_code(markdown)
    defined = {label.lower() for label in re.findall(r"(?m)^ {0,3}\[([^\]\n]+)\]:", prose)}
    used = [label or text for text, label in re.findall(r"\[([^\[\]]+)\]\[([^\[\]]*)\]", prose)]
    return [label for label in used if label.lower() not in defined]


def anchors_of(markdown: str) -> set[str]:
    """The anchors of a Markdown page: its headings', as the site and Git hosts make them, and those given by hand."""
    headings = re.findall(r"(?m)^#+ +(.*?)\s*$", re.sub(FENCED, "", markdown))
    return {slug(heading) for heading in headings} | set(re.findall(r'<a (?:name|id)="([^"]+)"', markdown))


def slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


def orphans(config: Path, docs: Path) -> Iterator[str]:
    """Yield a finding for each page outside the navigation, and for each entry of the navigation without a page."""
    named = set(_pages_of(tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]))
    for folder, index in INDEXED.items():
        links = re.findall(r"\]\(([^)\s#]+)", (docs / index).read_text(encoding="utf-8"))
        named |= {f"{folder}/{link}" for link in links if "/" not in link}
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    for page in sorted(pages - named):
        yield f"docs/{page}: orphan page: neither in the navigation of {config.name} nor in the index of its folder"
    for page in sorted(named - pages):
        yield f"{config.name}: {page} is in the navigation or an index, but not in docs/"


def _pages_of(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _pages_of(inner)


def missing_files(root: Path) -> Iterator[str]:
    """Yield a finding for each path, module or name of ours that stands in backticks and does not exist.

    A path begins with a folder, a package or a room of ours, or ends in `.py`; `file.py:Name` is looked up in the file.
    """
    sources = [root, *root.glob("*/src/streamtopology"), *root.glob("*/src/streamtopology/*/"), root / "tests"]
    folders = "|".join(sorted({*FOLDERS, *PACKAGES}))
    named = re.compile(rf"(?<![\w./~$-])((?:{folders})/[\w./*-]*|(?!path/)[\w-]+/[\w./-]*\.py\b)(?::([A-Za-z_][\w.]*))?")
    dotted = re.compile(rf"\bstreamtopology((?:\.(?:{'|'.join(PACKAGES)}))(?:\.\w+)*)")
    for path in pages_of(root, PAGES_OUTSIDE[:2]):
        for code in re.findall(r"`([^`]+)`", re.sub(FENCED, "", path.read_text(encoding="utf-8"))):
            if code.startswith("kubectl "):  # names objects of Kubernetes: deploy/NAME
                continue
            for name, attribute in named.findall(code):
                files = [file for source in sources for file in source.glob(name.rstrip("./"))]
                if not files:
                    yield f"{path.relative_to(root)}: `{name}`: no such file or folder"
                elif attribute and not any(_defines(file, attribute.split(".")) for file in files):
                    yield f"{path.relative_to(root)}: `{name}:{attribute}`: no such name"
            for name in dotted.findall(code):
                if not any(_exists(source, name.split(".")[1:]) for source in root.glob("*/src/streamtopology")):
                    yield f"{path.relative_to(root)}: `streamtopology{name}`: no such module or name"


def _exists(folder: Path, names: list[str]) -> bool:
    """True if `names` are packages and modules in `folder`, or such and a name that the last of them defines."""
    if not names:
        return folder.is_dir()
    module = folder / f"{names[0]}.py"
    if module.is_file():
        return _defines(module, names[1:])
    inner = folder / names[0]
    return _exists(inner, names[1:]) if inner.is_dir() else _defines(folder / "__init__.py", names)


def _defines(file: Path, names: list[str]) -> bool:
    """True if the module defines or imports the first of `names`, and each of the others within the one before."""
    if file.suffix != ".py" or not file.is_file():
        return False
    nodes: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        found = [node for node in nodes if name in _names_of(node)]
        if not found:
            return False
        nodes = getattr(found[0], "body", [])
    return True


def _names_of(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Assign(targets=targets):
            return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0], "index.html").is_file():
        print("usage: check_site.py SITE, the folder that `zensical build` wrote", file=sys.stderr)
        return 2
    site = Path(arguments[0]).resolve()
    findings = [
        *broken_links(site),
        *broken_links_of_pages(ROOT),
        *orphans(ROOT / "zensical.toml", ROOT / "docs"),
        *missing_files(ROOT),
    ]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"site: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
