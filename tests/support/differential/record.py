"""Writes a case as files that a person can read and run: the manifests, the rows of each batch, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from support.differential.case import Case, Version
from support.differential.tables import Tables, shown

MOST_ROWS = 20


def record(case: Case, differences: Sequence[str], folder: Path) -> Path:
    """Write the case below `folder`, and return its own folder."""
    here = folder / f"seed-{case.seed}"
    here.mkdir(parents=True, exist_ok=True)
    for old in here.iterdir():
        old.unlink()
    _write_manifest(here / "manifest.yaml", case.first, case.portion)
    for name, table in case.files.items():
        pq.write_table(table, here / name)
    story = ["Differences:", *(f"  {text}" for text in differences), "", f"The clock shows {case.now}."]
    for number, step in enumerate(case.steps):
        events = [event.name for event in step.events]
        if step.edit is not None:
            _write_manifest(here / f"manifest-{number}.yaml", step.edit, case.portion)
            events.insert(0, f"restart with manifest-{number}.yaml")
        story.append(f"Step {number}: {', '.join(events) or 'no events'}")
        for source, table in step.rows.items():
            file = f"step-{number}-{source}.parquet"
            pq.write_table(table, here / file)
            tables = Tables()
            tables.copy("rows", table)
            story.append(f"  {source}: {len(table)} rows ({file})")
            texts = tables.texts(f"SELECT * FROM rows LIMIT {MOST_ROWS}")
            story += [f"    {shown(dict(zip(table.column_names, row, strict=True)))}" for row in texts]
    (here / "story.txt").write_text("\n".join(story) + "\n")
    return here


def _write_manifest(file: Path, version: Version, portion: str) -> None:
    file.write_text(yaml.safe_dump(version.manifest(portion=portion), sort_keys=False, allow_unicode=True))
