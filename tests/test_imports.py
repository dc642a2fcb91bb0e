"""The graph of imports: no circles, and no package that its room does not need. import-linter checks the layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

import streamtopology

ROOT = Path(__file__).parents[1]
PACKAGES = ("api", "builder", "contract", "jobs", "k8s", "lab", "routing", "topology", "tracing", "web")
# Room -> the packages that it may import; a module takes the entry of the smallest room around it, or may import none.
THIRD_PARTY = {
    "builder": "pyarrow",
    "jobs.admin": "kubernetes numpy pyarrow rich urllib3 yaml",
    "jobs.bucket": "obstore",
    "jobs.checkpoint": "pyarrow",
    "jobs.cli": "click",
    "jobs.columnar": "duckdb numba numpy pyarrow",
    "jobs.connectors": "numpy pyarrow",
    "jobs.connectors.kafka_retry": "confluent_kafka",
    "jobs.connectors.sinks.delta": "deltalake pyarrow",
    "jobs.connectors.sinks.function": "pyarrow pyspark",
    "jobs.connectors.sinks.iceberg": "pyarrow pyiceberg",
    "jobs.connectors.sinks.iceberg_commit": "pyiceberg",
    "jobs.connectors.sinks.kafka": "confluent_kafka pyarrow",
    "jobs.connectors.sinks.spark_writer": "py4j pyarrow pyspark",
    "jobs.connectors.sources.descriptor_stream": "pyspark",
    "jobs.connectors.sources.files.delta_stream": "deltalake",
    "jobs.connectors.sources.files.delta_table": "deltalake pyarrow",
    "jobs.connectors.sources.files.iceberg_stream": "pyarrow pyiceberg",
    "jobs.connectors.sources.files.iceberg_table": "pyarrow pyiceberg",
    "jobs.connectors.sources.iceberg_catalog": "pyiceberg",
    "jobs.connectors.sources.kafka": "confluent_kafka numpy pyarrow",
    "jobs.connectors.sources.spark": "py4j pyarrow pyspark",
    "jobs.driver": "numpy pyarrow",
    "jobs.exchange": "numpy pyarrow",
    "jobs.local": "pyspark rich",
    "jobs.local.cleanup": "",
    "jobs.local.supervisor": "",
    "jobs.observe": "numpy",
    "jobs.operators": "numba numpy pyarrow",
    "jobs.operators.processors": "numpy pandas pyarrow pyspark",
    "jobs.plan": "numpy pyarrow",
    "jobs.pods": "kubernetes urllib3",
    "jobs.pods.executor": "",
    "jobs.rerouting": "numpy pyarrow",
    "jobs.runtime": "py4j pyarrow pyspark",
    "jobs.scaffold": "numpy pyarrow yaml",
    "jobs.scripts": "py4j pyarrow pyspark rich",
    "jobs.spark": "numpy py4j pyarrow pyspark",
    "jobs.realtime": "pyarrow zmq",
    "jobs.state": "numba numpy pyarrow",
    "jobs.view": "matplotlib numpy prometheus_client rich",
    "jobs.worker": "numpy pyarrow",
    "k8s.__main__": "kubernetes yaml",
    "k8s.app": "aiohttp kubernetes prometheus_client",
    "k8s.install_check": "kubernetes",
    "k8s.io": "aiohttp kubernetes prometheus_client",
    "k8s.io.kopf_tasks": "kopf",
    "k8s.kopf_handlers": "kopf kubernetes",
    "lab.arena": "confluent_kafka duckdb matplotlib numpy pyarrow",
    "lab.bench": "aiohttp confluent_kafka duckdb kubernetes numba numpy pandas pyarrow pymetis pyspark urllib3",
    "lab.commands": "click",
    "lab.demo": "numpy pyarrow rich",
    "lab.faults": "confluent_kafka numba numpy obstore pyarrow",
    "lab.groupings": "numba numpy",
    "lab.nexmark": "numba numpy pyarrow",
    "lab.nexmark.configuration": "",
    "lab.numbered_files": "pyarrow",
    "lab.reproduce": "matplotlib numba numpy pyarrow rich",
    "lab.simulate": "matplotlib numba numpy pyarrow rich",
    "routing": "numpy",
    "routing.groupings": "numba numpy",
    "routing.load": "numba numpy",
    "routing.planners": "numba numpy pymetis",
    "routing.table": "numba numpy",
    "topology.crd": "yaml",
    "topology.yaml_file": "yaml",
    "tracing.export": "opentelemetry requests",
}
PURE = ("k8s.decide", "k8s.resources")
# All that values are made with: nothing of it waits, and nothing reaches out of the process.
STANDARD_OF_PURE = {
    *("__future__", "base64", "collections", "dataclasses", "datetime", "enum", "functools", "hashlib", "itertools", "json"),
    *("math", "re", "typing"),
}

Graph = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def imports() -> Graph:
    """Module of ours -> the modules that it imports, of ours and of others, in functions and for annotations as well."""
    graph = grimp.build_graph(streamtopology.__name__, include_external_packages=True, cache_dir=None)
    return {_short(module): set(map(_short, graph.find_modules_directly_imported_by(module))) for module in graph.modules}


def _short(module: str) -> str:
    return module.removeprefix("streamtopology.")


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


def circle(graph: Graph) -> list[str]:
    """Return one circle of `graph`, an empty list if it has none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def rooms(graph: Graph, depth: int) -> Graph:
    """`graph` between rooms: the first `depth` parts of the names of modules."""
    between: dict[str, set[str]] = {}
    for module, imported in graph.items():
        room = ".".join(module.split(".")[:depth])
        found = {".".join(other.split(".")[:depth]) for other in imported if _is_ours(other)}
        between[room] = between.get(room, set()) | found - {room}
    return between


def not_allowed(graph: Graph) -> list[str]:
    """The imports of packages that are not listed for their room."""
    return sorted(
        f"{module} imports {other}"
        for module, imported in graph.items()
        if _is_ours(module)
        for other in imported
        if not _is_ours(other) and other not in sys.stdlib_module_names and other not in _allowed(module)
    )


def _allowed(module: str) -> Iterable[str]:
    parts = module.split(".")
    around = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((THIRD_PARTY[room].split() for room in around if room in THIRD_PARTY), ())


def missing_imports(text: str) -> Iterator[str]:
    """What a module of this text imports of ours, by name, that is not there. No module is loaded for it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamtopology."):
            names = _names_of(node.module or "")
            yield from (f"{node.module} has no {alias.name}" for alias in node.names if alias.name not in names)


@cache
def _names_of(module: str) -> Container[str]:
    """What can be imported from a module: what its text binds, and modules below it."""
    names: set[str] = set()
    for found in ROOT.glob(f"*/src/{module.replace('.', '/')}"):
        names |= {path.stem for path in found.iterdir()}
    for found in (
        *ROOT.glob(f"*/src/{module.replace('.', '/')}.py"),
        *ROOT.glob(f"*/src/{module.replace('.', '/')}/__init__.py"),
    ):
        for node in ast.walk(ast.parse(found.read_text(encoding="utf-8"))):
            if isinstance(node, ast.alias):
                names.add(node.asname or node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def test_no_module_imports_itself_through_others(imports: Graph) -> None:
    assert circle({module: set(filter(_is_ours, imported)) for module, imported in imports.items()}) == []


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_room_imports_itself_through_others(imports: Graph, depth: int) -> None:
    assert circle(rooms(imports, depth)) == []


def test_rooms_import_the_packages_listed_for_them(imports: Graph) -> None:
    assert not_allowed(imports) == []


def test_rooms_of_the_list_exist(imports: Graph) -> None:
    assert set(THIRD_PARTY) - set(imports) == set()


def test_decisions_of_the_operator_use_only_what_values_are_made_with(imports: Graph) -> None:
    used = {other for module, imported in imports.items() if module.startswith(PURE) for other in imported}
    assert {module for module in used if not _is_ours(module)} <= STANDARD_OF_PURE


def test_tests_and_scripts_import_what_exists() -> None:
    """A moved module fails here in seconds, not when its test is collected."""
    files = [path for folder in ("tests", "scripts", "lab") for path in (ROOT / folder).rglob("*.py")]
    assert [fault for path in files for fault in missing_imports(path.read_text(encoding="utf-8"))] == []


def test_missing_import_is_found() -> None:
    wrong = (
        "from streamtopology.jobs.connectors.sources.kafka.stream import nothing\nfrom streamtopology.jobs.nowhere import x\n"
    )
    right = (
        "from streamtopology.jobs.connectors.sources.kafka import stream\nfrom streamtopology.topology import Topology, parse\n"
    )
    assert list(missing_imports(wrong + right)) == [
        "streamtopology.jobs.connectors.sources.kafka.stream has no nothing",
        "streamtopology.jobs.nowhere has no x",
    ]


def test_circles_and_packages_are_found() -> None:
    graph = {"jobs.a.x": {"jobs.b.y"}, "jobs.b.y": {"jobs.b.z"}, "jobs.b.z": {"jobs.a.w", "duckdb"}, "jobs.a.w": {"os"}}
    assert circle(graph) == []
    assert set(circle(rooms(graph, 2))) == {"jobs.a", "jobs.b"}
    assert not_allowed(graph) == ["jobs.b.z imports duckdb"]
    assert not_allowed({"jobs.spark.x": {"pyspark"}, "jobs.local.supervisor": {"rich"}}) == [
        "jobs.local.supervisor imports rich"
    ]


def test_supervisor_loads_the_standard_library_only() -> None:
    """In a process of its own, as a cluster starts it: what was loaded on the way counts, too."""
    loaded = _loaded("streamtopology.jobs.local.supervisor")
    ours = {module for module in loaded if module.startswith("streamtopology")}
    assert {module.split(".")[0] for module in loaded - ours} <= sys.stdlib_module_names
    jobs = "streamtopology.jobs"
    own = {f"{jobs}.local.{module}" for module in ("cleanup", "ownership", "supervisor")}
    assert ours == {"streamtopology", jobs, f"{jobs}.local", *own}


def test_executors_launcher_loads_neither_numpy_nor_spark() -> None:
    heavy = {"numpy", "pyarrow", "pyspark", "py4j"}
    assert heavy & {module.split(".")[0] for module in _loaded("streamtopology.jobs.pods.executor")} == set()


def test_driver_loads_neither_numba_nor_spark_before_it_needs_them() -> None:
    """In real time it needs neither for the first batch after it has taken over the workers of another one: 4 s of CPU."""
    heavy = {"numba.core", "pyspark", "py4j", "pandas"}
    assert heavy & _loaded("streamtopology.jobs.local.run") == set()


def _loaded(module: str) -> set[str]:
    """The modules that a fresh interpreter loads for `module`, apart from those that it starts with."""
    code = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())
