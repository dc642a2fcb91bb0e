"""Topologies in Python on real clusters: from a script with a class of its own, and from wheels in a fresh environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
TEXT = ROOT / "examples/data/text"
# The distributions that `pip install streamtopology` installs, and their sources.
SOURCES = {"streamtopology": ROOT / "spark-jobs/src", "streamtopology_routing": ROOT / "routing/src"}
JOB = f"""
import json
import pyarrow as pa
from streamtopology import Topology
from streamtopology.api import TupleOperator


class Long(TupleOperator):
    output = pa.schema([("word", pa.string())])

    def process_tuple(self, row, state):
        return row if len(row["word"]) > 5 else None


def counted(name):
    topology = Topology(name, trigger={{"availableNow": True}})
    topology.executors("large", cpu="500m").executors("small", cpu="250m")
    word = "unnest(regexp_extract_all(lower(value), '[a-z]+')) AS word"
    words = topology.read.text("lines", "{TEXT}/*.txt", maxFilesPerTrigger=1, select=[word])
    words.operator("long", Long).key_by("word").count("counts").write.memory("counts")
    topology.run()
    return {{row["word"]: row["count"] for row in topology.rows("counts").to_pylist()}}


if __name__ == "__main__":
    print("counts:", json.dumps([counted("first"), counted("second")]))
"""


NOTEBOOK = """
import sys
import nbformat
from nbclient import NotebookClient

cells = [nbformat.v4.new_code_cell(open(name).read()) for name in sys.argv[1:]]
client = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=600)
client.execute()
views = [widget["outputs"] for widget in client.widget_state.values() if widget["_model_name"] == "OutputModel"]
print(*(output["data"]["text/plain"] for outputs in views for output in outputs), sep="\\n")
"""


def run(command: list[str | Path], folder: Path) -> str:
    """What a command prints that ends well, in an environment without our settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PYSPARK"))}
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"
    return ended.stdout


def test_a_script_runs_two_topologies_with_a_class_of_its_own(tmp_path: Path) -> None:
    """From another folder than the script's: executors find the class, and each run's manifest is in the work folder."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/job.py").write_text(JOB)
    told = run([sys.executable, "own/job.py"], tmp_path)
    words = re.findall("[a-z]+", " ".join(file.read_text() for file in TEXT.glob("*.txt")).lower())
    expected = Counter(word for word in words if len(word) > 5)
    (counts,) = re.findall("(?m)^counts: (.*)$", told)
    assert json.loads(counts) == [expected, expected]
    assert {file.name for file in (tmp_path / "build/streamtopology").glob("*.yaml")} == {"first.yaml", "second.yaml"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for distribution in SOURCES:
        run([_uv(), "build", "--quiet", "--wheel", "--package", distribution.replace("_", "-"), "--out-dir", folder], ROOT)
    return {file.name.split("-")[0]: file for file in folder.glob("*.whl")}


def _uv() -> str:
    return shutil.which("uv") or str(ROOT / "build/uv/bin/uv")


def test_wheels_have_every_file_of_their_sources_and_one_init(wheels: dict[str, Path]) -> None:
    assert set(wheels) == set(SOURCES)
    for distribution, source in SOURCES.items():
        wanted = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
        wanted = {name for name in wanted if "__pycache__" not in name}
        if distribution != "streamtopology":
            wanted -= {"streamtopology/__init__.py"}
        found = {name for name in zipfile.ZipFile(wheels[distribution]).namelist() if ".dist-info/" not in name}
        assert found == wanted


def first_result() -> str:
    """The script of the page."""
    page = (ROOT / "docs/guide/python.md").read_text()
    return page.split("A first result")[1].split("```python\n")[1].split("```")[0]


def test_a_fresh_environment_gives_a_first_result_in_an_empty_folder(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Without a clone or its lock file: packages are the registry's newest that our wheels allow."""
    environment, folder = tmp_path / "environment", tmp_path / "empty"
    folder.mkdir()
    run([_uv(), "venv", "--quiet", "--python", sys.executable, environment], folder)
    run([_uv(), "pip", "install", "--quiet", "--python", environment / "bin/python", *wheels.values()], folder)
    (folder / "clicks.py").write_text(first_result())
    told = run([environment / "bin/python", "clicks.py"], folder)
    assert re.search(r"(?m)^clicks: \d+ batches, [\d,]+ rows", told)
    assert re.search(r"\npage\n0 +\d+\n", told)  # the first page has 18 % of the clicks
    (folder / "data").mkdir()
    (folder / "data/visits.csv").write_text("user,amount\n" + "".join(f"{number % 3},{number}\n" for number in range(30)))
    command = environment / "bin/streamtopology"
    run([command, "init", "data"], folder)
    assert "sink 'results'" in run([command, "try", "data.yaml"], folder)


def test_a_notebook_shows_the_live_view(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run([_uv(), "venv", "--quiet", "--python", sys.executable, environment], tmp_path)
    notebook = [*wheels.values(), "nbclient", "ipykernel", "ipywidgets"]
    run([_uv(), "pip", "install", "--quiet", "--python", environment / "bin/python", *notebook], tmp_path)
    (tmp_path / "clicks.py").write_text(first_result())
    (tmp_path / "execute.py").write_text(NOTEBOOK)
    shown = run([environment / "bin/python", "execute.py", "clicks.py"], tmp_path)
    assert re.search(r"clicks.* epoch \d+  batch \d+.* rows/s", shown)
    assert "page: http://" in shown
