"""One YAML document from a file, read the way Kubernetes' own tools read it: no dates, no silent second key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from streamtopology.topology.problems import ManifestError, Problem
from streamtopology.topology.reading import is_mapping
from streamtopology.topology.values import KIND


class _Refused(yaml.MarkedYAMLError):
    """YAML that other readers take; `remedy` says what to write in its place."""

    def __init__(self, problem: str, remedy: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.remedy = remedy


class _Loader(yaml.SafeLoader):
    """YAML's safe values, but a date stays text, and a field written twice or an endless number is a mistake."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise _Refused(f"the field {key.value!r} is written twice", "remove one of them", key.start_mark)
            seen.add(key.value)
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number = super().construct_yaml_int(node)
        if not -(2**63) <= number < 2**63:
            problem = f"found {node.value[:40]}, a whole number beyond 64 bits"
            raise _Refused(problem, "write it with quotes if it is a text", node.start_mark)
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
