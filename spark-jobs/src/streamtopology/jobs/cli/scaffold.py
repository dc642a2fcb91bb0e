"""`streamtopology init` and `new-operator`: the first files of a user."""

from __future__ import annotations

from pathlib import Path

import click

from streamtopology.jobs.cli.parameters import FILE, SUCCESS
from streamtopology.jobs.errors import WrongUse


@click.command()
@click.argument("place", metavar="PATH|TOPIC")
@click.option("--servers", metavar="HOST:PORT,...", help="Brokers: the argument is then a Kafka topic.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="Client setting, e.g. kafka.security.protocol=SSL."
)
@click.option("--key", metavar="COLUMN", help="Key to use (default: a column that repeats, by its skew in a sample).")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Manifest to write (default: named after the data).")
def init(place: str, servers: str | None, options: tuple[str, ...], key: str | None, output: Path | None) -> int:
    """Look at data and write a manifest that runs.

    PATH is a file, a folder or a quoted pattern of parquet, CSV, JSON or text files. An existing manifest is never
    overwritten.
    """
    from streamtopology.jobs.scaffold.init import init_files, init_topic
    from streamtopology.jobs.scaffold.machine import this_machine

    if servers is not None:
        print(init_topic(place, servers, _settings(options), output, key, this_machine()))
    elif options:
        raise WrongUse("--option is for Kafka: name its brokers with --servers HOST:PORT")
    else:
        print(init_files(place, output, key, this_machine()))
    return SUCCESS


def _settings(options: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name.startswith("kafka."):
            raise WrongUse(f"--option {option!r}; allowed: kafka.NAME=VALUE, a setting of Kafka's client")
        settings[name] = value
    return settings


@click.command("new-operator")
@click.argument("name")
@click.option("--to", "folder", type=FILE, default=Path(), metavar="DIR", help="Folder of the files (default: this one).")
def new_operator(name: str, folder: Path) -> int:
    """Write an operator of your own, with its test.

    NAME is the name of the class, as in SessionLength. The class imports only `streamtopology.api`, and both files pass as
    they are written; existing files are never overwritten.
    """
    from streamtopology.jobs.scaffold import new_operator as scaffold

    print(scaffold.new_operator(name, folder))
    return SUCCESS
