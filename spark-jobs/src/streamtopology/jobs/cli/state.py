"""`streamtopology state`: the state of a topology, as its checkpoint has it."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import click

from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.command_group import Group
from streamtopology.jobs.cli.parameters import BATCH, EVENT_TIME, FAILURE, SUCCESS
from streamtopology.jobs.own_command import on_manifest


@click.group(cls=Group)
def state() -> None:
    """Inspect, copy, check, roll back or delete a topology's state, skip a bad file, export a batch."""


class _KeyCommand(click.Command):
    """A command whose arguments may begin with a dash: `-5`, `-5h`, `-` and `-a b` are keys, not options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = {name for given in self.params if isinstance(given, click.Option) and not given.is_flag for name in given.opts}
        options: list[str] = []
        others: list[str] = []
        rest = iter(args)
        for argument in rest:
            if argument == "--":
                others += rest
            elif _is_option(argument):
                options += [argument, *(islice(rest, 1) if argument in valued else ())]
            else:
                others.append(argument)
        return super().parse_args(ctx, [*options, "--", *others])


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and argument != "-" and not re.match(r"-\.?\d|-[^=]*\s", argument)


@state.command(cls=_KeyCommand)
@parameters.manifest
@click.argument("key", nargs=-1, required=True)
@click.option("--operator", metavar="NAME", help="Which operator (default: the only one with keyed state).")
@parameters.work_dir
def get(manifest: Path, key: tuple[str, ...], operator: str | None, work_dir: Path) -> int:
    """Show a key's state and the instance that owns it.

    KEY is the key's value, or one value for each of its columns; NULL for NULL.
    """
    from streamtopology.jobs.admin.inspect_key import describe_key

    print(describe_key(manifest, operator, key, work_dir))
    return SUCCESS


@state.command()
@parameters.manifest
@click.argument("target", metavar="URI")
@click.option("--topology", metavar="NAME", help="The topology that will use the copy (default: the same).")
@parameters.work_dir
def clone(manifest: Path, target: str, topology: str | None, work_dir: Path) -> int:
    """Copy the checkpoint as of its newest commit to URI, also while the topology runs.

    URI must not exist yet, or be such a copy that was cut short, which is continued.
    """
    from streamtopology.jobs.admin import checkpoints
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.topology import load

    print(checkpoints.clone(checkpoint_uri(load(manifest), work_dir), target, topology))
    return SUCCESS


@state.command()
@parameters.manifest
@click.option(
    "--to", "batch", type=BATCH, required=True, help="The batch to return to; `streamtopology state check MANIFEST` names one."
)
@parameters.work_dir
def rollback(manifest: Path, batch: int, work_dir: Path) -> int:
    """Return to an earlier batch; later batches are read again."""
    from streamtopology.jobs.admin import checkpoints
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.jobs.local.control_socket import ControlServer
    from streamtopology.topology import load

    topology = load(manifest)
    with ControlServer(topology.name, {}):  # refused while the topology runs on this machine
        print(checkpoints.rollback(checkpoint_uri(topology, work_dir), batch))
    return SUCCESS


@state.command()
@parameters.manifest
@click.option("--set", "time", type=EVENT_TIME, help="The new watermark: 2026-11-23T12:00:00Z, or epoch seconds.")
@parameters.work_dir
def watermark(manifest: Path, time: float | None, work_dir: Path) -> int:
    """Show the watermark and the newest event times, or set the watermark."""
    from streamtopology.jobs.admin import watermark
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.jobs.local.control_socket import ControlServer
    from streamtopology.topology import load

    topology = load(manifest)
    uri = checkpoint_uri(topology, work_dir)
    if time is None:
        print(watermark.watermark_text(uri))
        return SUCCESS
    with ControlServer(topology.name, {}):  # refused while the topology runs on this machine
        print(watermark.set_watermark(uri, on_manifest(manifest, work_dir), topology, time))
    return SUCCESS


@state.command()
@parameters.manifest
@parameters.work_dir
def check(manifest: Path, work_dir: Path) -> int:
    """Read every state file and name the damaged and the missing ones."""
    from streamtopology.jobs.admin import checkpoints
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.jobs.runtime.preflight.checks import declared_state
    from streamtopology.topology import load

    topology = load(manifest)
    uri, schemas = checkpoint_uri(topology, work_dir), declared_state(topology, manifest.parent)
    found = checkpoints.check(uri, schemas)
    before = () if found else checkpoints.written_before(uri, schemas)
    print(checkpoints.findings_text(on_manifest(manifest, work_dir), found, before))
    return FAILURE if found else SUCCESS


@state.command("skip-file")
@parameters.manifest
@click.argument("file")
@parameters.work_dir
def skip_file(manifest: Path, file: str, work_dir: Path) -> int:
    """Continue without a bad file's rows: those that are not committed yet are never read.

    FILE is the path that the error names. It need not exist any more.
    """
    from streamtopology.jobs.admin.skip_file import skip_file
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.jobs.local.control_socket import ControlServer
    from streamtopology.topology import load

    topology = load(manifest)
    with ControlServer(topology.name, {}):  # refused while the topology runs on this machine
        print(skip_file(checkpoint_uri(topology, work_dir), topology, file))
    return SUCCESS


@state.command("export-batch")
@parameters.manifest
@click.option("--sink", metavar="NAME", required=True, help="The sink that cannot take the newest batch.")
@click.option(
    "--to",
    "folder",
    metavar="FOLDER",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that gets the rows; made if it is not there.",
)
@parameters.work_dir
def export_batch(manifest: Path, sink: str, folder: Path, work_dir: Path) -> int:
    """Move a committed batch that a sink cannot take to a folder.

    Its rows become a parquet file (an Arrow file if parquet cannot hold them), and the next run does not publish this
    batch to the sink.
    """
    from streamtopology.jobs.admin.export_batch import export_batch
    from streamtopology.jobs.checkpoint.location import checkpoint_uri
    from streamtopology.jobs.local.control_socket import ControlServer
    from streamtopology.topology import load

    topology = load(manifest)
    with ControlServer(topology.name, {}):  # refused while the topology runs on this machine
        print(export_batch(checkpoint_uri(topology, work_dir), topology, sink, folder))
    return SUCCESS


@state.command("list")
@parameters.work_dir
def list_(work_dir: Path) -> int:
    """List the checkpoints of a work folder with the disk space that they hold."""
    from streamtopology.jobs.admin import start_over

    print(start_over.held_text(work_dir))
    return SUCCESS


@state.command()
@parameters.manifest
@click.option("--yes", is_flag=True, help="Do not ask.")
@parameters.work_dir
def delete(manifest: Path, yes: bool, work_dir: Path) -> int:
    """Delete the checkpoint and what it gave to sinks in folders; asks first.

    Only files that runs have made are deleted; what else is in the folders stays, and is named.
    """
    from streamtopology.jobs.cli.leftovers import delete_leftovers
    from streamtopology.jobs.local.control_socket import claim
    from streamtopology.topology import load

    topology = load(manifest)
    with claim(topology.name):  # refused while it runs, or is being started
        deleted = delete_leftovers(topology, work_dir, "Delete it?", "the next run continues from the checkpoint", yes=yes)
    print(f"topology {topology.name!r} has no checkpoint" if deleted is None else _deleted_text(deleted.others_text()))
    return SUCCESS


def _deleted_text(left: str) -> str:
    return f"deleted, but for {left}" if left else "deleted; the next run starts over"
