"""`streamtopology init`: look at data, write a manifest that runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from streamtopology.jobs.connectors.folder_overlap import relation_of
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.scaffold.choice import ManifestChoice, choose
from streamtopology.jobs.scaffold.column_names import plain_names
from streamtopology.jobs.scaffold.file_sample import sample_files
from streamtopology.jobs.scaffold.files import find_files
from streamtopology.jobs.scaffold.key_report import key_table, why_key
from streamtopology.jobs.scaffold.machine import Machine, executors_for
from streamtopology.jobs.scaffold.manifest_text import manifest_text, topology_name, used_columns
from streamtopology.jobs.scaffold.sample import Sample, joined
from streamtopology.topology import did_you_mean, load


def init_files(path: str, output: Path | None, key: str | None, machine: Machine) -> str:
    """Write a manifest for the files at `path`; returns what was found and the next commands."""
    target = _target(output, _named(path))
    return _write(target, topology_name(str(output or _named(path))), sample_files(find_files(path)), key, machine)


def init_topic(
    topic: str, servers: str, settings: Mapping[str, str], output: Path | None, key: str | None, machine: Machine
) -> str:
    """Write a manifest for a Kafka topic; returns what was found and the next commands."""
    from streamtopology.jobs.scaffold.kafka_sample import sample_topic  # keeps librdkafka out of files

    target = _target(output, topic)
    return _write(
        target, topology_name(str(output or topic.replace(".", "-"))), sample_topic(topic, servers, settings), key, machine
    )


def _named(path: str) -> str:
    """`path`, or all of it where it has no name: `.` is the current folder."""
    return path if path.strip("./") else os.path.abspath(path)


def _target(output: Path | None, place: str) -> Path:
    """The file to write. Raises WrongUse if it exists: before anything is read."""
    target = output or Path(f"{topology_name(place)}.yaml")
    if target.exists():
        raise WrongUse(f"{target} exists and is not overwritten; name another file with --output")
    if not target.parent.is_dir():
        raise WrongUse(f"no folder {target.parent} for {target.name}; create it first")
    if not os.access(target.parent, os.W_OK):
        raise WrongUse(f"cannot write {target}: permission denied; name a file in another folder with --output")
    return target


def _write(target: Path, name: str, sample: Sample, key: str | None, machine: Machine) -> str:
    if not sample.table.num_columns:
        raise WrongUse(
            f"{sample.title}: no column of a plain type (numbers, texts, times, booleans): write the fields of nested "
            "columns as columns of their own first"
        )
    if not sample.table.num_rows:
        raise WrongUse(f"no rows: {sample.title}")
    plain = {given: name for given, name in plain_names(given for given, _ in sample.declared).items() if given != name}
    if key is not None:
        key = _column(key, sample.table.column_names, plain)
    executors = executors_for(machine)
    choice = choose(sample.table, executors.replicas, key)
    command = f"streamtopology run {shlex.quote(str(target))} --report build/{name}"
    trial = f"streamtopology try {shlex.quote(str(target))}"
    _write_checked(target, manifest_text(name, sample, choice, executors, command, _sink_path(name, sample)))
    found = [
        sample.title,
        *sample.notes,
        *_columns_made(sample, choice, plain),
        "",
        why_key(choice),
        *key_table(choice, executors.replicas, sample.table.num_rows),
        "",
    ]
    time = f"event time {choice.time.column!r}" if choice.time else "no event time"
    time += f" ({choice.time.unit} since 1970)" if choice.time and choice.time.unit else ""
    found += [f"{time}; {_measured(choice.measures)}", f"wrote {target}; next:", "", f"  {trial}", f"  {command}"]
    return "\n".join(found)


def _columns_made(sample: Sample, choice: ManifestChoice, plain: Mapping[str, str]) -> list[str]:
    """The columns that the manifest has under other names than the data, and as other types, a line each."""
    used = used_columns(sample, choice)
    renamed = [f"{name} for {given!r}" for given, name in plain.items() if name in used]
    names = [f"names in the manifest: {joined(renamed, most=20)}"] if renamed else []
    return [*names, *(sample.remarks[column] for column in used if column in sample.remarks)]


def _column(key: str, columns: list[str], plain: Mapping[str, str]) -> str:
    """The manifest's name of the column `key`, which may be its name in the data. Raises WrongUse if there is none."""
    found = plain.get(key, key)
    if found in columns:
        return found
    known = [*columns, *(given for given, name in plain.items() if name in columns)]
    raise WrongUse(f"--key {key}: no such column; there are {joined(columns, most=20)}{did_you_mean(key, known)}")


def _sink_path(name: str, sample: Sample) -> str:
    """`out/name`, or that next to the data where the current folder is part of them."""
    ways = ("../" * up + f"out/{name}" for up in range(len(Path.cwd().parts)))
    return next((path for path in ways if relation_of(path, str(sample.options.get("path", ""))) is None), f"out/{name}")


def _measured(measures: tuple[str, ...]) -> str:
    return f"aggregates of {', '.join(measures)}" if measures else "no numbers to aggregate: rows are counted"


def _write_checked(target: Path, text: str) -> None:
    """Write the manifest and check it as `validate` does; one that is refused does not stay."""
    with target.open("x", encoding="utf-8") as file:
        file.write(text)
    try:
        check_before_start(load(target), target.resolve().parent)
    except BaseException:
        target.unlink()
        raise
