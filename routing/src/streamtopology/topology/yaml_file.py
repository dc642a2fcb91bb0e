"""One YAML document from a file, read the way Kubernetes' own tools read it: no dates, no times that become numbers, no
silent second key; and no number that people and YAML 1.1 read differently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from streamtopology.topology.problems import ManifestError, Problem
from streamtopology.topology.reading import WrittenMapping, is_mapping, option_text
from streamtopology.topology.values import KIND

_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT = f"{_TAG}int", f"{_TAG}float"
_SCALARS = (_INT, _FLOAT, f"{_TAG}bool", f"{_TAG}null")
_READ_OTHERWISE = (_INT, _FLOAT, f"{_TAG}timestamp", f"{_TAG}value")
_WHOLE = re.compile(r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)\Z")
_REAL = re.compile(
    r"[-+]?(?:(?:\.[0-9][0-9_]*|[0-9][0-9_]*\.[0-9_]*)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)\Z"
    r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)
_ON = "on"
_LEADING_ZERO = re.compile(r"([-+]?)0[0-9_]*[1-9]")


class _Refused(yaml.MarkedYAMLError):
    """YAML that other readers take; `remedy` says what to write in its place."""

    def __init__(self, problem: str, remedy: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.remedy = remedy


class _Loader(yaml.SafeLoader):
    """YAML's safe values, but dates and times stay texts, and a field written twice, a number with a leading zero or an
    endless one is a mistake. A mapping keeps the texts of values that are written otherwise than they would be as texts.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value == _ON:  # a field of lookups, which YAML 1.1 reads as true
                key.tag = f"{_TAG}str"
            if key.value in seen:
                raise _Refused(f"the field {key.value!r} is written twice", "remove one of them", key.start_mark)
            seen.add(key.value)
        return node

    def construct_yaml_map(self, node: yaml.MappingNode) -> Iterator[dict[Any, Any]]:
        self.flatten_mapping(node)
        scalars = [(key.value, value) for key, value in node.value if value.tag in _SCALARS and key.id == "scalar"]
        texts = {name: value.value for name, value in scalars if value.value != self._option_text(value)}
        mapping: dict[Any, Any] = WrittenMapping(texts) if texts else {}
        yield mapping
        mapping.update(self.construct_mapping(node))

    def _option_text(self, node: yaml.ScalarNode) -> str:
        value = self.yaml_constructors[node.tag](self, node)
        return option_text(value)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        written = node.value
        if _LEADING_ZERO.match(written):
            problem = f"found {written[:40]}, a whole number that begins with 0, which YAML 1.1 reads as octal"
            raise _Refused(
                problem, f"write {_meanings(written)}, or '{written[:40]}' with quotes for the text", node.start_mark
            )
        number = int(written.replace("_", ""), 0)
        if not -(2**63) <= number < 2**63:
            problem = f"found {written[:40]}, a whole number beyond 64 bits"
            raise _Refused(problem, "write it with quotes if it is a text", node.start_mark)
        return number

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        written = node.value.replace("_", "").lower()
        number = float(written.replace(".inf", "inf").replace(".nan", "nan"))
        if math.isinf(number) and "inf" not in written:
            problem = f"found {node.value[:40]}, a number beyond 1.8e308"
            raise _Refused(problem, "write it with quotes if it is a text", node.start_mark)
        return number


def _meanings(written: str) -> str:
    """The numbers that may be meant by one with a leading zero."""
    digits = written.replace("_", "")[:40]
    meant = int(digits)
    octal = meant if set(digits) & {"8", "9"} else int(digits, 8)
    return str(meant) if octal == meant else f"{meant}, or {octal} if it is octal"


_Loader.add_constructor(_INT, _Loader.construct_yaml_int)
_Loader.add_constructor(_FLOAT, _Loader.construct_yaml_float)
_Loader.add_constructor(f"{_TAG}map", _Loader.construct_yaml_map)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _READ_OTHERWISE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+.0123456789":
    _Loader.yaml_implicit_resolvers.setdefault(_first, []).extend([(_INT, _WHOLE), (_FLOAT, _REAL)])


def _remedy(error: yaml.MarkedYAMLError) -> str:
    if isinstance(error, _Refused):
        return error.remedy
    if "'\\t'" in str(error.problem):
        return "indent with spaces in place of the tab"
    return "check the indentation, brackets and quotes of this line and the one before"


def read_yaml(path: Path) -> object:
    """The file's only document, or its only StreamTopology, as a file for `kubectl apply` may hold more.

    ManifestError with the line for broken YAML, and for none or several.
    """
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}" if error.problem_mark else ""
        sentence = f"not YAML: {error.problem or error.context}; {_remedy(error)}"
        raise ManifestError([Problem(line, sentence)], str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ManifestError([Problem("", f"not YAML: {error}")], str(path)) from error
    if len(documents) > 1:
        topologies = [document for document in documents if is_mapping(document) and document.get("kind") == KIND]
        if len(topologies) == 1:
            return topologies[0]
        message = f"found {len(topologies)} of kind {KIND} among {len(documents)} YAML documents, expected one in a file"
        raise ManifestError([Problem("", message)], str(path))
    if not documents or documents[0] is None:
        raise ManifestError([Problem("", "the file is empty, expected a StreamTopology")], str(path))
    return documents[0]


class _Dumper(yaml.SafeDumper):
    """Texts that any reader of YAML takes for something else are quoted, and no value stands for another place of it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None if data.isprintable() else '"'
        return yaml.ScalarNode(f"{_TAG}str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)
_Dumper.yaml_implicit_resolvers = {
    first: [*yaml.SafeDumper.yaml_implicit_resolvers.get(first, []), *resolvers]
    for first, resolvers in (yaml.SafeDumper.yaml_implicit_resolvers | _Loader.yaml_implicit_resolvers).items()
}


def yaml_text(manifest: object) -> str:
    """The text of a file that `read_yaml` reads to `manifest`, of plain dicts, lists and scalars."""
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
