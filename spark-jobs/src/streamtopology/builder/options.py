"""The options of a manifest by their names there, for editors: what is wrong is said by the manifest's own checks.

`tests/jobs/test_builder.py` holds them against what those checks know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Required, TypedDict

from streamtopology.topology import BadTuple, ImagePullPolicy, RebalanceMode, RestoreMode
from streamtopology.topology.values import OnRemove

Scalar = str | int | float | bool
JsonMap = Mapping[str, object]
# Spark's DDL: `id BIGINT, city STRING`.
Ddl = str
Emit = Literal["updates", "all", "tuples", "nothing"]
Nan = Literal["ignore", "keep"]


class WatermarkOptions(TypedDict, total=False):
    column: Required[str]
    delay: str
    idleTimeout: str
    maxAhead: str


class SourceOptions(TypedDict, total=False):
    """What any source takes beside its format's options."""

    select: Sequence[str]
    where: str
    watermark: WatermarkOptions


class FileSourceOptions(SourceOptions, total=False):
    maxFilesPerTrigger: int
    pathGlobFilter: str
    recursiveFileLookup: bool
    basePath: str | Path


class DeltaSourceOptions(SourceOptions, total=False):
    maxFilesPerTrigger: int
    startingVersion: int | Literal["latest"]
    skipChangeCommits: bool


class TextSourceOptions(FileSourceOptions, total=False):
    encoding: str
    charset: str


class JsonSourceOptions(TextSourceOptions, total=False):
    dateFormat: str
    timestampFormat: str
    timestampNTZFormat: str


class CsvSourceOptions(JsonSourceOptions, total=False):
    header: bool
    sep: str
    delimiter: str
    quote: str
    escape: str
    nullValue: str
    multiLine: bool
    mode: Literal["FAILFAST"]


class KafkaSourceOptions(SourceOptions, total=False):
    subscribePattern: str
    startingTimestamp: int
    startingOffsetsByTimestamp: str
    startingOffsetsByTimestampStrategy: Literal["error", "latest"]
    startingOffsets: str
    maxOffsetsPerTrigger: int
    failOnDataLoss: bool
    includeHeaders: bool


class StateOptions(TypedDict, total=False):
    backend: Literal["memory", "disk"]
    memory: str | int


class PlaceOptions(TypedDict, total=False):
    """What any operator takes beside its `with`."""

    parallelism: int
    aggregateEvery: int
    late: str
    state: StateOptions


class OperatorOptions(PlaceOptions, total=False):
    costPerTuple: str | float
    ttl: str | float


class CountOptions(OperatorOptions, total=False):
    emit: Emit
    groupBy: Sequence[str]
    select: Sequence[str]


class AggregateOptions(CountOptions, total=False):
    aggregates: Required[Mapping[str, str]]
    nan: Nan


class QuantilesOptions(CountOptions, total=False):
    column: Required[str]
    min: Required[float]
    max: Required[float]
    quantiles: Sequence[float]
    accuracy: float
    resolution: float


class TopKOptions(CountOptions, total=False):
    by: Required[str]
    id: Required[str]
    k: int
    idBytes: int


class DeduplicateOptions(OperatorOptions, total=False):
    time: str
    within: str | float


class MapOptions(OperatorOptions, total=False):
    select: Required[Sequence[str]]
    where: str


class FilterOptions(OperatorOptions, total=False):
    where: Required[str]


class LookupOptions(TypedDict, total=False):
    file: str
    format: Literal["parquet", "csv", "json", "delta", "iceberg"]
    on: Required[str | Sequence[str]]
    key: str | Sequence[str]
    join: Literal["left", "inner"]
    refresh: str | float
    columns: Sequence[str]
    schema: Ddl
    options: Mapping[str, Scalar]


class EnrichOptions(OperatorOptions, total=False):
    add: Mapping[str, str]
    lookup: LookupOptions
    cost: str


class WindowAggregateOptions(OperatorOptions, total=False):
    aggregates: Required[Mapping[str, str]]
    time: str
    size: str | float
    slide: str | float
    closes: str
    groupBy: Sequence[str]
    emit: Literal["closed", "updates", "all"]
    nan: Nan
    allowedLateness: str | float


class SessionWindowOptions(OperatorOptions, total=False):
    aggregates: Required[Mapping[str, str]]
    time: Required[str]
    gap: str | float
    gapColumn: str
    groupBy: Sequence[str]
    emit: Literal["closed"]
    nan: Nan


class WindowJoinOptions(OperatorOptions, total=False):
    time: str | Mapping[str, str]
    size: str | float
    within: str | float | Sequence[str | float]
    outer: Sequence[str]
    semi: str
    anti: str
    select: Sequence[str]
    where: str
    allowedLateness: str | float


class ProcessorOptions(OperatorOptions, total=False):
    output: Required[Ddl]
    timeMode: Literal["None", "ProcessingTime", "EventTime"]
    time: str
    form: Literal["rows", "pandas"]
    initialState: str
    args: JsonMap


class TableSinkOptions(TypedDict, total=False):
    partitionBy: str


class FileSinkOptions(TableSinkOptions, total=False):
    filePerTask: bool


class CsvSinkOptions(FileSinkOptions, total=False):
    header: bool


class ConsoleSinkOptions(TypedDict, total=False):
    numRows: int
    truncate: bool


class FunctionSinkOptions(TypedDict, total=False):
    frame: Literal["spark", "arrow"]
    empty: bool


class ExecutorOptions(TypedDict, total=False):
    replicas: int
    cpu: str | float
    memory: str | int
    storage: str | int
    maxUnavailable: int
    costPerHour: float
    pod: JsonMap


class RebalanceOptions(TypedDict, total=False):
    mode: RebalanceMode
    interval: str
    tolerance: float
    maxTableEntries: int
    windowIntervals: int


class TriggerOptions(TypedDict, total=False):
    interval: str
    availableNow: bool
    latency: str
    realTime: bool


RestoreOptions = TypedDict("RestoreOptions", {"from": Required[str], "mode": RestoreMode}, total=False)


class SpecOptions(TypedDict, total=False):
    """The fields of `spec` but for its streams and executors; those of Kubernetes alone in its own shapes."""

    rebalance: RebalanceOptions
    trigger: TriggerOptions
    checkpoint: str | Path
    restore: RestoreOptions
    onBadTuple: BadTuple
    onRemove: OnRemove
    sparkConf: Mapping[str, str]
    image: str
    imagePullPolicy: ImagePullPolicy
    imagePullSecrets: Sequence[Mapping[str, str]]
    suspend: bool
    autoscale: JsonMap
    driver: JsonMap
    migration: JsonMap
    snapshots: JsonMap


class RunSettings(TypedDict, total=False):
    """The options of `streamtopology run`."""

    batches: int
    duration: str
    drain: bool
    fresh: bool
    yes: bool
    report: str | Path
    baseline: str
    port: int
    open: bool
    work_dir: str | Path
