"""Write the generated pages of docs/: the CRD from crds/, the Python API from docstrings, the index of decisions.

`make reference` runs it; `tests/test_docs.py` fails while a page differs from what this script would write.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from streamtopology.topology.quantities import LONGEST_QUANTITY

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SUBJECTS = (
    "routing and planning",
    "data plane",
    "state and checkpoints",
    "sources, sinks and event time",
    "executors and scaling",
    "Kubernetes operator",
    "images and installation",
    "testing",
    "project and tools",
)
# Numbers of no decision.
UNUSED = (19, 25, 52, 53, 55, 58)
# Methods of the API's classes that the runtime calls and users do not: left out of the page.
RUNTIME_METHODS = re.compile(
    r"apply|changed_since|changes|columns|commit|dealt|declare_cost|delta|evict|extract|fits|fitted|from_arrays|hashes|insert|"
    r"iterations_per_tuple|leaving|mark_version|of_bytes|of_values|put_aside|remove|restore|rollback|to_arrow|to_numpy|widened|"
    r"with_hashes|written"
)
CRD = ROOT / "crds" / "streamtopologies.streamtopology.dev.yaml"
SNAPSHOT_CRD = ROOT / "crds" / "streamtopologysnapshots.streamtopology.dev.yaml"


def crd_page() -> str:
    """The page of the CRD: each field of spec and status with type, default, limits and description."""
    explained = (
        "the [manifest](../guide/manifest.md)",
        "explains the fields with examples, [another page](crd-snapshots.md) has those of snapshots.",
    )
    return _page_of(CRD, "CRD", explained)


def snapshot_crd_page() -> str:
    """The page of the CRD of snapshots."""
    explained = ("[snapshots](../run/operations.md#snapshots)", "explains them.")
    return _page_of(SNAPSHOT_CRD, "CRD of snapshots", explained)


def _page_of(file: Path, title: str, explained: tuple[str, str]) -> str:
    """The page of a resource definition. `explained`: the end of a line and the next one, about the page that explains it."""
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    version = crd["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    names = crd["names"]
    short = names["shortNames"][0]
    lines = [
        f"# {title}",
        "",
        f"`{names['plural']}.{crd['group']}`, version `{version['name']}`, kind `{names['kind']}`, short name `{short}`,",
        f"{crd['scope'].lower()}. Generated from `crds/` by `make reference`; {explained[0]}",
        explained[1],
        f"`kubectl explain {short}.spec --recursive` shows the same.",
        "",
        f"## Columns of `kubectl get {short}`",
        "",
        "| column | path |",
        "| --- | --- |",
        *(f"| {column['name']} | `{column['jsonPath'].lstrip('.')}` |" for column in version["additionalPrinterColumns"]),
    ]
    for part in ("spec", "status"):
        lines += ["", f"## {part}", "", "| field | type | default | limits | meaning |", "| --- | --- | --- | --- | --- |"]
        lines += _fields(part, schema[part])
    return "\n".join(lines) + "\n"


def _fields(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}"
        yield _row(inner, field, name in required)
        if field.get("type") == "array":
            inner, field = f"{inner}[]", field["items"]
        elif isinstance(field.get("additionalProperties"), dict):
            inner, field = f"{inner}.*", field["additionalProperties"]
        yield from _fields(inner, field)


def _row(path: str, field: Mapping[str, Any], required: bool) -> str:
    default = f"`{field['default']}`" if "default" in field else ("required" if required else "")
    cells = (f"`{path}`", _type(field), default, _limits(field), _one_line(field.get("description", "")))
    return f"| {' | '.join(cells)} |"


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "type" not in field and field.get("maxLength") == LONGEST_QUANTITY:
        return "number or string"
    if field.get("type") == "array":
        return f"list of {field['items'].get('type', 'any')}"
    return field.get("type", "any")


def _limits(field: Mapping[str, Any]) -> str:
    limits = [", ".join(f"`{value}`" for value in field.get("enum", ()))]
    for low, high, what in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        least, most = field.get(low), field.get(high)
        if least is not None and most is not None:
            limits.append(f"{least} to {most}{what}")
        elif most is not None:
            limits.append(f"at most {most}{what}")
        elif least is not None and (what != " characters" or least > 1):
            limits.append(f"at least {least}{what}")
    return "; ".join(limit for limit in limits if limit)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def api_page(module_name: str = "streamtopology.api") -> str:
    """The page of the Python API: signature and docstring of each name that the module exports."""
    module = importlib.import_module(module_name)
    lines = [
        "# Python API",
        "",
        f"A user's own operators import from `{module_name}` and from nothing else of this project; a topology in Python",
        "imports [`Topology`](../guide/python.md). This page is generated from its docstrings by `make reference`;",
        "[your first operator](../start/first-operator.md) shows it in use.",
        "",
        _doc(module),
    ]
    for name in module.__all__:
        lines += ["", *_documented(name, getattr(module, name))]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _documented(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        yield f"`{name}`: `{value!r}`"
        return
    if signature := _signature(value):
        yield from ("```py", f"{name}{signature}", "```", "")
    yield _doc(value)
    if not inspect.isclass(value):
        return
    for member, attribute in vars(value).items():
        documented = inspect.unwrap(getattr(attribute, "__func__", getattr(attribute, "fget", attribute)))
        if (
            member.startswith("_")
            or RUNTIME_METHODS.fullmatch(member)
            or not inspect.isfunction(documented)
            or not documented.__doc__
        ):
            continue
        yield ""
        yield f"### {name}.{member}"
        yield ""
        if isinstance(attribute, property):
            yield f"Property. {_doc(documented)}"
        else:
            yield from ("```py", f"{member}{_signature(documented)}", "```", "", _doc(documented))


def _doc(value: Any) -> str:
    """The docstring as Markdown: its doctests become fenced blocks."""
    text = "" if isinstance(value, types.GenericAlias | types.UnionType) else inspect.getdoc(value) or ""
    return re.sub(r"(?m)^>>> (?:.+\n?)+", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


def _signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    return re.sub(r"<factory>|<object object at 0x\w+>", "...", signature).replace("'", "")


@dataclass(frozen=True)
class Decision:
    number: int
    file: str
    date: str
    status: str
    subject: str
    title: str


def decisions() -> list[Decision]:
    """Read number, front matter and title of each decision. ValueError names the file that lacks one."""
    found: list[Decision] = []
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        parts = re.match(r"---\n(.*?)\n---\n+# (\d+)\. ([^\n]+)\n", text, re.DOTALL)
        matter = yaml.safe_load(parts[1]) if parts else {}
        if parts is None or int(parts[2]) != int(path.name[:4]) or set(matter) != {"date", "status", "subject"}:
            raise ValueError(
                f"{path.name}: needs front matter with date, status and subject, then `# {int(path.name[:4])}. Title`"
            )
        if matter["subject"] not in SUBJECTS:
            raise ValueError(f"{path.name}: subject {matter['subject']!r}; allowed: {', '.join(SUBJECTS)}")
        found.append(Decision(int(parts[2]), path.name, str(matter["date"]), matter["status"], matter["subject"], parts[3]))
    return found


def decisions_page() -> str:
    """The index of decisions by subject."""
    found = decisions()
    lines = [
        "# Decisions",
        "",
        "Choices that someone will ask about: what was decided, why, and which alternatives were considered. A decision that",
        "is revised keeps its number and says so in its status. Each file begins with date, status and subject; this index is",
        "generated from them by `make reference`.",
        "",
        f"Numbers {', '.join(map(str, UNUSED[:-1]))} and {UNUSED[-1]} were never used: decisions were written on parallel"
        " branches that had",
        "reserved ranges of numbers, and these were left over. No file with such a number was ever committed.",
    ]
    for subject in SUBJECTS:
        lines += [
            "",
            f"## {subject[0].upper()}{subject[1:]}",
            "",
            "| | decision | date | status |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            f"| {one.number} | [{one.title}]({one.file}) | {one.date} | {one.status} |"
            for one in found
            if one.subject == subject
        ]
    return "\n".join(lines) + "\n"


GENERATED = {
    "reference/crd.md": crd_page,
    "reference/crd-snapshots.md": snapshot_crd_page,
    "reference/python-api.md": api_page,
    "decisions/README.md": decisions_page,
}


def main() -> None:
    for name, page in GENERATED.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
