"""Values of each type and the casts that people know from Spark, played by Spark and by our SQL, and the table of both."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from streamtopology.jobs.columnar.expressions import ExpressionError, project

ERROR = "an error"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MORE_THAN_A_CELL = 3

_WHOLE_TEXTS = ["0", "7", "-7", "+7", " 7 ", "007", "127", "128", "2147483648", "9223372036854775808", "", "abc", "1 2"]
_OTHER_NUMBERS = ["2.5", "2.7", "-2.7", ".5", "5.", "1e2", "1_000", "0x10", "1,5", "NaN", "Infinity", "-inf", "1.5f", "2L"]
_DATES = ["2024-02-29", "2023-02-29", "2024-1-5", "2024", "2024-03", "01/02/2024", "20240102", "today", ""]
_TIMES = [
    *("2024-01-01 05:30:00", "2024-01-01T05:30:00", "2024-01-01 05:30:00.123456", "2024-01-01 05:30"),
    *("2024-01-01T05:30:00Z", "2024-01-01T05:30:00+02:00", "2024-01-01 05:30:00-08", "2024-01-01 05:30:00 Europe/Zurich"),
]
_REALS = [0.0, -0.0, 1.0, 2.5, 2.7, -2.5, -2.7, 3.5, 0.1, 1e7, 1e20, 1e-7, 123456789.125, math.nan, math.inf, -math.inf]
_INTS = [0, 1, -1, 5, 127, 128, -129, 1_700_000_000]
_INSTANTS = [
    _EPOCH,
    datetime.datetime(2024, 1, 1, 5, 30, tzinfo=datetime.UTC),
    datetime.datetime(2024, 1, 1, 5, 30, 0, 123456, tzinfo=datetime.UTC),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=datetime.UTC),
]
_BYTES = [*(text.encode() for text in ("abc", "Zürich", "東京 😀", '{"a": "\\x"}', "", "a\\b", "\0")), b"\xff\xfe", b"a\xc3"]
_OTHER_TEXTS = ["true", "T", "yes", "on", "1", "no", "Zürich", "a\\b"]
_DECIMALS = [Decimal(text) for text in ("0.00", "2.50", "2.70", "-2.70", "99999999.99")]
_VALUES: dict[str, pa.Array] = {
    "BINARY": pa.array(_BYTES),
    "STRING": pa.array([*_WHOLE_TEXTS, *_OTHER_NUMBERS, *_DATES, *_TIMES, *_OTHER_TEXTS]),
    "DOUBLE": pa.array(_REALS, pa.float64()),
    "FLOAT": pa.array(_REALS, pa.float32()),
    "DECIMAL(10,2)": pa.array(_DECIMALS, pa.decimal128(10, 2)),
    "INT": pa.array(_INTS, pa.int32()),
    "BIGINT": pa.array([*_INTS, 2**31, 2**53 + 1, -(2**63)], pa.int64()),
    "BOOLEAN": pa.array([True, False]),
    "DATE": pa.array([datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]),
    "TIMESTAMP": pa.array(_INSTANTS, pa.timestamp("us", "UTC")),
    "ARRAY<INT>": pa.array([[1, 2], [], [None]], pa.list_(pa.int32())),
    "ARRAY<DOUBLE>": pa.array([[1.0, 2.7], [2.5], [None]], pa.list_(pa.float64())),
}
_NUMBERS = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)")
_TARGETS = {
    "BINARY": ("STRING", "INT"),
    "STRING": (*_NUMBERS, "BOOLEAN", "DATE", "TIMESTAMP", "BINARY"),
    "DOUBLE": ("TINYINT", "INT", "BIGINT", "FLOAT", "DECIMAL(10,2)", "BOOLEAN", "STRING", "TIMESTAMP"),
    "FLOAT": ("INT", "DOUBLE", "DECIMAL(10,2)", "STRING"),
    "DECIMAL(10,2)": ("TINYINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(10,1)", "BOOLEAN", "STRING"),
    "INT": ("TINYINT", "BIGINT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "STRING", "TIMESTAMP", "DATE", "BINARY"),
    "BIGINT": ("INT", "FLOAT", "DOUBLE", "STRING", "TIMESTAMP"),
    "BOOLEAN": ("INT", "DOUBLE", "STRING"),
    "DATE": ("INT", "STRING", "TIMESTAMP"),
    "TIMESTAMP": ("INT", "BIGINT", "DOUBLE", "STRING", "DATE"),
    "ARRAY<INT>": ("STRING",),
    "ARRAY<DOUBLE>": ("ARRAY<INT>",),
}
_OTHER_NAMES = {"ARRAY<INT>": "INT[]"}
CASTS = [(kind, target) for kind, targets in _TARGETS.items() for target in targets]


def count_of_values() -> int:
    return sum(len(_VALUES[kind]) for kind, _ in CASTS)


@dataclass(frozen=True)
class Difference:
    value: str
    spark: str
    ours: str


@dataclass(frozen=True)
class Compared:
    """One cast over all values of its type."""

    kind: str
    target: str
    values: int
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> str:
        if not self.differences:
            return "equal"
        return "refused" if all(one.ours == ERROR for one in self.differences) else "**different**"

    def row(self) -> str:
        # What gives another value comes first: that is what nobody is told of.
        ordered = sorted(self.differences, key=lambda one: one.ours == ERROR)
        shown = "; ".join(f"`{one.value}`: {one.spark}, here {one.ours}" for one in ordered[:_MORE_THAN_A_CELL])
        more = len(ordered) - _MORE_THAN_A_CELL
        return f"| `{self.kind}` to `{self.target}` | {self.verdict} | {shown}{f'; {more} more' if more > 0 else ''} |"


def compare(spark: SparkSession, kind: str, target: str) -> Compared:
    """Play the cast in both; a cast that Spark or we do not have is an error for each value."""
    values = _VALUES[kind]
    found = []
    for value, of_spark, own in zip(values, _by_spark(spark, values, target), _by_us(values, target), strict=True):
        if of_spark != own:
            found.append(Difference(_shown(value.as_py()), of_spark, own))
    return Compared(kind, target, len(values), tuple(found))


def table(rows: Sequence[Compared]) -> str:
    return "\n".join(["| cast | here | Spark's result and ours |", "| --- | --- | --- |", *(row.row() for row in rows)])


def _by_spark(spark: SparkSession, values: pa.Array, target: str) -> list[str]:
    """`try_cast` has NULL where Spark's CAST ends the query."""
    rows = spark.createDataFrame(pa.table({"v": values, "n": pa.array(range(len(values)))}))
    try:
        cast = rows.selectExpr("n", f"try_cast(v AS {target}) AS r").orderBy("n").toArrow()
    except AnalysisException:
        return [ERROR] * len(values)
    return [_result(value) if value.is_valid else ERROR for value in cast.column("r")]


def _by_us(values: pa.Array, target: str) -> list[str]:
    return [_one_by_us(values.slice(place, 1), target) for place in range(len(values))]


def _one_by_us(value: pa.Array, target: str) -> str:
    try:
        result = project(pa.RecordBatch.from_arrays([value], ["v"]), [f"CAST(v AS {_OTHER_NAMES.get(target, target)}) AS r"])
    except ExpressionError:
        return ERROR
    return _result(result.column("r")[0])


def _result(value: pa.Scalar) -> str:
    """A value of Arrow's; Spark's texts may be no UTF-8, and its times beyond Python's years."""
    try:
        return _shown(value.as_py())
    except UnicodeDecodeError:
        return "a text that is no UTF-8"
    except (ValueError, OverflowError):
        return "a year that is none in Python"


def _shown(value: object) -> str:
    """A value as the table has it: texts in quotes, times in UTC."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ") if value.tzinfo else value.isoformat(" ")
    if isinstance(value, str | bytes):
        return repr(value).replace("|", "\\|")
    return str(value)
