"""Manifests as files: YAML as Kubernetes' tools read it, and the examples that the repository ships."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.mistakes import VALID

from streamtopology.topology import BUILTINS, ManifestError, load, parse, to_manifest
from streamtopology.topology.groupings import BUILT_IN, GROUPINGS

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REFERENCE = (ROOT / "docs" / "guide" / "manifest.md").read_text(encoding="utf-8")
GROUPINGS_PAGE = (ROOT / "docs" / "guide" / "groupings.md").read_text(encoding="utf-8")
SHIPPED = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if "kind: StreamTopology\nmetadata" in path.read_text("utf-8")]


def _written(folder: Path, text: str) -> Path:
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _flights_with(options: object) -> str:
    """The flights example with these options of its first operator."""
    manifest: Any = yaml.safe_load((EXAMPLES / "flights.yaml").read_text(encoding="utf-8"))
    manifest["spec"]["operators"][0]["with"] = options
    return yaml.safe_dump(manifest)


def test_the_only_topology_among_other_objects_is_read(tmp_path: Path) -> None:
    volume = "kind: PersistentVolumeClaim\nmetadata: {name: data}\n---\n"
    flights = (EXAMPLES / "flights.yaml").read_text(encoding="utf-8")
    assert load(_written(tmp_path, volume + flights)) == load(EXAMPLES / "flights.yaml")
    with pytest.raises(ManifestError, match="found 2 of kind StreamTopology among 3 YAML documents"):
        load(_written(tmp_path, volume + flights + "\n---\n" + flights))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3: not YAML: "),
        ("a: 1\n---\nb: 2\n", "found 0 of kind StreamTopology among 2 YAML documents, expected one"),
        ("", "the file is empty"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "line 4: not YAML: the field 'c' is written twice"),
        ("a: 0x" + "f" * 5000, "line 1: not YAML: found 0xffff.*beyond 64 bits"),
        ("a: !!python/object:os.system x\n", "line 1: not YAML: could not determine a constructor"),
        ("a: " + "[" * 1200, "not YAML: "),
    ],
)
def test_broken_yaml_says_where(tmp_path: Path, text: str, problem: str) -> None:
    path = _written(tmp_path, text)
    with pytest.raises(ManifestError, match=problem) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path} has 1 problem:")


def test_a_file_loads_with_dates_as_text_and_merged_fields(tmp_path: Path) -> None:
    text = _flights_with({"since": "DATE", "k": 3}).replace("DATE", "2013-01-01").replace("k: 3", "<<: {k: 1}\n      k: 3")
    assert load(_written(tmp_path, text)).operators[0].options == {"since": "2013-01-01", "k": 3}


def test_bare_on_is_a_name_and_other_such_names_are_refused(tmp_path: Path) -> None:
    text = _flights_with({"lookup": {"on": "k"}})
    assert "'on': k" in text
    assert load(_written(tmp_path, text.replace("'on': k", "on: k"))).operators[0].options == {"lookup": {"on": "k"}}
    with pytest.raises(
        ManifestError, match=r"found the name true or false, as YAML reads a bare yes, no, on or off, expected a"
    ):
        load(_written(tmp_path, text.replace("'on': k", "yes: k")))


def _with_option(folder: Path, plain: str) -> Path:
    """A manifest whose source has the option nullValue: `plain`, without quotes."""
    text = yaml.safe_dump(VALID).replace("header: true", f"header: true\n      nullValue: {plain}")
    return _written(folder, text)


@pytest.mark.parametrize(
    ("plain", "remedy"),
    [
        ("0.10", "found 0.10, which YAML reads as 0.1: write 0.1, or '0.10' with quotes for the text"),
        ("1_000", "found 1_000, which YAML reads as 1000: write 1000, or '1_000'"),
        ("0x10", "found 0x10, which YAML reads as 16: write 16"),
        ("1e3", "found 1e3, which YAML reads as 1000.0"),
        ("0.00001", "found 0.00001, which YAML reads as 1e-05"),
        (".inf", "found .inf, which YAML reads as inf"),
        ("no", "found no, which YAML reads as false: write false, or 'no' with quotes for the text"),
        ("True", "found True, which YAML reads as true"),
        ("NULL", "found NULL, which YAML reads as no value: leave it out, or 'NULL' with quotes for the text"),
        ("010", "line [0-9]+: not YAML: found 010, .* write 10, or 8 if it is octal, or '010' with quotes"),
        ("08", "found 08, .* write 8, or '08' with quotes"),
        ("00_7", "found 00_7, .* write 7, or '00_7' with quotes"),
        ("1e999", "found 1e999, a number beyond 1.8e308"),
    ],
)
def test_option_that_yaml_reads_as_another_text_is_refused(tmp_path: Path, plain: str, remedy: str) -> None:
    with pytest.raises(ManifestError, match=remedy):
        load(_with_option(tmp_path, plain))
    assert load(_with_option(tmp_path, f"'{plain}'")).sources[0].options["nullValue"] == plain


@given(st.text("0123456789._:+-xXoObBeEaAfFnNuUlLyYsStTrR~=", min_size=1, max_size=8))
@example("12:30:00").via("a time was read as a number of base 60")
@example("190:20:30.15").via("so was one with a fraction")
@example("2024-01-01").via("a date")
@example("=").via("had no meaning")
def test_option_has_the_text_that_is_written_or_is_refused(plain: str) -> None:
    with TemporaryDirectory() as folder:
        try:
            loaded = load(_with_option(Path(folder), plain))
        except ManifestError:
            return
    assert loaded.sources[0].options["nullValue"] == plain


@given(st.text("0123456789_:xobe+", min_size=1, max_size=5))
@example("010").via("was 8")
@example("1:30").via("was 90")
def test_number_of_a_field_is_the_one_that_is_written_or_refused(plain: str) -> None:
    text = yaml.safe_dump(VALID).replace("parallelism: 6", f"parallelism: {plain}")
    with TemporaryDirectory() as folder:
        try:
            loaded = load(_written(Path(folder), text))
        except ManifestError:
            return
    assert loaded.operator("per-city").parallelism == int(plain.replace("_", ""), 0)


def test_number_of_json_with_several_texts_is_refused_as_an_option() -> None:
    manifest = copy.deepcopy(VALID)
    manifest["spec"]["sources"][0]["options"]["nullValue"] = 1e20
    with pytest.raises(ManifestError, match=r"nullValue: found the number 1e\+20, which has several texts"):
        parse(manifest)


def test_options_that_an_anchor_brings_are_checked_as_written(tmp_path: Path) -> None:
    text = yaml.safe_dump(VALID).replace("header: true", "<<: &base {nullValue: 0.10}\n      header: true")
    with pytest.raises(ManifestError, match=r"options\.nullValue: found 0\.10, which YAML reads as 0\.1"):
        load(_written(tmp_path, text))


def test_bare_word_that_yaml_reads_as_true_is_no_column(tmp_path: Path) -> None:
    text = yaml.safe_dump(VALID).replace("key: city", "key: on")
    with pytest.raises(ManifestError, match=r"grouping\.key: found true, .* a bare yes, no, on or off as true or false"):
        load(_written(tmp_path, text))


def test_an_alias_that_contains_itself_is_a_problem(tmp_path: Path) -> None:
    text = _flights_with("ITSELF").replace("ITSELF", "&loop {again: *loop}")
    with pytest.raises(ManifestError, match="is nested deeper than 16 levels"):
        load(_written(tmp_path, text))


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    topology = load(path)
    assert parse(to_manifest(topology)) == topology


def _fields(value: object, path: str = "") -> set[str]:
    """Paths of all fields in `value`, items of a list as one; what is the user's own or Kubernetes' is not entered."""
    if isinstance(value, list):
        return {field for item in value for field in _fields(item, path)}
    if not isinstance(value, dict) or path.endswith((".options", ".with")) or ".pod." in path:
        return {path}
    return {path, *(field for name, item in value.items() for field in _fields(item, f"{path}.{name}"))}


def test_the_reference_has_a_complete_manifest_with_the_defaults_it_claims(tmp_path: Path) -> None:
    text = REFERENCE.split("```yaml\n")[1].split("```")[0]
    topology = load(_written(tmp_path, text))
    assert _fields(to_manifest(topology)) == _fields(yaml.safe_load(text))
    without_defaults = "\n".join(line for line in text.splitlines() if "# default" not in line)
    elsewhere = {"image": None, "image_pull_policy": None}  # these defaults are the operator's and Kubernetes'
    assert load(_written(tmp_path, without_defaults)) == replace(topology, **elsewhere)


def test_the_reference_names_every_grouping_and_builtin() -> None:
    for name in GROUPINGS:
        assert f"| `{name}` |" in GROUPINGS_PAGE
    for name in BUILTINS:
        assert f"| `{name}` |" in REFERENCE
    assert f"one of {len(BUILT_IN)} built-in policies" in REFERENCE
