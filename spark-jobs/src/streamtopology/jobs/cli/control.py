"""Commands for a topology that is running: `streamtopology apply`, `resize`, `scale`, `stop`, `top`, `explain` and `ui`."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import click

from streamtopology.jobs.cli import parameters
from streamtopology.jobs.cli.parameters import FILE, PORT, SUCCESS, WHOLE
from streamtopology.jobs.errors import WrongUse

_topology = click.option("--topology", metavar="NAME", help="Which topology (default: the only one that runs here).")


@click.command()
@parameters.manifest
def apply(manifest: Path) -> int:
    """Apply a changed manifest to the running topology: routing, executors, limits."""
    from streamtopology.jobs.local.control_socket import ask
    from streamtopology.topology import load

    topology = load(manifest)
    print(ask(topology.name, "apply", path=str(manifest.resolve())))
    return SUCCESS


@click.command()
@click.argument("class_name", metavar="CLASS")
@click.option("--cpu", required=True, metavar="CORES", help="Cores of each executor, e.g. 300m or 1.5.")
@_topology
def resize(class_name: str, cpu: str, topology: str | None) -> int:
    """Change the CPU of a class of executors while they run."""
    from streamtopology.jobs.local.control_socket import ask, the_running

    print(ask(topology or the_running(), "resize", class_name=class_name, cpu=cpu))
    return SUCCESS


@click.command()
@click.argument("class_name", metavar="CLASS")
@click.option("--replicas", required=True, type=WHOLE, help="Number of executors of the class.")
@_topology
def scale(class_name: str, replicas: int, topology: str | None) -> int:
    """Change the number of executors of a class while the topology runs."""
    from streamtopology.jobs.local.control_socket import ask, the_running

    print(ask(topology or the_running(), "scale", class_name=class_name, replicas=replicas))
    return SUCCESS


@click.command()
@click.argument("topology", required=False)
@click.option("--drain", is_flag=True, help="The input is complete: read what the sources hold, then close all windows.")
@click.option("--now", is_flag=True, help="With --drain: close all windows at once; rows that are unread will be late.")
def stop(topology: str | None, drain: bool, now: bool) -> int:
    """Stop a running topology after its current batch.

    TOPOLOGY is its name (default: the only topology that runs here).
    """
    from streamtopology.jobs.local.control_socket import ask, the_running

    if now and not drain:
        raise WrongUse("--now closes windows at once, so it needs --drain; without --drain `stop` closes none")
    print(ask(topology or the_running(), "stop", drain=drain, now=now))
    return SUCCESS


@click.command()
@click.argument("name", required=False)
@parameters.namespace
@parameters.context
@click.option("--here", is_flag=True, help="Look on this machine only.")
def top(name: str | None, namespace: str | None, context: str | None, here: bool) -> int:
    """Watch the instances of a running topology.

    NAME (default: the only topology that runs here) is looked for on this machine, then on the cluster.
    """
    from streamtopology.jobs.admin import top as live
    from streamtopology.jobs.admin.find_run import Where

    return live.top(name, Where(namespace, context, here))


@click.command()
@click.argument("name", required=False, metavar="[NAME|URL]")
@click.option("--epoch", type=WHOLE, metavar="NUMBER", help="Which epoch (default: the newest).")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@parameters.namespace
@parameters.context
@click.option("--here", is_flag=True, help="Look on this machine only.")
def explain(name: str | None, epoch: int | None, as_json: bool, namespace: str | None, context: str | None, here: bool) -> int:
    """Explain why an epoch came, what was weighed, and what it brought.

    NAME (default: the only topology that runs here) is looked for on this machine, then on the cluster; URL is the
    address of its driver.
    """
    from streamtopology.jobs.admin import explain as stories
    from streamtopology.jobs.admin.find_run import Where

    return stories.explain(name, Where(namespace, context, here), epoch, as_json)


@click.command()
@click.argument("name", required=False)
@click.option("--report", type=FILE, metavar="DIR", help="The page of a run that is over, from the folder of its report.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--port", type=PORT, default=0, help="Port of a page that this command serves (default: any free one).")
@parameters.namespace
@parameters.context
@click.option("--here", is_flag=True, help="Look on this machine only.")
def ui(
    name: str | None, report: Path | None, opens: bool, port: int, namespace: str | None, context: str | None, here: bool
) -> int:
    """Show the page of a topology.

    NAME (default: the only topology that runs here) is looked for on this machine, then on the cluster.
    """
    from streamtopology.jobs.admin.find_run import Where
    from streamtopology.jobs.admin.page_of import page_of_report, page_of_run

    if report is not None and name is not None:
        raise WrongUse("name a topology that runs, or --report DIR of one that is over, not both")
    with suppress(KeyboardInterrupt):  # how one leaves
        if report is not None:
            page_of_report(report, port, opens, threading.Event().wait)
        else:
            page_of_run(name, Where(namespace, context, here), port, opens, threading.Event().wait)
    return SUCCESS
