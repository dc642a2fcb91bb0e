"""A dry attempt leaves its executor with what its first rows would wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own, as modules are forgotten there: they have been loaded to make the plan.
_DRY_ATTEMPT = """
import sys
from pathlib import Path
from support.stages import Flow, manifest
from streamtopology.jobs.driver.rehearsal import attempt_alone
from streamtopology.jobs.worker.stage_tasks import rehearse

options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
source = {"name": "s", "format": "kafka", "options": options, "select": ["decode(value)::BIGINT AS k"]}
operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
given = manifest([operator], {})
given["spec"]["sources"] = [source]
flow = Flow(Path(sys.argv[1]), given)
late = ("streamtopology.jobs.connectors.sources.kafka.stream", "streamtopology.jobs.columnar.expressions")
for name in late:
    sys.modules.pop(name, None)
rehearse(attempt_alone(flow.router.ready(), "run", flow.checkpoint.uri, 0.0), 1)
print([name for name in late if name not in sys.modules])
"""


def test_dry_attempt_loads_the_reader_of_kafka_and_runs_the_select(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DRY_ATTEMPT, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
