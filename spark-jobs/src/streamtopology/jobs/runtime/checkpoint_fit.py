"""Whether a run can continue from a checkpoint under its manifest, before a cluster has started."""

from __future__ import annotations

from pathlib import Path

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.topology import Topology


def check_checkpoint(topology: Topology, work_dir: Path, base_dir: Path) -> None:
    """Raise what a run would: TopologyFailed, StateFileError, CheckpointError.

    Only of a checkpoint that is there, in a folder, and unless only Spark knows the schema of a source.
    """
    uri = checkpoint_uri(topology, work_dir)
    if not (Path(uri) / HEADER).is_file() or not all(source.reads_descriptors for source in topology.sources):
        return
    from streamtopology.jobs.runtime.begun import refuse_unfit  # both read plans, and load numba
    from streamtopology.jobs.runtime.first_plan import first_plan

    checkpoint = Checkpoint.open(uri, topology.name)
    refuse_unfit(checkpoint, first_plan(topology, source_schemas(topology, {}), base_dir, checkpoint, lambda notice: None))
