"""The CRD and the parser are of one mind: fields, defaults, limits, words. (tests/kubernetes asks a real API server.)"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.mistakes import GONE, VALID, changed, complete_manifest

from streamtopology.topology import ManifestError, parse
from streamtopology.topology.crd import custom_resource_definition
from streamtopology.topology.crd.admission import admission_policy
from streamtopology.topology.crd.snapshot import snapshot_definition

CRDS = Path(__file__).parents[2] / "crds"
SCHEMA: Any = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]  # type: ignore[index]
COMPLETE = complete_manifest()
SEVERAL = "spec.autoscale.classes"
# The complete manifest but for what classes in `autoscale` stand in place of.
OF_SEVERAL = changed(
    ("spec.autoscale", {"by": "Operator", "classes": [{"name": "small", "minReplicas": 1, "maxReplicas": 9}]}), of=COMPLETE
)


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("streamtopologies.streamtopology.dev.yaml", [custom_resource_definition()]),
        ("streamtopologysnapshots.streamtopology.dev.yaml", [snapshot_definition()]),
        ("admission-policy.yaml", admission_policy()),
    ],
)
def test_the_files_are_up_to_date(name: str, objects: list[object]) -> None:
    written = list(yaml.safe_load_all((CRDS / name).read_text(encoding="utf-8")))
    assert written == objects, "run `make crds`"


def _nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field below, by the path that the complete manifest has it under."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _nodes(field, f"{path}.{name}")
    if "items" in schema:
        yield from _nodes(schema["items"], f"{path}[0]")


SPEC_FIELDS = dict(_nodes(SCHEMA["properties"]["spec"], "spec"))


@pytest.mark.parametrize("definition", [custom_resource_definition(), snapshot_definition()], ids=["topology", "snapshot"])
def test_every_field_is_explained(definition: Any) -> None:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    bare = [path for path, field in _nodes(schema, "") if path != ".metadata" and not field.get("description")]
    assert bare == [".metadata.name"]


def _mappings(value: Any, path: str) -> Iterator[str]:
    """Paths of the mappings of the complete manifest whose fields the schema names; of a list, its first item."""
    if isinstance(value, list):
        yield from _mappings(value[0], f"{path}[0]")
    elif isinstance(value, dict):
        yield path
        for name, item in value.items():
            if not path.endswith(".pod") and name not in ("options", "with", "inputs", "select", "sparkConf"):
                yield from _mappings(item, f"{path}.{name}")


def _schema_at(path: str) -> dict[str, Any]:
    if path == "spec":
        return SCHEMA["properties"]["spec"]
    return SPEC_FIELDS[path[:-3]]["items"] if path.endswith("[0]") else SPEC_FIELDS[path]


def _values(value: Any, path: str) -> Iterator[str]:
    """Paths of all fields of the complete manifest; those of each item of a list as of its first."""
    for name, item in value.items() if isinstance(value, dict) else ():
        yield f"{path}.{name}"
        yield from _values(item, f"{path}.{name}")
    for item in value if isinstance(value, list) else ():
        yield from _values(item, f"{path}[0]")


def test_complete_manifest_of_the_docs_has_every_field() -> None:
    """In one of its pods a pod's settings are complete between them."""
    shown = {re.sub(r"spec\.(executors\[0\]|driver)\.pod", "pod", path) for path in _values(COMPLETE["spec"], "spec")}
    fields = {re.sub(r"spec\.(executors\[0\]|driver)\.pod", "pod", path) for path in SPEC_FIELDS}
    assert {path for path in fields - shown if not path.startswith(SEVERAL)} == set()


def _complete(path: str) -> dict[str, Any]:
    """The complete manifest that has this field."""
    return OF_SEVERAL if path.startswith(SEVERAL) else COMPLETE


@pytest.mark.parametrize("path", [*_mappings(COMPLETE["spec"], "spec"), f"{SEVERAL}[0]"])
def test_schema_and_parser_know_the_same_fields(path: str) -> None:
    """A field that neither knows makes the parser list those that it knows."""
    with pytest.raises(ManifestError) as raised:
        parse(changed((f"{path}.unknownField", 1), of=_complete(path)))
    [problem] = [problem for problem in raised.value.problems if problem.path == f"{path}.unknownField"]
    known = problem.message.split("allowed: ")[1].split(";")[0].split(", ")
    assert set(known) == set(_schema_at(path)["properties"])


# The complete manifest shows a container before ours in the executors' pods only.
NOT_SHOWN = "spec.driver.pod.initContainers[0]"
LIMITED = [
    path
    for path, field in SPEC_FIELDS.items()
    if ("minimum" in field or "enum" in field or "maxItems" in field) and not path.startswith(NOT_SHOWN)
]


def _refused(path: str, value: object) -> bool:
    try:
        parse(changed((path, value), of=_complete(path)))
    except ManifestError as error:
        return any(path.startswith(problem.path) or problem.path.startswith(path) for problem in error.problems)
    return False


@pytest.mark.parametrize("path", LIMITED)
def test_schema_and_parser_have_the_same_limits(path: str) -> None:
    field = SPEC_FIELDS[path]
    if "enum" in field:
        assert not any(_refused(path, word) for word in field["enum"] if not path.endswith("policy"))
        assert _refused(path, "unheard-of")
    if field.get("type") == "number":
        assert _refused(path, field["minimum"])
        assert not _refused(path, field["maximum"])
        assert _refused(path, field["maximum"] + 0.01)
    if field.get("type") == "integer":
        beside = [field["minimum"] - 1, field["maximum"] + 1]
        assert [_refused(path, value) for value in beside] == [True, True]
        inside = [value for value in (field["minimum"], field["maximum"]) if not _crosses_another_field(path, value)]
        assert not any(_refused(path, value) for value in inside)
    if field.get("type") == "array":
        assert _refused(path, [{"name": f"n{number}"} for number in range(field["maxItems"] + 1)])
        assert bool(field.get("minItems")) == _refused(path, [])


def _crosses_another_field(path: str, value: int) -> bool:
    """Bounds of autoscale bound each other, too, and one of several classes keeps an executor."""
    if path == f"{SEVERAL}[0].minReplicas":
        return True
    return path in ("spec.autoscale.minReplicas", "spec.autoscale.maxReplicas") and value != 0


def _defaulted(value: Any, schema: dict[str, Any]) -> Any:
    """As the API server does it: defaults of absent fields, then of what is inside."""
    if isinstance(value, dict):
        fields: dict[str, Any] = schema.get("properties", {})
        absent = {name: copy.deepcopy(field["default"]) for name, field in fields.items() if "default" in field}
        return {name: _defaulted(item, fields.get(name, {})) for name, item in {**absent, **value}.items()}
    if isinstance(value, list):
        return [_defaulted(item, schema.get("items", {})) for item in value]
    return value


@pytest.mark.parametrize(
    "manifest",
    [
        VALID,
        COMPLETE,
        OF_SEVERAL,
        changed(("spec.rebalance", GONE), ("spec.autoscale", {"class": "small"})),
        changed(("spec.operators[1].grouping.policy", GONE)),
        changed(("spec.driver", {}), ("spec.trigger", {"interval": "5s"}), ("spec.migration", {})),
    ],
)
def test_the_schemas_defaults_are_the_parsers(manifest: dict[str, Any]) -> None:
    filled = _defaulted(manifest, SCHEMA)
    assert filled != manifest or manifest is COMPLETE
    assert parse(filled) == parse(manifest)
