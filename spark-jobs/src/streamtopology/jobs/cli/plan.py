"""`streamtopology plan`: a preview of the next re-routing."""

from __future__ import annotations

from pathlib import Path

import click

from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.parameters import OUTPUT_FILE


@click.command()
@parameters.manifest
@click.option("--stats", metavar="FILE|URL", help="The driver's answer at /stats, or its address; - for the standard input.")
@parameters.namespace
@parameters.context
@click.option("--json", "json_file", type=OUTPUT_FILE, metavar="FILE", help="Also write the preview as JSON.")
def plan(manifest: Path, stats: str | None, namespace: str | None, context: str | None, json_file: Path | None) -> int:
    """Show what would be re-routed now, why and at what cost; nothing is changed.

    Without --stats the running topology is asked: on this machine, or else on the cluster.
    """
    from streamtopology.jobs.admin import plan_preview
    from streamtopology.jobs.admin.find_run import Where

    return plan_preview.plan(manifest, stats, Where(namespace, context), json_file)
