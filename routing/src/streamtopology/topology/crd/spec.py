"""The schema of `spec`: every field of the manifest with its description, default and limits."""

from __future__ import annotations

from typing import get_args

from streamtopology.topology.crd import rules
from streamtopology.topology.crd.autoscaling import autoscale
from streamtopology.topology.crd.fields import (
    Schema,
    anything,
    choice,
    duration,
    flag,
    fraction,
    free,
    mapping,
    named_items,
    options,
    price,
    quantity,
    text,
    texts_by_name,
    whole,
)
from streamtopology.topology.crd.spark_conf import spark_conf
from streamtopology.topology.groupings import BUILT_IN, DEFAULT_POLICY, KEYLESS_POLICY
from streamtopology.topology.limits import (
    MOST_AGGREGATE_EVERY,
    MOST_CLASSES,
    MOST_GRACE_SECONDS,
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
from streamtopology.topology.parsing import FORMAT_PATTERN
from streamtopology.topology.pods import DRIVER_POD, EXECUTOR_POD, LONGEST_LABEL_VALUE, POD_FIELDS, PodField, PodKind
from streamtopology.topology.quantities import format_cpu, format_duration, format_memory
from streamtopology.topology.reading import LONGEST_NAME, NAME_PATTERN
from streamtopology.topology.traits import BUILTINS
from streamtopology.topology.values import (
    EMPTY,
    SINK_FORMATS,
    BadTuple,
    Driver,
    ExecutorClass,
    ImagePullPolicy,
    Migration,
    OnRemove,
    Rebalance,
    RebalanceMode,
    Restore,
    RestoreMode,
    StateBackend,
    StateRoom,
    Trigger,
    Watermark,
)

_TEXT_OR_MORE = {"minLength": 1}


def spec_schema() -> Schema:
    return mapping(
        "What runs: where rows come from, what is done to them, where they go, and on which executors.",
        {
            "sources": named_items("Where rows come from.", _source(), 1, MOST_SOURCES),
            "operators": named_items("What is done to the rows, in any order; no cycles.", _operator(), 1, MOST_OPERATORS),
            "sinks": named_items("Where the rows of operators go.", _sink(), 0, MOST_SINKS),
            "executors": named_items("Classes of executors, each with its own limits.", _executor_class(), 1, MOST_CLASSES),
            "rebalance": _rebalance(),
            "trigger": _trigger(),
            "checkpoint": _checkpoint(),
            "restore": _restore(),
            "onBadTuple": choice(
                "A tuple that an operator cannot process ends the run, or is set aside.", get_args(BadTuple), "fail"
            ),
            "onRemove": choice(
                "State in the checkpoint that no operator keeps any more refuses the start, or is forgotten for good.",
                get_args(OnRemove),
                "fail",
            ),
            "image": text("The image of driver, executors and migration Jobs; the operator's default if left out.", 1024),
            "imagePullPolicy": choice("When the image is pulled; Kubernetes decides if left out.", get_args(ImagePullPolicy)),
            "imagePullSecrets": named_items(
                "Secrets to pull the image with, of all pods; pod.imagePullSecrets adds to them.",
                mapping("A Secret in the topology's namespace.", {"name": text("Its name.", 253)}, required=("name",)),
                0,
                MOST_PULL_SECRETS,
            ),
            "sparkConf": spark_conf(),
            "suspend": flag("Remove driver and executors and keep everything else; false resumes from the checkpoint.", False),
            "autoscale": autoscale(),
            "driver": _driver(),
            "migration": _migration(),
            "snapshots": _snapshots(),
        },
        required=("sources", "operators", "executors"),
        rules=rules.spec_rules(),
    )


def _checkpoint() -> Schema:
    return text(
        "Where state, offsets and epochs are kept: a path without scheme, file:// or s3://.",
        1024,
        **{"x-kubernetes-validations": [rules.CHECKPOINT_RULE, rules.BUCKET_RULE]},
    )


def _restore() -> Schema:
    return mapping(
        "What a checkpoint without a committed batch begins with; later it means nothing.",
        {
            "from": text(
                "The checkpoint to copy, another topology's or a snapshot's: a path with a slash, file:// or s3://. "
                f"{EMPTY}: nothing, although another checkpoint was in use before.",
                1024,
                **{"x-kubernetes-validations": [rules.ORIGIN_RULE, rules.CHECKPOINT_RULE, rules.BUCKET_RULE]},
            ),
            "mode": choice(
                "Clone: an identity of its own. Own: continues the original, which must not run any more, and its sinks.",
                get_args(RestoreMode),
                Restore.mode,
            ),
        },
        required=["from"],
    )


def _migration() -> Schema:
    return mapping(
        "How state moves when routing changes.",
        {
            "threshold": quantity(
                "More state than this is pre-copied by a Job.",
                format_memory(Migration.threshold_bytes),
            ),
            "portion": quantity(
                "State moved in a switch's first batch, per executor with a whole CPU; more takes several batches.",
                format_memory(Migration.portion_bytes),
            ),
            "resources": mapping(
                "Limits of the Job's pod.",
                {
                    "cpu": quantity("500m if left out; at most 100m of it is requested."),
                    "memory": quantity("1Gi if left out: request and limit."),
                    "storage": _storage(),
                },
            ),
        },
        defaulted=True,
    )


def _snapshots() -> Schema:
    return mapping(
        "Snapshots that the operator makes by itself: StreamTopologySnapshots, each of a batch that none before has.",
        {
            "schedule": text(
                "When, in UTC, as cron: minute, hour, day of month, month, day of week (0 is Sunday).",
                200,
                **{"x-kubernetes-validations": [rules.CRON_RULE]},
            ),
            "to": text(
                "Each copy gets a folder below: an absolute path, file:// or s3://.",
                1000,
                **{"x-kubernetes-validations": [rules.PLACE_RULE, rules.BUCKET_RULE]},
            ),
            "keep": whole(
                "Whole copies that are kept; older ones of this schedule are deleted. All, if left out.", 1, MOST_KEPT_SNAPSHOTS
            ),
        },
        required=("schedule", "to"),
    )


def _name(description: str) -> Schema:
    return text(description, LONGEST_NAME, **{"x-kubernetes-validations": rules.name_rules()})


def _source() -> Schema:
    return mapping(
        "A stream of rows.",
        {
            "name": _name("What inputs refer to; sources and operators share one set of names."),
            "format": text(
                "parquet, csv, json, text, kafka, or any other format that Spark streams.",
                256,
                pattern=f"^{FORMAT_PATTERN}$",
            ),
            "schema": anything(
                "Spark DDL such as `id BIGINT, city STRING`, or a list of {name, type}. Required for parquet, csv and json.",
                **_TEXT_OR_MORE,
            ),
            "options": options("The format's own options: path, maxFilesPerTrigger, header, kafka.bootstrap.servers, ..."),
            "select": anything("SQL expressions (DuckDB's), one or a list: each a column or `expression AS name`."),
            "where": text("A SQL condition over the source's columns."),
            "watermark": mapping(
                "Event time of the rows; operators with windows need it.",
                {
                    "column": text("The column with the time of the event: a timestamp, or epoch seconds."),
                    "delay": duration(
                        "How far behind the newest a row may be.",
                        rules.duration_rules(),
                        format_duration(Watermark.delay_seconds),
                    ),
                    "idleTimeout": duration(
                        "A source silent for so long holds the others back no more.",
                        rules.duration_rules(),
                        format_duration(Watermark.idle_seconds),
                    ),
                    "maxAhead": duration(
                        "A time this far after the clock's moves no watermark.",
                        rules.duration_rules(),
                        format_duration(Watermark.max_ahead_seconds),
                    ),
                },
                required=("column",),
            ),
        },
        required=("name", "format"),
    )


def _operator() -> Schema:
    inputs: Schema = {
        "type": "array",
        "description": "Names of sources and operators, or mappings of from, as and key.",
        "items": anything("The name of a source or operator, or {from, as, key}.", **_TEXT_OR_MORE),
        "minItems": 1,
        "maxItems": MOST_INPUTS,
        "x-kubernetes-list-type": "atomic",
    }
    return mapping(
        "A processing element.",
        {
            "name": _name("What inputs and sinks refer to; sources and operators share one set of names."),
            "inputs": inputs,
            "parallelism": whole("Instances at most; as many as executors if left out.", 1, MOST_INSTANCES),
            "grouping": mapping(
                "How tuples find their instance; left out, any instance takes any tuple.",
                {
                    "policy": text(
                        f"The grouping: {', '.join(BUILT_IN)}, or one of a package that is installed with the operator.",
                        LONGEST_NAME,
                        pattern=f"^{NAME_PATTERN}$",
                        default=DEFAULT_POLICY,
                    ),
                    "key": anything("The column or columns that tuples are routed by.", **_TEXT_OR_MORE),
                    "options": free("The grouping's own options."),
                },
            )
            | {"default": {"policy": KEYLESS_POLICY}},
            "run": text(
                f"A built-in ({', '.join(BUILTINS)}), module:Class, or path/to/file.py:Class.",
                512,
                **{"x-kubernetes-validations": rules.run_rules(BUILTINS)},
            ),
            "with": free("The operator's options."),
            "aggregateEvery": whole(
                "On an edge that splits keys: after how many batches partial results are merged.", 1, MOST_AGGREGATE_EVERY, 1
            ),
            "late": text(
                "Of the sinks that read the operator, the one that takes its late rows in place of results.", LONGEST_NAME
            ),
            "state": mapping(
                "Where the state of its instances is.",
                {
                    "backend": choice(
                        "In memory; or on disk, with what was used last in memory.", get_args(StateBackend), StateRoom.backend
                    ),
                    "memory": quantity(
                        "With backend disk: memory for the keys of each instance.", format_memory(StateRoom.memory_bytes)
                    ),
                },
            ),
        },
        required=("name", "inputs", "run"),
    )


def _sink() -> Schema:
    return mapping(
        "Where the rows of one operator go; every batch is published once.",
        {
            "name": _name("The sink's name."),
            "input": text("The operator whose rows it takes.", LONGEST_NAME),
            "format": choice("How rows are written.", SINK_FORMATS),
            "options": options("The format's own options: path, topic, kafka.bootstrap.servers, ..."),
        },
        required=("name", "input", "format"),
    )


def _executor_class() -> Schema:
    return mapping(
        "Executors with the same limits: a StatefulSet.",
        {
            "name": _name("The class."),
            "replicas": whole("Executors of the class; 1 if left out, none where autoscale names it.", 0, MOST_INSTANCES),
            "cpu": quantity("CPU of each: request and limit.", format_cpu(ExecutorClass.cpu)),
            "memory": quantity(
                "Memory of each: request and limit, at least 512Mi.",
                format_memory(ExecutorClass.memory_bytes),
            ),
            "storage": _storage(" of each"),
            "maxUnavailable": whole(
                "Executors that may be missing at once while pods are replaced; a tenth of the class, at least 1, if left out.",
                1,
                MOST_INSTANCES,
            ),
            "costPerHour": price(
                "Price of one executor for an hour, in any currency: `plan` and autoscale.classes compare classes by it."
            ),
            "pod": _pod("Further settings of the executors' pods.", EXECUTOR_POD),
        },
        required=("name",),
    )


def _driver() -> Schema:
    return mapping(
        "The driver's pod.",
        {
            "cpu": quantity("CPU: request and limit.", format_cpu(Driver.cpu)),
            "memory": quantity(
                "Memory: request and limit, at least 1Gi.",
                format_memory(Driver.memory_bytes),
            ),
            "storage": _storage(),
            "pod": _pod("Further settings of the driver's pod.", DRIVER_POD),
        },
        defaulted=True,
    )


def _storage(of_each: str = "") -> Schema:
    return quantity(f"Ephemeral storage{of_each}: request and limit, at least 64Mi; none if left out.")


def _pod(description: str, kind: PodKind) -> Schema:
    return mapping(
        f"{description} Kubernetes' own shapes; it judges them when the pod is made.",
        {field.name: _pod_field(field, kind) for field in POD_FIELDS},
        rules=rules.pod_rules(kind),
    )


def _pod_field(field: PodField, kind: PodKind) -> Schema:
    description = f"{field.summary[0].upper()}{field.summary[1:]}."
    if field.form == "seconds":
        least = f"{kind.grace_seconds} if left out, and at least: {kind.why} in that time."
        return whole(f"{description[:-1]}; {least}", kind.grace_seconds, MOST_GRACE_SECONDS)
    if field.form == "text":
        return text(description, 253)
    if field.form == "texts":
        checks = rules.reserved_label_rules() if field.name in ("labels", "annotations") else []
        checks += rules.label_name_rules()
        values: Schema = {"type": "string"}
        if field.name in ("labels", "nodeSelector"):
            checks += rules.label_value_rules()
            values["maxLength"] = LONGEST_LABEL_VALUE
        ours = {"x-kubernetes-validations": checks} if checks else {}
        return texts_by_name(description) | {"additionalProperties": values, "maxProperties": field.most} | ours
    if field.form == "object":
        return free(description)
    item = _pod_item(field)
    if field.name == "env":
        item["x-kubernetes-validations"] = rules.reserved_env_rules()
    if field.name in ("env", "volumes", "initContainers"):
        return named_items(description, item, 0, field.most)
    return _pod_items(field, description, item)


def _pod_items(field: PodField, description: str, item: Schema) -> Schema:
    items: Schema = {"type": "array", "description": description, "items": item, "x-kubernetes-list-type": "atomic"}
    return items | {"maxItems": field.most}


def _pod_item(field: PodField) -> Schema:
    item: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    longest = {"image": 1024}
    own = {name: text(f"Its {name}.", longest.get(name, 253)) for name in field.needs}
    quoted: Schema = {"type": "string", "nullable": True}
    own |= {name: {**quoted, "description": f"Its {name}, a text."} for name in field.texts}
    own |= {inner.name: _pod_items(inner, f"Its {inner.summary}.", _pod_item(inner)) for inner in field.within}
    if field.name in ("volumes", "initContainers"):
        own["name"] = _name("Its name.")
    if own:
        item["properties"] = own
    if field.needs:
        item["required"] = list(field.needs)
    return item


def _rebalance() -> Schema:
    return mapping(
        "When and how routing changes while it runs.",
        {
            "mode": choice(
                "Re-route by itself, say what would be done, or keep still.", get_args(RebalanceMode), Rebalance.mode
            ),
            "interval": duration(
                "How often it is judged.", rules.duration_rules(above_zero=True), format_duration(Rebalance.interval_seconds)
            ),
            "tolerance": fraction("Imbalance above which a re-routing is considered.", Rebalance.tolerance),
            "maxTableEntries": whole(
                "Explicit keys in an operator's table.", 0, MOST_TABLE_ENTRIES, Rebalance.max_table_entries
            ),
            "windowIntervals": whole(
                "Over how many intervals load is looked at.", 1, MOST_WINDOW_INTERVALS, Rebalance.window_intervals
            ),
        },
        defaulted=True,
    )


def _trigger() -> Schema:
    return mapping(
        "When batches start.",
        {
            "interval": duration(
                "A batch starts so often; 0: when the last one is done.",
                rules.duration_rules(),
                format_duration(Trigger.interval_seconds),
            ),
            "availableNow": flag("Process the available input, then stop.", Trigger.available_now),
            "latency": duration(
                "About how long a batch may take: of files and of Kafka as much is read at a time. Left out: all there is.",
                rules.duration_rules(above_zero=True),
            ),
            "realTime": flag("Keep workers on all executors: a batch needs no job of Spark.", Trigger.real_time),
        },
        rules=[rules.TRIGGER_RULE],
        defaulted=True,
    )
