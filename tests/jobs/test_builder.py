"""`from streamtopology import Topology`: the values of the YAML form, its options, its sentences; runs are in tests/runs."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Required, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamtopology.builder.topology
from streamtopology import Topology
from streamtopology.builder import SinkWriter, Stream, StreamReader, options
from streamtopology.jobs.cli.run import run as run_command
from streamtopology.jobs.connectors.sinks import registry as sinks
from streamtopology.jobs.connectors.sources.descriptors import known_options
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.operators.base import COMMON_OPTIONS, option_names, required_options
from streamtopology.jobs.operators.processors.operator import StatefulProcessorOperator
from streamtopology.jobs.operators.registry import BUILTINS
from streamtopology.jobs.runtime.preflight.checks import examine
from streamtopology.jobs.users_code.modules import LoadError, module_from_file
from streamtopology.topology import ManifestError, parse, read_yaml, to_manifest
from streamtopology.topology.crd.spec import spec_schema
from streamtopology.topology.parsing import SPEC_FIELDS
from streamtopology.topology.yaml_file import yaml_text

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = {
    path.relative_to(EXAMPLES).with_suffix("").as_posix(): path
    for path in EXAMPLES.rglob("*.yaml")
    if "\nkind: StreamTopology\n" in path.read_text()
}


def in_python() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("in_python", EXAMPLES / "in_python.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Those that are for Kubernetes: settings of pods are Kubernetes' own, word for word, in both forms.


def first_k8s(pod: Any) -> Any:
    topology = Topology(
        "clicks",
        checkpoint="/data/checkpoint",
        driver={"cpu": "500m", "memory": "2Gi", "pod": pod("driver")},
        trigger={"interval": "2s"},
        rebalance={"interval": "5s"},
    )
    topology.executors("large", replicas=2, cpu="400m", memory="1Gi", pod=pod("large"))
    topology.executors("small", replicas=1, cpu="150m", memory="1Gi", pod=pod("small"))
    page = "CAST(floor(1000 * power((value * 7919 % 1000003) / 1000003, 4)) AS BIGINT) AS page"
    rows = topology.read.format("clicks", "rate", {"rowsPerSecond": 10000}, select=[page])
    rows.key_by("page").count("pages", costPerTuple="15us").write.parquet("counts", "/data/pages")
    return topology


def flights_k8s(pod: Any) -> Any:
    driver = {"cpu": "500m", "memory": "3Gi", "pod": pod("driver")}
    topology = Topology("flights", checkpoint="/flights/checkpoint", driver=driver, rebalance={"interval": "5s"})
    topology.executors("large", replicas=2, cpu="400m", memory="1Gi", pod=pod("large"))
    topology.executors("small", replicas=1, cpu="150m", memory="1Gi", pod=pod("small"))
    local = in_python().flights().to_manifest()["spec"]
    (source,) = local["sources"]
    rows = topology.read.parquet(
        "flights",
        "/flights/data/*.parquet",
        source["schema"],
        maxFilesPerTrigger=1,
        select=source["select"],
        where=source["where"],
    )
    tail = rows.key_by("tailnum").quantiles("tail", **local["operators"][0]["with"])
    destination = tail.key_by("dest").quantiles("destination", **local["operators"][1]["with"])
    destination.write.parquet("delays", "/flights/delays")
    return topology


def autoscale_operator(pod: Any) -> Any:
    scaled = {"class": "large", "by": "Operator", "replicas": 1, "maxReplicas": 6}
    topology = Topology(
        "flow",
        checkpoint="/flow/checkpoint",
        driver={"pod": pod("driver")},
        autoscale={**scaled, "targetUtilisation": 0.7, "stabilisation": "2m"},
    )
    topology.executors("large", cpu="500m", pod=pod("large")).executors("small", replicas=1, cpu="250m", pod=pod("small"))
    ticks = topology.read.format("ticks", "rate", {"rowsPerSecond": 20000}, "timestamp TIMESTAMP, value BIGINT")
    ticks.key_by("value").count("counts", emit="nothing", costPerTuple="50us")
    return topology


def autoscale_keda(pod: Any) -> Any:
    scaled = {"class": "large", "by": "External", "replicas": 3, "maxReplicas": 8}
    topology = Topology("flights", checkpoint="s3://streams/flights", driver={"pod": pod("driver")}, autoscale=scaled)
    topology.executors("large", cpu=1, pod=pod("large")).executors("small", replicas=2, cpu="500m", pod=pod("small"))
    text = "decode(value, 'replace')"
    arrivals = topology.read.kafka(
        "arrivals",
        "kafka.kafka:9092",
        "flights",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=100000,
        select=[
            f"json_extract_string({text}, '$.dest') AS dest",
            f"TRY_CAST(json_extract_string({text}, '$.arr_delay') AS INT) AS arr_delay",
        ],
        where=f"json_valid({text})",
    )
    delays = arrivals.key_by("dest").quantiles(
        "destination", column="arr_delay", min=-60, max=180, quantiles=[0.5, 0.9, 0.99], emit="updates"
    )
    delays.write.kafka("delays", "kafka.kafka:9092", "delays")
    return topology


def gang(pod: Any) -> Any:
    driver = {"cpu": "500m", "memory": "2Gi", "pod": pod("driver")}
    topology = Topology("visits", checkpoint="s3://streams/visits", driver=driver)
    topology.executors("large", replicas=4, cpu=1, pod=pod("large"))
    page = ["CAST(value AS STRING) AS page"]
    visits = topology.read.kafka("visits", "kafka.kafka:9092", "visits", startingOffsets="earliest", select=page)
    visits.key_by("page").count("pages", emit="updates").write.kafka("totals", "kafka.kafka:9092", "pages")
    return topology


def pod_settings(pod: Any) -> Any:
    driver = {"cpu": "500m", "memory": "2Gi", "pod": pod("driver")}
    topology = Topology("orders", checkpoint="s3://streams/orders", driver=driver)
    topology.executors("large", replicas=2, cpu=1, pod=pod("large"))
    shop = ["json_extract_string(CAST(value AS STRING), '$.shop') AS shop"]
    orders = topology.read.kafka("orders", "kafka.kafka:9092", "orders", startingOffsets="earliest", select=shop)
    orders.key_by("shop").count("shops", emit="updates").write.kafka("totals", "kafka.kafka:9092", "shops")
    return topology


def schedule(pod: Any) -> Any:
    topology = Topology(
        "visits", checkpoint="/visits/checkpoint", driver={"pod": pod("driver")}, trigger={"availableNow": True}
    ).executors("large", replicas=2, cpu=1, pod=pod("large"))
    visits = topology.read.parquet("visits", "/visits/data/*.parquet", "page STRING")
    visits.key_by("page").count("pages", emit="updates").write.kafka("totals", "kafka.kafka:9092", "pages")
    return topology


KUBERNETES = {
    make.__name__.replace("_", "-"): make
    for make in (first_k8s, flights_k8s, autoscale_operator, autoscale_keda, gang, pod_settings, schedule)
}
POLICY_OPTIONS: dict[str, dict[str, Any]] = {
    "bounded-hash": {"epsilon": 0.05},
    "dkg": {"theta": 0.02, "mu": 64},
    "porc": {"epsilon": 0.05},
    "posg": {"window": 200},
    "posg-merged": {"window": 200},
}


def with_policy(policy: str) -> Any:
    topology = Topology(f"words-{policy}", trigger={"availableNow": True})
    topology.executors("large", replicas=2, cpu="500m").executors("small", replicas=1, cpu="150m")
    lines = topology.read.text("lines", "examples/data/text/*.txt", maxFilesPerTrigger=1)
    words: Any = lines.map("words", select=[in_python().WORD], where="regexp_matches(value, '[A-Za-z]')")
    options = POLICY_OPTIONS.get(policy, {})
    if policy.startswith("locality"):
        beginnings = words.map("beginnings", select=["word", "left(word, 1) AS initial"])
        words = beginnings.key_by("initial", policy=policy).count("initials", emit="tuples")
    counts = words.key_by("word", policy=policy, **options).count("counts")
    counts.write.parquet("counts", f"build/policies/{policy}")
    return topology


def made(name: str) -> Any:
    """The Python form of an example."""
    folder, _, policy = name.rpartition("/")
    if folder:
        return with_policy(policy)
    if name not in KUBERNETES:
        return getattr(in_python(), name.replace("-", "_"))()
    manifest: Any = read_yaml(FILES[name])
    spec = manifest["spec"]
    pods = {"driver": spec["driver"]["pod"], **{one["name"]: one["pod"] for one in spec["executors"]}}
    return KUBERNETES[name](pods.__getitem__)


@pytest.mark.parametrize("name", sorted(FILES))
def test_example_has_the_same_values_in_python(name: str) -> None:
    expected, found = parse(read_yaml(FILES[name])), parse(made(name).to_manifest())
    assert found == expected
    assert to_manifest(found) == to_manifest(expected)  # and what no value compares, as a parallelism that was left out


def keywords(method: Callable[..., object]) -> set[str]:
    """What a method takes by name: its own parameters but for `name`, and those of its `**options`."""
    parameters = inspect.signature(method).parameters.values()
    named = {one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD} - {"self", "name"}
    return (named | set(get_type_hints(_unpacked(method)))) - {"options", "rows"}


def required(method: Callable[..., object]) -> set[str]:
    return {
        name for name, hint in get_type_hints(_unpacked(method), include_extras=True).items() if get_origin(hint) is Required
    }


def _unpacked(method: Callable[..., object]) -> Any:
    hints = get_type_hints(method, include_extras=True)
    return next(get_args(hints[one])[0] for one in ("options", "rows", "spec", "settings") if get_args(hints.get(one)))


PLACE = set(options.PlaceOptions.__annotations__)
ROWS = set(options.SourceOptions.__annotations__)


@pytest.mark.parametrize("run", BUILTINS)
def test_options_of_an_operator_are_those_that_it_takes(run: str) -> None:
    method = getattr(Stream, run.replace("-", "_"))
    assert keywords(method) - PLACE == set(option_names(BUILTINS[run]))
    assert required(method) == set(required_options(BUILTINS[run]))


def test_options_of_a_processor_are_those_that_it_takes() -> None:
    method = Stream.transform_with_state
    assert keywords(method) - PLACE - {"run"} == set(option_names(StatefulProcessorOperator))
    assert set(COMMON_OPTIONS) <= keywords(method)
    assert required(method) == {"output"}


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "text", "delta"])
def test_options_of_files_are_those_that_sources_take(kind: Any) -> None:
    assert keywords(getattr(StreamReader, kind)) - ROWS == {"schema", *known_options(kind)}


def test_tables_of_iceberg_are_named_as_in_a_manifest() -> None:
    topology = Topology("reads")
    options = {"stream-from-timestamp": 0}
    topology.read.iceberg("rows", "lake.t", {"type": "rest", "uri": "http://x"}, "key BIGINT", options, where="key > 1")
    (source,) = topology.to_manifest()["spec"]["sources"]
    assert source["options"] == {
        "table": "lake.t",
        "catalog.type": "rest",
        "catalog.uri": "http://x",
        "stream-from-timestamp": 0,
    }
    assert (source["format"], source["schema"], source["where"]) == ("iceberg", "key BIGINT", "key > 1")
    assert source["options"].keys() <= {*known_options("iceberg")}


def test_options_of_kafka_are_those_that_sources_take() -> None:
    given = keywords(StreamReader.kafka) - ROWS - {"servers", "settings"}
    assert given | {"kafka.bootstrap.servers"} == set(known_options("kafka"))


@pytest.mark.parametrize("kind", ["parquet", "json", "delta", "console", "function"])
def test_options_of_a_sink_are_those_that_it_takes(kind: str) -> None:
    assert keywords(getattr(SinkWriter, kind)) == set(sinks._FORMATS[kind].options)


def test_options_of_tables_of_iceberg_are_those_that_they_take() -> None:
    given = keywords(SinkWriter.iceberg) - {"catalog"}
    assert given | {"catalog.type"} == set(sinks._FORMATS["iceberg"].options)


def test_every_format_has_a_method() -> None:
    assert {name for name in vars(SinkWriter) if not name.startswith("_")} >= set(sinks._FORMATS)


def test_fields_of_spec_are_those_of_the_manifest() -> None:
    assert set(options.SpecOptions.__annotations__) == {*SPEC_FIELDS} - {"sources", "operators", "sinks", "executors"}
    schema: Any = spec_schema()["properties"]
    operator = set(schema["operators"]["items"]["properties"]) - {"name", "inputs", "grouping", "run", "with"}
    assert operator == PLACE
    for found, fields in (
        (options.ExecutorOptions, schema["executors"]["items"]["properties"].keys() - {"name"}),
        (options.RebalanceOptions, schema["rebalance"]["properties"]),
        (options.TriggerOptions, schema["trigger"]["properties"]),
        (options.RestoreOptions, schema["restore"]["properties"]),
        (options.WatermarkOptions, schema["sources"]["items"]["properties"]["watermark"]["properties"]),
    ):
        assert set(found.__annotations__) == set(fields), found


def test_settings_of_run_are_the_options_of_the_command() -> None:
    of_scripts = {"executors", "conf", "strict", "policy", "to_manifest"}
    flags = {flag.removeprefix("--").replace("-", "_") for one in run_command.params for flag in one.opts if flag[0] == "-"}
    assert set(options.RunSettings.__annotations__) == flags - of_scripts


def test_what_is_wrong_is_said_in_the_manifests_sentences() -> None:
    topology = Topology("wrong", trigger={"interval": "10"}).executors("all")  # type: ignore[typeddict-item]
    readings: Any = topology.read.csv("rows", EXAMPLES / "data/readings", "sensor INT, celsius DOUBLE", header=True, heade=1)
    readings.key_by("sensor", policy="mixd").count("counts", emitt="all")
    with pytest.raises(ManifestError) as refused:
        topology.validate()
    assert refused.value.where == "topology 'wrong'"
    told = [str(problem) for problem in refused.value.problems]
    assert [(problem.split(": ")[0], problem.rpartition("; ")[2]) for problem in told] == [
        ("spec.sources[0].options.heade", "did you mean 'header'?"),
        ("spec.operators[0].grouping.policy", "did you mean 'mixed'?"),
        ("spec.operators[0].with.emitt", "did you mean 'emit'?"),
        (
            "spec.trigger.interval",
            told[-1],
        ),
    ]
    assert told[-1].endswith(
        "found '10', expected a duration such as 10us, 250ms, 10s, 5m, 1h or 0: a number alone has no unit"
    )


def test_a_topology_that_cannot_be_read_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"topology 'a/b' has 4 problems:\n  metadata.name: found 'a/b', expected a name"):
        Topology("a/b").run(work_dir=tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_returned() -> None:
    topology = in_python().wordcount().executors("huge", replicas=1, cpu=500)
    (warning,) = topology.validate()
    assert warning.startswith("spec.executors[2].cpu")


def test_a_stream_does_not_change() -> None:
    topology = in_python().wordcount()
    lines = Stream(topology._flow, ("lines",))
    lines.key_by("value").count("by-value")
    lines.map("plain", select=["value"])
    assert "grouping" not in topology.to_manifest()["spec"]["operators"][-1]


texts = st.one_of(
    st.text(),
    st.sampled_from(
        ["Off", "on", "no", "1e-2", "010", "12:30:00", "0x1F", "~", "2025-01-31", "=", "<<", "a: b", "'", " a", "-", "a\nb"]
    ),
)
scalars = st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
values = st.recursive(scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)))


@given(st.dictionaries(texts, values, min_size=1, max_size=4))
def test_text_of_a_manifest_is_read_to_the_same_values(tmp_path_factory: pytest.TempPathFactory, manifest: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "manifest.yaml"
    file.write_text(yaml_text(manifest), encoding="utf-8")
    assert read_yaml(file) == manifest


def test_examples_in_docstrings_hold() -> None:
    found = doctest.testmod(streamtopology.builder.topology)
    assert found.attempted
    assert not found.failed


def test_import_loads_neither_spark_nor_arrow() -> None:
    code = "import sys; from streamtopology import Topology; Topology('a').to_yaml(); print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
    assert not {"pyspark", "py4j", "pyarrow", "numpy", "numba", "duckdb", "click", "rich"} & loaded


OWN = """
from streamtopology import Topology
from streamtopology.api import TupleOperator

class Same(TupleOperator):
    def process_tuple(self, row, state):
        return row

def topology():
    made = Topology("own").executors("all")
    made.read.text("lines", "*.txt").operator("same", Same).write.memory("out")
    return made

class Outer:
    class Inner(TupleOperator):
        pass
"""


def test_a_class_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own")
    monkeypatch.delitem(sys.modules, "own")
    monkeypatch.setitem(sys.modules, "own", own)
    (same,) = own.topology().to_manifest()["spec"]["operators"]
    assert same["run"] == "own.py:Same"
    topology = Topology("here").executors("all")
    lines = topology.read.text("lines", "*.txt")
    lines.operator("same", own.Same)
    lines.operator("map", BUILTINS["map"])
    assert [one["run"] for one in topology.to_manifest()["spec"]["operators"]] == [
        f"{tmp_path}/own.py:Same",
        "streamtopology.jobs.operators.sql:Map",
    ]
    with pytest.raises(WrongUse, match=r"Outer\.Inner stands within a function or class"):
        lines.operator("inner", own.Outer.Inner)


def test_a_class_of_a_notebook_is_refused() -> None:
    code = """
from streamtopology import Topology
class Own: pass
try:
    Topology("a").read.text("lines", "*.txt").operator("own", Own)
except Exception as refused:
    print(type(refused).__name__, refused)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.startswith("WrongUse Own is in a notebook or at a prompt, from where executors cannot load it: write it to")


def test_a_script_that_runs_while_executors_load_it_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("from streamtopology import Topology\nTopology('a').run()\n")
    with pytest.raises(LoadError, match=r'call run\(\) below `if __name__ == "__main__":`'):
        module_from_file(script, "job.py:Same")


@pytest.mark.parametrize("name", ["wordcount", "sessions", "own-operator", "upsert"])
def test_a_manifest_finds_own_code_from_any_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = made(name)._write(tmp_path / "work")
    assert file == tmp_path / "work" / f"{name}.yaml"
    assert examine(file).problems == ()


def test_a_lookups_file_is_found_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("id,name\n1,one\n")
    topology = Topology("named").executors("all")
    object.__setattr__(topology._flow, "folder", tmp_path)
    rows = topology.read.format("rows", "rate")
    rows.enrich("named", lookup={"file": "names.csv", "on": "value", "key": "id"})
    written: Any = read_yaml(topology._write(tmp_path / "work"))
    assert written["spec"]["operators"][0]["with"]["lookup"]["file"] == f"{tmp_path}/names.csv"
    files = {"format": "csv", "options": {"path": "names*.csv"}, "on": "value", "key": "id", "schema": "id BIGINT, name STRING"}
    rows.enrich("again", lookup=files)
    written = read_yaml(topology._write(tmp_path / "work"))
    assert written["spec"]["operators"][1]["with"]["lookup"]["options"]["path"] == f"{tmp_path}/names*.csv"


def test_the_page_shows_the_word_count() -> None:
    page = (ROOT / "docs/guide/python.md").read_text()
    names: dict[str, Any] = {"__name__": "page"}
    exec(page.split("```python\n")[1].split("```")[0], names)
    assert parse(names["topology"].to_manifest()) == parse(read_yaml(EXAMPLES / "wordcount.yaml"))


def test_the_page_names_every_call() -> None:
    page = re.sub(r"(?s)```.*?```", "", (ROOT / "docs/guide/python.md").read_text())
    calls = {name for kind in (Topology, Stream, StreamReader, SinkWriter) for name in vars(kind) if name.isidentifier()}
    written = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", page))))
    assert {
        name for name in calls if name[0] != "_" and name not in ("flow", "inputs", "grouping", "origin")
    } - written == set()


def test_every_source_folder_has_the_same_init_and_wheels_keep_one() -> None:
    files = sorted(ROOT.glob("*/src/streamtopology/__init__.py"))
    assert len({file.read_text() for file in files}) == 1
    without = [
        file
        for file in files
        if 'exclude = ["/src/streamtopology/__init__.py"]' in (file.parents[2] / "pyproject.toml").read_text()
    ]
    assert [file.parents[2].name for file in files if file not in without] == ["spark-jobs"]
