"""Sources, operators and sinks as calls; each adds one entry to the manifest of its topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from streamtopology.builder.options import (
    AggregateOptions,
    ConsoleSinkOptions,
    CountOptions,
    CsvSinkOptions,
    CsvSourceOptions,
    Ddl,
    DeduplicateOptions,
    DeltaSourceOptions,
    EnrichOptions,
    FileSinkOptions,
    FileSourceOptions,
    FilterOptions,
    FunctionSinkOptions,
    JsonMap,
    JsonSourceOptions,
    KafkaSourceOptions,
    MapOptions,
    PlaceOptions,
    ProcessorOptions,
    QuantilesOptions,
    Scalar,
    SessionWindowOptions,
    SourceOptions,
    TableSinkOptions,
    TextSourceOptions,
    TopKOptions,
    WindowAggregateOptions,
    WindowJoinOptions,
)
from streamtopology.builder.own_code import OwnCode, run_of

NONE: Mapping[str, Any] = {}
_SERVERS = "kafka.bootstrap.servers"


@dataclass(frozen=True)
class Flow:
    """The entries of a manifest's sources, operators and sinks. Files that `run` names are relative to `folder`."""

    folder: Path
    sources: list[dict[str, Any]]
    operators: list[dict[str, Any]]
    sinks: list[dict[str, Any]]


@dataclass(frozen=True)
class Stream:
    """Rows of a source or an operator, or of several of them, and how they are routed. Calls return another stream.

    `inputs`, `grouping`: as an operator of the manifest has them.
    """

    flow: Flow
    inputs: tuple[str | JsonMap, ...]
    grouping: JsonMap | None = None

    def key_by(self, *columns: str, policy: str | None = None, **options: object) -> Stream:
        """The same rows, routed by `columns`; `policy`: auto, or another grouping, with its options.

        A policy that routes by no key needs no columns: `rows.key_by(policy="shuffle")`.
        """
        given = {"policy": policy, "key": list(columns), "options": options}
        return replace(self, grouping={name: value for name, value in given.items() if value})

    def alias(self, name: str, *key: str) -> Stream:
        """The same rows under another name, for an operator that has them twice, and what they call its key's columns."""
        (given,) = self.inputs
        origin = given if isinstance(given, str) else given["from"]
        return replace(self, inputs=({"from": origin, "as": name, **({"key": list(key)} if key else {})},))

    def union(self, *others: Stream) -> Stream:
        """The rows of several streams, for one operator: `left.union(right).key_by("id").window_join(...)`."""
        return Stream(self.flow, tuple(given for stream in (self, *others) for given in stream.inputs))

    def operator(
        self, name: str, run: OwnCode, options: Mapping[str, object] = NONE, **place: Unpack[PlaceOptions]
    ) -> OperatorStream:
        """An operator of your own: a class, or the text of the manifest's `run`. `options`: its `with`."""
        grouping = {} if self.grouping is None else {"grouping": self.grouping}
        written = {"with": options} if options else {}
        entry = {"name": name, "inputs": self.inputs, **place, **grouping, "run": run_of(run, self.flow.folder), **written}
        self.flow.operators.append(entry)
        return OperatorStream(self.flow, (name,))

    def count(self, name: str, **options: Unpack[CountOptions]) -> OperatorStream:
        """Tuples per key."""
        return self._built_in(name, "count", options)

    def aggregate(self, name: str, **options: Unpack[AggregateOptions]) -> OperatorStream:
        """Sum, mean, min, max, count per key: `aggregates={"total": "sum(fare)"}`."""
        return self._built_in(name, "aggregate", options)

    def quantiles(self, name: str, **options: Unpack[QuantilesOptions]) -> OperatorStream:
        """Quantiles of a column per key."""
        return self._built_in(name, "quantiles", options)

    def top_k(self, name: str, **options: Unpack[TopKOptions]) -> OperatorStream:
        """The k ids with the largest values per key."""
        return self._built_in(name, "top-k", options)

    def deduplicate(self, name: str, **options: Unpack[DeduplicateOptions]) -> OperatorStream:
        """The first tuple of each key."""
        return self._built_in(name, "deduplicate", options)

    def map(self, name: str, **options: Unpack[MapOptions]) -> OperatorStream:
        """New columns by SQL expressions."""
        return self._built_in(name, "map", options)

    def filter(self, name: str, **options: Unpack[FilterOptions]) -> OperatorStream:
        """The tuples for which a SQL condition holds."""
        return self._built_in(name, "filter", options)

    def enrich(self, name: str, **options: Unpack[EnrichOptions]) -> OperatorStream:
        """More columns, of a small file or by SQL expressions."""
        return self._built_in(name, "enrich", options)

    def window_aggregate(self, name: str, **options: Unpack[WindowAggregateOptions]) -> OperatorStream:
        """Aggregates per key and window of event time."""
        return self._built_in(name, "window-aggregate", options)

    def session_window(self, name: str, **options: Unpack[SessionWindowOptions]) -> OperatorStream:
        """Aggregates per key and session of event time, which ends with a pause."""
        return self._built_in(name, "session-window", options)

    def window_join(self, name: str, **options: Unpack[WindowJoinOptions]) -> OperatorStream:
        """Tuples of several inputs that are near in time."""
        return self._built_in(name, "window-join", options)

    def transform_with_state(self, name: str, run: OwnCode, **options: Unpack[ProcessorOptions]) -> OperatorStream:
        """A StatefulProcessor of PySpark, as for `transformWithState`."""
        return self._built_in(name, run, options)

    def _built_in(self, name: str, run: OwnCode, given: Mapping[str, Any]) -> OperatorStream:
        place: Any = {field: value for field, value in given.items() if field in PlaceOptions.__annotations__}
        return self.operator(name, run, {field: value for field, value in given.items() if field not in place}, **place)


@dataclass(frozen=True)
class OperatorStream(Stream):
    """Rows that an operator emits."""

    @property
    def write(self) -> SinkWriter:
        """Sinks of these rows: `counts.write.parquet("totals", "build/totals")`."""
        (origin,) = self.inputs
        return SinkWriter(self.flow, str(origin if isinstance(origin, str) else origin["from"]))


@dataclass(frozen=True)
class StreamReader:
    """Sources of a topology: `topology.read.parquet("rides", "data/rides", schema="id BIGINT, fare DOUBLE")`."""

    flow: Flow

    def parquet(self, name: str, path: str | Path, schema: Ddl, **options: Unpack[FileSourceOptions]) -> Stream:
        """Parquet files of a folder, of a pattern, or of `s3://BUCKET/PREFIX`."""
        return self._source(name, "parquet", schema, {"path": path, **options})

    def csv(self, name: str, path: str | Path, schema: Ddl, **options: Unpack[CsvSourceOptions]) -> Stream:
        """Csv files."""
        return self._source(name, "csv", schema, {"path": path, **options})

    def json(self, name: str, path: str | Path, schema: Ddl, **options: Unpack[JsonSourceOptions]) -> Stream:
        """Files with a JSON object in each line."""
        return self._source(name, "json", schema, {"path": path, **options})

    def text(self, name: str, path: str | Path, schema: Ddl | None = None, **options: Unpack[TextSourceOptions]) -> Stream:
        """Lines of files, in one column, `value`."""
        return self._source(name, "text", schema, {"path": path, **options})

    def delta(self, name: str, path: str | Path, schema: Ddl, **options: Unpack[DeltaSourceOptions]) -> Stream:
        """The rows of a Delta table, a folder or `s3://BUCKET/PREFIX`, and those that are appended to it."""
        return self._source(name, "delta", schema, {"path": path, **options})

    def iceberg(
        self,
        name: str,
        table: str,
        catalog: Mapping[str, Scalar],
        schema: Ddl,
        options: Mapping[str, Scalar] = NONE,
        **rows: Unpack[SourceOptions],
    ) -> Stream:
        """The rows of a table of Apache Iceberg, and those that are appended to it. `table` and `catalog`: as of a sink."""
        return self._source(name, "iceberg", schema, {"table": table, **_of_catalog(catalog), **options, **rows})

    def kafka(
        self,
        name: str,
        servers: str,
        subscribe: str | None = None,
        settings: Mapping[str, Scalar] = NONE,
        **options: Unpack[KafkaSourceOptions],
    ) -> Stream:
        """Topics of Kafka, or `subscribePattern`. `settings`: of its client, `{"kafka.security.protocol": "SASL_SSL"}`."""
        topics: dict[str, object] = {} if subscribe is None else {"subscribe": subscribe}
        return self._source(name, "kafka", None, {_SERVERS: servers, **topics, **settings, **options})

    def dataframe(self, name: str, run: OwnCode, **rows: Unpack[SourceOptions]) -> Stream:
        """The streaming frame that a function of yours makes of a Spark session."""
        return self._source(name, "dataframe", None, {"run": run_of(run, self.flow.folder), **rows})

    def format(
        self,
        name: str,
        format: str,
        options: Mapping[str, Scalar] = NONE,
        schema: Ddl | None = None,
        **rows: Unpack[SourceOptions],
    ) -> Stream:
        """Any format that Spark streams: `rate`, `avro`, ..."""
        return self._source(name, format, schema, {**options, **rows})

    def _source(self, name: str, format: str, schema: Ddl | None, given: Mapping[str, Any]) -> Stream:
        rows = {field: value for field, value in given.items() if field in SourceOptions.__annotations__}
        options = {option: value for option, value in given.items() if option not in rows}
        declared = {} if schema is None else {"schema": schema}
        self.flow.sources.append({"name": name, "format": format, **declared, "options": options, **rows})
        return Stream(self.flow, (name,))


@dataclass(frozen=True)
class SinkWriter:
    """Sinks of the operator `origin`."""

    flow: Flow
    origin: str

    def parquet(self, name: str, path: str | Path, **options: Unpack[FileSinkOptions]) -> None:
        """A folder of parquet files, or `s3://BUCKET/PREFIX`."""
        self._sink(name, "parquet", {"path": path, **options})

    def json(self, name: str, path: str | Path, **options: Unpack[FileSinkOptions]) -> None:
        """A folder of files with a JSON object in each line, or `s3://BUCKET/PREFIX`."""
        self._sink(name, "json", {"path": path, **options})

    def csv(self, name: str, path: str | Path, **options: Unpack[CsvSinkOptions]) -> None:
        """A folder of csv files, or `s3://BUCKET/PREFIX`."""
        self._sink(name, "csv", {"path": path, **options})

    def delta(self, name: str, path: str | Path, **options: Unpack[TableSinkOptions]) -> None:
        """A table of Delta Lake."""
        self._sink(name, "delta", {"path": path, **options})

    def iceberg(self, name: str, table: str, catalog: Mapping[str, Scalar], **options: Unpack[TableSinkOptions]) -> None:
        """A table of Apache Iceberg, `NAMESPACE.NAME`. `catalog`: its type, uri, warehouse, and what else it takes."""
        self._sink(name, "iceberg", {"table": table, **_of_catalog(catalog), **options})

    def console(self, name: str, **options: Unpack[ConsoleSinkOptions]) -> None:
        """The terminal of the run."""
        self._sink(name, "console", options)

    def memory(self, name: str) -> None:
        """This process's memory: `topology.rows(name)` has them after the run."""
        self._sink(name, "memory", NONE)

    def function(self, name: str, run: OwnCode, **options: Unpack[FunctionSinkOptions]) -> None:
        """A function of yours, called with the rows and the number of each batch, as for Spark's `foreachBatch`."""
        self._sink(name, "function", {"run": run_of(run, self.flow.folder), **options})

    def spark(self, name: str, writer: str, options: Mapping[str, Scalar] = NONE) -> None:
        """Any writer of Spark: `orc`, `avro`, `jdbc`, with its own options."""
        self._sink(name, "spark", {"writer": writer, **options})

    def kafka(self, name: str, servers: str, topic: str, settings: Mapping[str, Scalar] = NONE) -> None:
        """A topic of Kafka. `settings`: of its client."""
        self._sink(name, "kafka", {_SERVERS: servers, "topic": topic, **settings})

    def _sink(self, name: str, format: str, options: Mapping[str, Any]) -> None:
        self.flow.sinks.append({"name": name, "input": self.origin, "format": format, "options": dict(options)})


def _of_catalog(catalog: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    return {f"catalog.{option}": value for option, value in catalog.items()}
