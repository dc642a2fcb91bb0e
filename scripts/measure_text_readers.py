"""Compare readers of csv and JSON files: ours, DuckDB's, Arrow's and Spark's, by CPU seconds and by what they read.

    .venv/bin/python scripts/measure_text_readers.py speed [--rows 1000000] [--runs 3] [--before ROOT]
    .venv/bin/python scripts/measure_text_readers.py cases

Each reading is a process of its own. Its CPU seconds are those of the process and its children while it reads: without
starts and imports. ROOT is a work tree of another commit, whose reader is measured, too. Decision 92 has the figures.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

DDL = "id BIGINT, name STRING, price DOUBLE, amount DECIMAL(12, 2), at TIMESTAMP, flag BOOLEAN"
SQL = {
    "id": "BIGINT",
    "name": "VARCHAR",
    "price": "DOUBLE",
    "amount": "DECIMAL(12, 2)",
    "at": "TIMESTAMPTZ",
    "flag": "BOOLEAN",
}
ARROW = {
    "id": pa.int64(),
    "name": pa.string(),
    "price": pa.float64(),
    "amount": pa.decimal128(12, 2),
    "at": pa.timestamp("us", tz="UTC"),
    "flag": pa.bool_(),
}
FILES = ("plain.csv", "quoted.csv", "plain.csv.gz", "plain.json", "plain.json.gz")
READERS = ("ours", "duckdb", "arrow", "spark")
BLOCK_BYTES = 8 << 20


def write_files(folder: Path, rows: int) -> None:
    """The same rows in each form."""
    draw = random.Random(1)
    with (
        open(folder / "plain.csv", "w") as plain,
        open(folder / "quoted.csv", "w") as quoted,
        open(folder / "plain.json", "w") as objects,
    ):
        for number in range(rows):
            name, price, amount = f"name {draw.randrange(10_000)}", draw.random() * 100, draw.randrange(10_000_000) / 100
            at = f"2024-01-{number % 28 + 1:02}T10:00:{number % 60:02}.500Z"
            flag = "true" if number % 2 else "false"
            plain.write(f"{number},{name},{price},{amount:.2f},{at},{flag}\n")
            quoted.write(f'"{number}","{name}, ""x""","{price}","{amount:.2f}","{at}","{flag}"\n')
            objects.write(
                f'{{"id":{number},"name":"{name}","price":{price},"amount":{amount:.2f},"at":"{at}","flag":{flag}}}\n'
            )
    for name in ("plain.csv", "plain.json"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), 6))


# --- readers: each gives the rows that it has read


def by_ours(path: Path) -> int:
    from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
    from streamtopology.jobs.connectors.sources.formats import read_all

    kind: Any = "csv" if ".csv" in path.name else "json"
    spec = SourceSpec("s", kind, DDL, {"path": str(path.parent)})
    part = Descriptor("s", kind, str(path), 0, 0, path.stat().st_size, 0)
    return sum(batch.num_rows for batch in read_all([part], spec, lambda _row, _why: None))


def duckdb_sql(path: Path, columns: dict[str, str], escape: str = '"') -> str:
    declared = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    if ".csv" in path.name:
        how = f"header=false, delim=',', quote='\"', escape='{escape}', strict_mode=true, null_padding=false, nullstr=''"
        return f"FROM read_csv('{path}', columns={{{declared}}}, auto_detect=false, allow_quoted_nulls=false, {how})"
    return f"FROM read_json('{path}', columns={{{declared}}}, auto_detect=false, format='newline_delimited')"


def by_duckdb(path: Path) -> int:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    return sum(batch.num_rows for batch in connection.sql(duckdb_sql(path, SQL)).to_arrow_reader(1 << 18))


def by_arrow(path: Path) -> int:
    packed = "gzip" if path.suffix == ".gz" else None
    file = pa.input_stream(str(path), compression=packed)
    if ".csv" in path.name:
        return sum(batch.num_rows for batch in arrow_csv(file, ARROW))
    options = pa_json.ParseOptions(explicit_schema=pa.schema(ARROW), unexpected_field_behavior="ignore")
    read = pa_json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
    return sum(batch.num_rows for batch in pa_json.open_json(file, read, options))


def arrow_csv(file: Any, types: dict[str, pa.DataType], escape: str | bool = False) -> pa_csv.CSVStreamingReader:
    return pa_csv.open_csv(
        file,
        pa_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=list(types)),
        pa_csv.ParseOptions(newlines_in_values=True, escape_char=escape),
        pa_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False),
    )


def by_spark(path: Path) -> int:
    """Rows stay in the JVM: what handing them to a Python worker takes is not in it."""
    from pyspark.sql import Observation, functions

    rows, counted = spark().read.schema(DDL), Observation()
    frame = (rows.option("mode", "FAILFAST").csv if ".csv" in path.name else rows.json)(str(path))
    frame.observe(counted, functions.count(functions.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
    return int(counted.get["n"])


def spark() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


# --- speed


def cpu_seconds() -> float:
    """Those of this process and of the processes below it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    own = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks[process] for process in own) / os.sysconf("SC_CLK_TCK")


def measure(reader: str, path: Path) -> None:
    """Print the figures of one reading, of which the first rows are read before: imports and kernels are not counted."""
    read: Callable[[Path], int] = globals()[f"by_{reader}"]
    read(path.parent / "small" / path.name)
    before = cpu_seconds()
    rows = read(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("FIGURES", json.dumps({"rows": rows, "cpu": cpu_seconds() - before, "MiB": peak}))


def speed(rows: int, runs: int, before: str) -> None:
    """Print a table of CPU seconds and ratios to ours, in each run of the same files."""
    readers = (*READERS, "before") if before else READERS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small").mkdir()
        write_files(folder, rows)
        write_files(folder / "small", 1000)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for _ in range(runs):
            for file in FILES:
                for reader in readers:
                    sources = os.pathsep.join(map(str, Path(before).glob("*/src"))) if reader == "before" else ""
                    command = [sys.executable, __file__, "measure", reader.replace("before", "ours"), str(folder / file)]
                    environment = os.environ | ({"PYTHONPATH": sources} if sources else {})
                    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                    line = next(line for line in done.stdout.splitlines() if line.startswith("FIGURES"))
                    figures = json.loads(line.removeprefix("FIGURES"))
                    if figures["rows"] != rows:
                        raise SystemExit(f"{reader} has read {figures['rows']} rows of {rows} from {file}")
                    found.setdefault((file, reader), []).append(figures)
    print("| file | reader | CPU seconds: min, median, max | as a part of ours: min, median, max | peak MiB |")
    print("| --- | --- | --- | --- | --- |")
    for (file, reader), figures in found.items():
        seconds = [figure["cpu"] for figure in figures]
        ratios = [figure["cpu"] / ours["cpu"] for figure, ours in zip(figures, found[file, "ours"], strict=True)]
        peak = "" if reader == "spark" else f"{max(figure['MiB'] for figure in figures):.0f}"
        print(f"| {file} | {reader} | {_spread(seconds)} | {_spread(ratios)} | {peak} |")


def _spread(values: list[float]) -> str:
    return f"{min(values):.2f}, {statistics.median(values):.2f}, {max(values):.2f}"


# --- cases


# Of each type of Spark, that of DuckDB and of Arrow.
_KINDS = {
    "BOOLEAN": ("BOOLEAN", pa.bool_()),
    "INT": ("INTEGER", pa.int32()),
    "DOUBLE": ("DOUBLE", pa.float64()),
    "FLOAT": ("FLOAT", pa.float32()),
    "DECIMAL(30, 5)": ("DECIMAL(30, 5)", pa.decimal128(30, 5)),
    "DATE": ("DATE", pa.date32()),
    "TIMESTAMP": ("TIMESTAMPTZ", pa.timestamp("us", tz="UTC")),
    "TIMESTAMP_NTZ": ("TIMESTAMP", pa.timestamp("us")),
    "STRING": ("VARCHAR", pa.string()),
    "BINARY": ("BLOB", pa.binary()),
    "MAP<STRING, INT>": ("MAP(VARCHAR, INTEGER)", pa.map_(pa.string(), pa.int32())),
}

_CSV_TEXTS = [
    r'"say \"hi\""', '"say ""hi"""', r'"C:\new"', r'"C:\\new"', r"C:\new", r'a\"b', 'a"b', ' "x"', '"x" ', '"x"y', '""', "",
    '"open', '"two\nlines"', "x,1", "\xe9",
]  # fmt: skip
_VALUES = {
    "BOOLEAN": ["true", "TRUE", "1", "yes"],
    "INT": ["005", "+5", "5.0", "5.5", "0x10", "1_0", "3000000000"],
    "DOUBLE": ["1e400", "nan", "1d", "1_0.5"],
    "FLOAT": ["1.00000017881393432617187499"],
    "DECIMAL(30, 5)": ["15e-1", "1.2399999", "12345678901234567890.12345", "1e-44", "9242e-74", "9" * 40],
    "DATE": ["2024-1-31", "2024-01-31T10:00:00", "2024-02-30"],
    "TIMESTAMP": ["2024-01-31T10:00:00.123456789Z", "2024-01-31 10:00", "2024-01-31T10:00:00+02:00", "infinity"],
    "TIMESTAMP_NTZ": ["2024-01-31T10:00:00+02:00"],
    "BINARY": ["AAEC", "a\\x00b"],
}
_JSON_LINES = [
    "null", "5", "[]", '{"v":1}{"v":2}', '{"v":\n1}', '{"v":1,}', '{"V":1}', '{"v":1,"v":2}',
]  # fmt: skip
_JSON_VALUES = {
    "INT": ['"5"', "5.0", "5.5", "true", '"0x10"', "3000000000"],
    "DOUBLE": ['"NaN"', "NaN", '"1.5"', "1e400"],
    "FLOAT": ["1.00000017881393432617187499"],
    "DECIMAL(30, 5)": ["1.5", "12345678901234567890.12345", '"12345678901234567890.12345"', "1.2399999", "1e-44", "9242e-74"],
    "STRING": ["5", '{"a": 1}', "1.50"],
    "DATE": ['"2024-01-31"', "19723"],
    "TIMESTAMP": ['"2024-01-31T10:00:00"', '"2024-01-31T10:00:00+02:00"', "1706695200"],
    "TIMESTAMP_NTZ": ['"2024-01-31T10:00:00+02:00"'],
    "BINARY": ['"AAEC"'],
    "MAP<STRING, INT>": ['{"a":1}', '{"a":1,"a":2}'],
}


def cases() -> None:
    """Print the table of differences: a row for each text on which the readers do not agree."""
    print("| format | column | text | ours | DuckDB | Arrow |\n| --- | --- | --- | --- | --- | --- |")
    agreed = 0
    texts = [("csv", "STRING", f"{text},x\n", text) for text in _CSV_TEXTS]
    for kind, values in _VALUES.items():
        texts += [("csv", kind, f"{value},x\n", value) for value in values]
    texts += [("json", "INT", f'{{"v":3}}\n{line}\n{{"v":4}}\n', line) for line in _JSON_LINES]
    for kind, values in _JSON_VALUES.items():
        texts += [("json", kind, f'{{"v":null}}\n{{"v":{value}}}\n', value) for value in values]
    with tempfile.TemporaryDirectory() as folder:
        for format_, kind, content, shown in texts:
            path = Path(folder) / f"a.{format_}"
            path.write_text(content)
            found = [_outcome(read, path, kind) for read in (_ours_of, _duckdb_of, _arrow_of)]
            if found[0] == found[1] == found[2]:
                agreed += 1
                continue
            cells = [format_, kind, f"`{_short(shown)}`", *(f"`{_short(one)}`" if one else "refused" for one in found)]
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    print(f"\n{len(texts)} texts, {agreed} read alike by all three.")


def _short(text: str) -> str:
    text = text.replace("\n", "\\n")
    return text if len(text) <= 44 else text[:40] + "..."


def _outcome(read: Callable[[Path, str], list[Any]], path: Path, kind: str) -> str:
    try:
        values = read(path, kind)
    except Exception:  # noqa: BLE001 - whatever a reader raises, it has refused the text
        return ""
    shown = ["NULL" if value is None else str(value) or "''" for value in (values if path.suffix == ".csv" else values[1:])]
    return ", ".join(shown) or "no rows"


def _ours_of(path: Path, kind: str) -> list[Any]:
    from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
    from streamtopology.jobs.connectors.sources.formats import read_all

    format_: Any = path.suffix[1:]
    spec = SourceSpec("s", format_, f"v {kind}" + (", w STRING" if format_ == "csv" else ""), {"path": str(path.parent)})
    part = Descriptor("s", format_, str(path), 0, 0, path.stat().st_size, 0)
    return [value for batch in read_all([part], spec, lambda _row, _why: None) for value in batch.column(0).to_pylist()]


def _duckdb_of(path: Path, kind: str) -> list[Any]:
    """With the escape that is Spark's default."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = {"v": _KINDS[kind][0]} | ({"w": "VARCHAR"} if path.suffix == ".csv" else {})
    table = connection.sql(duckdb_sql(path, columns, "\\")).to_arrow_table()
    return list(table.column(0).to_pylist())


def _arrow_of(path: Path, kind: str) -> list[Any]:
    if path.suffix == ".csv":
        return list(arrow_csv(str(path), {"v": _KINDS[kind][1], "w": pa.string()}).read_all().column(0).to_pylist())
    schema = pa.schema({"v": _KINDS[kind][1]})
    if path.read_bytes().startswith(b"null"):
        raise ValueError("it would end this process")
    options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return list(pa_json.read_json(path, parse_options=options).column(0).to_pylist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "cases", "measure"])
    parser.add_argument("reading", nargs="*", help="of measure: the reader and the file")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", default="", help="the root of another work tree")
    given = parser.parse_args()
    if given.what == "cases":
        cases()
    elif given.what == "speed":
        speed(given.rows, given.runs, given.before)
    else:
        measure(given.reading[0], Path(given.reading[1]))


if __name__ == "__main__":
    main()
