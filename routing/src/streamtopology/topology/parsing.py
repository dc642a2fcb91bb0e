"""From a mapping (YAML, JSON, a Kubernetes object) to a Topology, or to every mistake in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from streamtopology.topology import other_words
from streamtopology.topology.autoscaling import read_autoscale
from streamtopology.topology.checks import check
from streamtopology.topology.cron import CRON_EXPECTED, CRON_PATTERN, Cron
from streamtopology.topology.groupings import DEFAULT_POLICY, KEYLESS_POLICY
from streamtopology.topology.limits import (
    LEAST_STORAGE,
    MOST_AGGREGATE_EVERY,
    MOST_CLASSES,
    MOST_INPUTS,
    MOST_INSTANCES,
    MOST_KEPT_SNAPSHOTS,
    MOST_OPERATORS,
    MOST_PULL_SECRETS,
    MOST_SINKS,
    MOST_SOURCES,
    MOST_TABLE_ENTRIES,
    MOST_WINDOW_INTERVALS,
)
from streamtopology.topology.pods import read_pod
from streamtopology.topology.problems import ManifestError, Problem, one_of
from streamtopology.topology.quantities import parse_cpu, parse_duration, parse_memory, parse_storage
from streamtopology.topology.reading import TOPOLOGY_NAME_EXPECTED, Place, is_list, is_mapping
from streamtopology.topology.schema import SchemaError, columns_of, to_ddl
from streamtopology.topology.spark_conf import read_spark_conf
from streamtopology.topology.traits import BUILTINS
from streamtopology.topology.values import (
    API_VERSION,
    DESCRIPTOR_FORMATS,
    EMPTY,
    KIND,
    SINK_FORMATS,
    Autoscale,
    BadTuple,
    Driver,
    ExecutorClass,
    Grouping,
    ImagePullPolicy,
    Input,
    Migration,
    OnRemove,
    OperatorSpec,
    Rebalance,
    RebalanceMode,
    Restore,
    RestoreMode,
    Sink,
    SnapshotSchedule,
    Source,
    StateBackend,
    StateRoom,
    Topology,
    Trigger,
    Watermark,
)
from streamtopology.topology.yaml_file import read_yaml

FORMAT_PATTERN = "[A-Za-z][A-Za-z0-9_.-]*"
_FORMAT = re.compile(FORMAT_PATTERN)
USER_CLASS_PATTERN = "(?:[A-Za-z_][A-Za-z0-9_]*(?:[.][A-Za-z_][A-Za-z0-9_]*)*|[^:]+[.]py):[A-Za-z_][A-Za-z0-9_]*"
_USER_CLASS = re.compile(USER_CLASS_PATTERN)
# A place in a bucket; `.` and `..` are no names there.
BUCKET_PATTERN = "s3://[a-z0-9][a-z0-9.-]*(?:/[.]*[A-Za-z0-9_=-][A-Za-z0-9._=-]*)+/?"
_BUCKET = re.compile(BUCKET_PATTERN)
PLACE_EXPECTED = "an absolute path, file:///PATH or s3://BUCKET/PREFIX"
ORIGIN_EXPECTED = f"expected {EMPTY}, or the checkpoint to copy: a path with a slash, such as ./backup, file:// or s3://"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def load(path: str | Path) -> Topology:
    """The topology in a YAML file. ManifestError: not one YAML document, or mistakes in it; OSError as of `open`."""
    return parse(read_yaml(Path(path)), where=str(path))


def parse(manifest: object, where: str = "the manifest") -> Topology:
    """The topology in a manifest as YAML or JSON give it; ManifestError names it by `where` and every mistake in it.

    `status` and whatever Kubernetes keeps in `metadata` are passed over, so that `kubectl get -o yaml` parses, too.
    """
    reading = read(manifest)
    if reading.problems:
        raise ManifestError(reading.problems, where)
    return reading.topology


@dataclass(frozen=True)
class Reading:
    """The content of a manifest and every mistake in it; a value that could not be read is its default in `topology`."""

    topology: Topology
    problems: tuple[Problem, ...]


def read(manifest: object) -> Reading:
    """The topology in a manifest as YAML or JSON give it, whether or not there are mistakes in it."""
    problems: list[Problem] = []
    top = Place({} if manifest is None else manifest, "", problems).fields("apiVersion", "kind", "metadata", "spec", "status")
    top["apiVersion"].choice([API_VERSION])
    top["kind"].choice([KIND])
    topology = _topology(_metadata_name(top["metadata"]), top["spec"])
    ordered = check(topology, problems)
    return Reading(ordered, tuple(problems))


def _metadata_name(metadata: Place) -> str:
    if not is_mapping(metadata.value):
        metadata.expected("a mapping with name")
        return ""
    return Place(metadata.value.get("name"), "metadata.name", metadata.problems).name(TOPOLOGY_NAME_EXPECTED)


SPEC_FIELDS = (
    "sources",
    "operators",
    "sinks",
    "executors",
    "rebalance",
    "trigger",
    "checkpoint",
    "restore",
    "onBadTuple",
    "onRemove",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "sparkConf",
    "suspend",
    "autoscale",
    "driver",
    "migration",
    "snapshots",
)


def _topology(name: str, place: Place) -> Topology:
    spec = place.fields(*SPEC_FIELDS)
    autoscale = read_autoscale(spec["autoscale"]) if spec["autoscale"].present else None
    pull = spec["imagePullPolicy"]
    topology = Topology(
        name=name,
        sources=tuple(_source(item) for item in _some(spec["sources"], "sources", MOST_SOURCES)),
        operators=tuple(_operator(item) for item in _some(spec["operators"], "operators", MOST_OPERATORS)),
        sinks=tuple(_sink(item) for item in _at_most(spec["sinks"], "sinks", MOST_SINKS)),
        executors=tuple(
            _executor_class(item, autoscale) for item in _some(spec["executors"], "executor classes", MOST_CLASSES)
        ),
        rebalance=_rebalance(spec["rebalance"]),
        trigger=_trigger(spec["trigger"]),
        checkpoint=_checkpoint(spec["checkpoint"]),
        restore=_restore(spec["restore"]) if spec["restore"].present else None,
        on_bad_tuple=cast("BadTuple", spec["onBadTuple"].choice(get_args(BadTuple), "fail")),
        on_remove=cast("OnRemove", spec["onRemove"].choice(get_args(OnRemove), "fail")),
        image=spec["image"].text("the name of an image") if spec["image"].present else None,
        image_pull_policy=cast("ImagePullPolicy", pull.choice(get_args(ImagePullPolicy))) if pull.present else None,
        image_pull_secrets=_image_pull_secrets(spec["imagePullSecrets"]),
        spark_conf=read_spark_conf(spec["sparkConf"]),
        suspend=spec["suspend"].flag(False),
        autoscale=autoscale,
        driver=_driver(spec["driver"]),
        migration=_migration(spec["migration"]),
        snapshots=_snapshots(spec["snapshots"]) if spec["snapshots"].present else None,
    )
    parallelism = topology.default_parallelism
    operators = (replace(one, parallelism=parallelism) if one.follows_executors else one for one in topology.operators)
    return replace(topology, operators=tuple(operators))


def _some(place: Place, what: str, most: int) -> list[Place]:
    """The items of a list that must have at least one."""
    items = _at_most(place, what, most)
    if place.value is None or place.value == []:
        place.wrong(f"a topology needs at least one of its {what}, found none")
    return items


def _at_most(place: Place, what: str, most: int) -> list[Place]:
    place.at_most(most, what)
    return place.items(what)


def _source(place: Place) -> Source:
    source = place.fields("name", "format", "schema", "options", "select", "where", "watermark")
    format_name = source["format"].text("a format: parquet, csv, json, text, kafka, or one that Spark streams, as rate")
    if format_name and not _FORMAT.fullmatch(format_name):
        source["format"].expected("the name of a format, such as parquet")
    lower = format_name.lower()
    return Source(
        name=source["name"].name(),
        format=lower if lower in DESCRIPTOR_FORMATS else format_name,
        schema=_schema(source["schema"]),
        options=source["options"].string_options(),
        select=source["select"].texts("SQL expressions"),
        where=source["where"].text("a SQL condition") if source["where"].present else None,
        watermark=_watermark(source["watermark"]) if source["watermark"].present else None,
    )


def _schema(place: Place) -> str | None:
    if not place.present:
        return None
    try:
        if is_list(place.value):
            columns = [item.fields("name", "type") for item in place.items("columns, each with name and type")]
            pairs = [(column["name"].text("a column name"), column["type"].text("a type")) for column in columns]
            if not all(name and type_text for name, type_text in pairs):
                return None
            return to_ddl(columns_of(to_ddl(pairs)))
        return to_ddl(columns_of(place.value)) if isinstance(place.value, str) else place.expected("Spark DDL")
    except SchemaError as error:
        place.wrong(str(error))
        return None


def _watermark(place: Place) -> Watermark:
    watermark = place.fields("column", "delay", "idleTimeout", "maxAhead")
    return Watermark(
        column=watermark["column"].text("the column with the time of the event"),
        delay_seconds=watermark["delay"].quantity(parse_duration, Watermark.delay_seconds),
        idle_seconds=watermark["idleTimeout"].quantity(parse_duration, Watermark.idle_seconds),
        max_ahead_seconds=watermark["maxAhead"].quantity(parse_duration, Watermark.max_ahead_seconds),
    )


def _operator(place: Place) -> OperatorSpec:
    operator = place.fields("name", "inputs", "parallelism", "grouping", "run", "with", "aggregateEvery", "late", "state")
    return OperatorSpec(
        name=operator["name"].name(),
        inputs=_inputs(operator["inputs"]),
        parallelism=operator["parallelism"].whole(1, 1, MOST_INSTANCES),
        grouping=_grouping(operator["grouping"]),
        run=_run(operator["run"]),
        options=operator["with"].free_options(),
        aggregate_every=operator["aggregateEvery"].whole(1, 1, MOST_AGGREGATE_EVERY),
        late=operator["late"].text("the name of a sink") if operator["late"].present else None,
        state=_state_room(operator["state"]),
        follows_executors=not operator["parallelism"].present,
        path=place.path,
    )


def _state_room(place: Place) -> StateRoom:
    if not place.present:
        return StateRoom()
    given = place.fields("backend", "memory")
    backend = cast("StateBackend", given["backend"].choice(get_args(StateBackend), StateRoom.backend))
    memory = given["memory"].quantity(parse_memory, StateRoom.memory_bytes)
    return StateRoom(backend, memory) if backend == "disk" else StateRoom()


def _inputs(place: Place) -> tuple[Input, ...]:
    if isinstance(place.value, str):
        place.wrong(f"found {place.value!r}, expected a list of inputs; did you mean [{place.value}]?")
        return (Input(place.value, place.value),)
    return tuple(_input(item) for item in _some(place, "inputs", MOST_INPUTS))


def _input(place: Place) -> Input:
    if not is_mapping(place.value):
        name = place.text("the name of a source or operator, or a mapping with from, as, key")
        return Input(name, name)
    edge = place.fields("from", "as", "key")
    origin = edge["from"].text("the name of a source or operator")
    return Input(origin, edge["as"].text("an alias", origin), edge["key"].texts("columns"))


def _grouping(place: Place) -> Grouping:
    if not place.present:
        return Grouping(KEYLESS_POLICY)
    grouping = place.fields("policy", "key", "options")
    policy = grouping["policy"].text("the name of a grouping, such as auto", DEFAULT_POLICY)
    key = grouping["key"].texts("columns")
    for twice in sorted({column for column in key if column and key.count(column) > 1}):
        grouping["key"].wrong(f"found {twice!r} twice; name each column of the key once")
    return Grouping(policy, tuple(dict.fromkeys(key)), grouping["options"].free_options())


def _run(place: Place) -> str:
    run = place.text("a built-in operator, module:Class or path/to/file.py:Class")
    if run and run not in BUILTINS and not _USER_CLASS.fullmatch(run):
        place.wrong(f"{one_of(run, BUILTINS)} (or module:Class, or path/to/file.py:Class)")
    return run


def _sink(place: Place) -> Sink:
    sink = place.fields("name", "input", "format", "options")
    return Sink(
        name=sink["name"].name(),
        input=sink["input"].text("the name of an operator"),
        format=sink["format"].choice(SINK_FORMATS, others=other_words.SINKS),
        options=sink["options"].string_options(),
    )


def _executor_class(place: Place, autoscale: Autoscale | None) -> ExecutorClass:
    executor = place.fields("name", "replicas", "cpu", "memory", "storage", "pod", "maxUnavailable", "costPerHour")
    name = executor["name"].name()
    replicas = executor["replicas"].whole(ExecutorClass.replicas, 0, MOST_INSTANCES)
    if autoscale is not None and name in autoscale.start:
        replicas = autoscale.start[name]
        if executor["replicas"].present:
            executor["replicas"].wrong(
                f"found {executor['replicas'].value!r} and spec.autoscale for the class {name!r}, allowed is one of them: "
                f"leave replicas out, spec.autoscale.{'classes' if autoscale.classes else 'replicas'} has them"
            )
    return ExecutorClass(
        name=name,
        replicas=replicas,
        cpu=executor["cpu"].quantity(parse_cpu, ExecutorClass.cpu),
        memory_bytes=executor["memory"].quantity(parse_memory, ExecutorClass.memory_bytes),
        pod=read_pod(executor["pod"]),
        max_unavailable=executor["maxUnavailable"].whole(0, 1, MOST_INSTANCES) or None,
        cost_per_hour=executor["costPerHour"].price(),
        storage_bytes=_storage(executor["storage"]),
    )


def _driver(place: Place) -> Driver:
    if not place.present:
        return Driver()
    driver = place.fields("cpu", "memory", "storage", "pod")
    return Driver(
        cpu=driver["cpu"].quantity(parse_cpu, Driver.cpu),
        memory_bytes=driver["memory"].quantity(parse_memory, Driver.memory_bytes),
        pod=read_pod(driver["pod"]),
        storage_bytes=_storage(driver["storage"]),
    )


def _storage(place: Place) -> int | None:
    return place.quantity(parse_storage, LEAST_STORAGE) if place.present else None


def _migration(place: Place) -> Migration:
    if not place.present:
        return Migration()
    given = place.fields("threshold", "portion", "resources")
    threshold = given["threshold"].quantity(parse_memory, Migration.threshold_bytes)
    portion = given["portion"].quantity(parse_memory, Migration.portion_bytes)
    if not given["resources"].present:
        return Migration(threshold, portion)
    limits = given["resources"].fields("cpu", "memory", "storage")
    return Migration(
        threshold_bytes=threshold,
        portion_bytes=portion,
        cpu=limits["cpu"].quantity(parse_cpu, Migration.cpu),
        memory_bytes=limits["memory"].quantity(parse_memory, Migration.memory_bytes),
        storage_bytes=_storage(limits["storage"]),
    )


def _snapshots(place: Place) -> SnapshotSchedule:
    given = place.fields("schedule", "to", "keep")
    schedule, keep = given["schedule"].text(CRON_EXPECTED), given["keep"]
    if schedule and not re.fullmatch(CRON_PATTERN, schedule):
        given["schedule"].expected(CRON_EXPECTED)
    elif schedule and Cron.parse(schedule).is_of_no_day:
        given["schedule"].expected("a day that one of its months has")
    to = (_checkpoint(given["to"]) or "") if given["to"].present else given["to"].text(PLACE_EXPECTED)
    if to and not to.startswith(("/", "file:///", "s3:")):
        given["to"].expected(PLACE_EXPECTED)
    return SnapshotSchedule(schedule, to, keep.whole(1, 1, MOST_KEPT_SNAPSHOTS) if keep.present else None)


def _image_pull_secrets(place: Place) -> tuple[str, ...]:
    items = _at_most(place, "imagePullSecrets", MOST_PULL_SECRETS)
    return tuple(item.fields("name")["name"].text("the name of a Secret") for item in items)


def _rebalance(place: Place) -> Rebalance:
    if not place.present:
        return Rebalance()
    rebalance = place.fields("mode", "interval", "tolerance", "maxTableEntries", "windowIntervals")
    return Rebalance(
        mode=cast("RebalanceMode", rebalance["mode"].choice(get_args(RebalanceMode), Rebalance.mode)),
        interval_seconds=_positive_duration(rebalance["interval"], Rebalance.interval_seconds),
        tolerance=rebalance["tolerance"].fraction(Rebalance.tolerance),
        max_table_entries=rebalance["maxTableEntries"].whole(Rebalance.max_table_entries, 0, MOST_TABLE_ENTRIES),
        window_intervals=rebalance["windowIntervals"].whole(Rebalance.window_intervals, 1, MOST_WINDOW_INTERVALS),
    )


def _positive_duration(place: Place, default: float) -> float:
    seconds = place.quantity(parse_duration, default)
    if seconds == 0:
        place.wrong(f"found {place.value!r}, expected a duration above 0 such as 10s")
    return seconds


def _trigger(place: Place) -> Trigger:
    if not place.present:
        return Trigger()
    fields = place.fields("interval", "availableNow", "latency", "realTime", others=other_words.TRIGGERS)
    trigger = Trigger(
        interval_seconds=fields["interval"].quantity(parse_duration, Trigger.interval_seconds),
        available_now=fields["availableNow"].flag(Trigger.available_now),
        latency_seconds=_positive_duration(fields["latency"], 1.0) if fields["latency"].present else None,
        real_time=fields["realTime"].flag(Trigger.real_time),
    )
    if trigger.available_now and trigger.interval_seconds > 0:
        place.wrong("found interval and availableNow together, allowed is one of them: availableNow does not wait")
    return trigger


def _checkpoint(place: Place) -> str | None:
    if not place.present:
        return None
    uri = place.text("a path or URI, such as /var/lib/flights or s3://bucket/flights")
    scheme = _SCHEME.match(uri)
    if scheme and scheme[1] not in ("file", "s3"):
        place.wrong(f"found the scheme {scheme[1]!r} in {uri!r}, allowed: a path without scheme, file://, s3://")
    if scheme and scheme[1] == "s3" and not _BUCKET.fullmatch(uri):
        place.wrong(f"found {uri!r}, expected s3://BUCKET/PREFIX; credentials and endpoint come from the environment")
    return uri or None


def _restore(place: Place) -> Restore:
    given = place.fields("from", "mode")
    mode = cast("RestoreMode", given["mode"].choice(get_args(RestoreMode), Restore.mode))
    if given["from"].value == EMPTY:
        return Restore(EMPTY, mode)
    if given["from"].present:
        origin = _checkpoint(given["from"]) or ""
        if origin and "/" not in origin:
            given["from"].wrong(f"found {origin!r}, {ORIGIN_EXPECTED}")
        return Restore(origin, mode)
    given["from"].wrong(f"is missing, {ORIGIN_EXPECTED}")
    return Restore(EMPTY, mode)
