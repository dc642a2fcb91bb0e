"""`streamtopology init`: its manifest is valid for every kind of data, its choices are sensible, its refusals have a remedy."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.file_log import FileLog
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.formats import read_all
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.scaffold.choice import Fitness, choose
from streamtopology.jobs.scaffold.machine import Executors, Machine, executors_for
from streamtopology.jobs.scaffold.manifest_text import manifest_text
from streamtopology.jobs.scaffold.usable_columns import sampled
from streamtopology.topology import Topology, load

ROWS = 2000


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trips(start: int = 0, rows: int = ROWS) -> pa.Table:
    """Trips whose driver is skewed, and repeats; ids are unique, fares are floats."""
    numbers = np.arange(start, start + rows)
    drivers = np.minimum(np.random.default_rng(start).zipf(1.5, rows), 60)
    times = np.datetime64("2025-01-01T00:00:00") + numbers.astype("timedelta64[s]")
    return pa.table(
        {
            "id": numbers,
            "driver": [f"d{number}" for number in drivers],
            "fare": drivers * 1.5 + numbers % 7,
            "seats": (numbers % 5).astype(np.int32),
            "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
        }
    )


def write_parquet(folder: str, *tables: pa.Table) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, f"{folder}/part-{number}.parquet")


def write_csv(path: str, rows: list[list[Any]], separator: str = ",") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)


def init(*arguments: str) -> dict[str, Any]:
    """The manifest written for `arguments`, which begin with the data's place."""
    assert main(["init", *arguments, "--output", "made.yaml"]) == 0
    return yaml.safe_load(Path("made.yaml").read_text())["spec"]


def rows_read(topology: Topology) -> pa.Table:
    """All rows of the manifest's source, by the code that a run reads them with."""
    spec = SourceSpec.of(topology.sources[0])
    stream = FileStream(spec, FileLog(Path("log")))
    stream.close_listing()
    batches, at = [], 0
    while (end := stream.advance(at)) != at:
        batches += read_all(stream.between(at, end), spec, lambda batch, why: pytest.fail(why))
        at = end
    return pa.Table.from_batches(batches)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["init", *arguments, "--output", "made.yaml"]) == 2
    assert not Path("made.yaml").exists()
    return capsys.readouterr().err


def test_folder_of_parquet_becomes_a_manifest_whose_rows_are_all_read():
    write_parquet("data/trips", *(trips(number * ROWS) for number in range(3)))
    spec = init("data/trips")
    assert spec["sources"][0]["format"] == "parquet"
    assert spec["sources"][0]["schema"] == "id BIGINT, driver STRING, fare DOUBLE, seats INT, at TIMESTAMP"
    assert spec["sources"][0]["watermark"]["column"] == "at"
    assert spec["operators"][0]["grouping"] == {"policy": "auto", "key": "driver"}
    assert spec["operators"][0]["run"] == "aggregate"
    assert set(spec["operators"][0]["with"]["aggregates"].values()) >= {"count()", "sum(fare)", "mean(fare)", "max(at)"}
    assert spec["sinks"][0]["options"] == {"path": "out/made"}
    assert spec["sources"][0]["options"] == {"path": "data/trips", "maxFilesPerTrigger": 1}
    assert rows_read(load(Path("made.yaml"))).num_rows == 3 * ROWS


def test_second_manifest_of_the_same_data_is_another_topology():
    write_parquet("data/trips", trips())
    assert main(["init", "data/trips"]) == 0
    assert main(["init", "data/trips", "-o", "By Seats.yaml", "--key", "seats"]) == 0
    first, second = load(Path("trips.yaml")), load(Path("By Seats.yaml"))
    assert (first.name, second.name) == ("trips", "by-seats")
    assert (first.sinks[0].options["path"], second.sinks[0].options["path"]) == ("out/trips", "out/by-seats")


def test_key_is_found_by_its_name_in_the_data(capsys: pytest.CaptureFixture[str]):
    write_parquet("data", trips().rename_columns(["id", "the driver", "fare", "seats", "at"]))
    assert init("data", "--key", "the driver")["operators"][0]["grouping"]["key"] == "the_driver"
    assert "names in the manifest: the_driver for 'the driver'\n" in capsys.readouterr().out
    Path("made.yaml").unlink()
    assert "there are id, the_driver, fare, seats, at; did you mean 'the driver'?" in refused(
        capsys, "data", "--key", "the drver"
    )


@pytest.mark.parametrize("place", [".", "*.parquet"])
def test_sink_of_data_in_the_current_folder_is_apart_from_them(place: str, monkeypatch: pytest.MonkeyPatch):
    write_parquet("trips/day", trips())
    monkeypatch.chdir("trips/day")
    assert main(["init", place, "--output", "../made.yaml"]) == 0
    assert load(Path("../made.yaml")).sinks[0].options["path"].startswith("../out/" if place == "." else "out/")


def test_current_folder_gives_its_name_and_the_manifest_in_it_is_no_data(monkeypatch: pytest.MonkeyPatch):
    write_parquet("trips", trips())
    monkeypatch.chdir("trips")
    assert main(["init", "."]) == 0
    topology = load(Path("trips.yaml"))
    assert topology.name == "trips"
    assert rows_read(topology).num_rows == ROWS


@pytest.mark.parametrize(("data", "path"), [("trips", "trips"), ("at/one/two", "at/[!_]*/[!_]*/[!_]*.parquet")])
def test_current_folder_with_its_data_in_one_folder_reads_that_one(data: str, path: str):
    write_parquet(data, trips())
    assert init(".")["sources"][0]["options"]["path"] == path
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_part_of_a_partition_does_not_stand_for_the_whole():
    write_parquet("day=1", trips())
    assert init(".")["sources"][0]["options"]["path"] == "./[!_]*/[!_]*.parquet"


def test_file_that_is_no_known_data_is_named_as_read_as_text(capsys: pytest.CaptureFixture[str]):
    Path("make.py").write_text("rows = 5\n")
    init("make.py")
    note = "read as lines of text, as no format of data has names like make.py"
    assert note in capsys.readouterr().out
    assert note in Path("made.yaml").read_text()


def test_headers_of_csv_files_are_no_rows(capsys: pytest.CaptureFixture[str]):
    for number in range(3):
        write_csv(f"data/{number}.csv", [["city", "fare"], *(["Ulm", "3.5"] for _ in range(100))])
    init("data")
    assert "about 300 rows" in capsys.readouterr().out


def test_output_names_choice_reason_and_next_command(capsys: pytest.CaptureFixture[str]):
    write_parquet("data/my trips", trips())
    assert main(["init", "data/my trips"]) == 0
    shown = capsys.readouterr().out
    assert "key 'driver': many values that repeat" in shown
    columns = {line[2:].split()[0]: line for line in shown.splitlines() if line[2:].strip()}
    assert columns["driver"].startswith("* ")
    assert re.match(r"  id +2,000 +0.1% +\d+%  unique", columns["id"])
    assert columns["fare"].endswith("  floating point")
    commands = "  streamtopology try my-trips.yaml\n  streamtopology run my-trips.yaml --report build/my-trips\n"
    assert shown.endswith(f"wrote my-trips.yaml; next:\n\n{commands}")
    check_before_start(load(Path("my-trips.yaml")), Path())


def test_existing_manifest_is_not_overwritten(capsys: pytest.CaptureFixture[str]):
    write_parquet("data/trips", trips())
    Path("trips.yaml").write_text("mine")
    assert main(["init", "data/trips"]) == 2
    assert "trips.yaml exists and is not overwritten; name another file with --output" in capsys.readouterr().err
    assert Path("trips.yaml").read_text() == "mine"


def test_key_of_ones_own_is_taken_and_a_wrong_one_refused(capsys: pytest.CaptureFixture[str]):
    write_parquet("data/trips", trips())
    assert "--key seat: no such column; there are id, driver" in refused(capsys, "data/trips", "--key", "seat")
    assert init("data/trips", "--key", "seats")["operators"][0]["grouping"]["key"] == "seats"


def test_key_is_never_unique_nor_a_float_nor_constant_nor_mostly_null():
    numbers = np.arange(ROWS)
    table = pa.table(
        {
            "uuid": [f"u{number}" for number in numbers],
            "seq": numbers,
            "price": np.round(numbers % 10 / 3, 2),
            "tenant": ["only"] * ROWS,
            "ref": [f"r{number % 20}" if number % 3 == 0 else None for number in numbers],
            "note": ["a long remark " * 10 + str(number % 20) for number in numbers],
            "colour": [("red", "green")[number % 2] for number in numbers],
        }
    )
    choice = choose(table, instances=2)
    assert {one.column: one.fitness for one in choice.candidates} == {
        "uuid": Fitness.UNIQUE,
        "seq": Fitness.UNIQUE,
        "price": Fitness.FLOAT,
        "tenant": Fitness.CONSTANT,
        "ref": Fitness.EMPTY,
        "note": Fitness.LONG,
        "colour": Fitness.FEW,
    }
    assert choice.key is not None
    assert choice.key.column == "colour"
    assert choose(table.drop_columns(["colour"]), instances=2).key is None


def test_most_skewed_name_is_preferred_to_even_ones_and_to_measures():
    random = np.random.default_rng(7)
    heavy = np.minimum(random.zipf(1.4, ROWS), 100)
    table = pa.table({"shop_id": random.integers(0, 100, ROWS), "user_id": heavy, "amount": heavy * 3})
    choice = choose(table, instances=3)
    assert choice.key is not None
    assert choice.key.column == "user_id"
    assert choice.measures == ("amount",)
    assert choice.key.heaviest == pytest.approx(np.bincount(heavy).max() / ROWS)


def test_key_too_heavy_for_one_executor_is_divided():
    names = ["all"] * 1500 + [f"n{number % 20}" for number in range(500)]
    write_parquet("data", pa.table({"name": names}))
    spec = init("data")
    assert spec["operators"][0]["grouping"] == {"policy": "auto", "key": "name"}
    assert "too heavy for an executor: divided" in Path("made.yaml").read_text()
    assert spec["operators"][0]["run"] == "count"


@pytest.mark.parametrize("heavy", [0, 1500])
def test_commented_windows_are_valid_when_uncommented(heavy: int):
    names = [f"n{number % 20}" if number >= heavy else "all" for number in range(ROWS)]
    write_parquet("data", trips().select(["fare", "at"]).append_column("my name", pa.array(names)))
    assert init("data")["operators"][0]["grouping"]["policy"] == "auto"
    lines = Path("made.yaml").read_text().splitlines()
    replaced = next(place for place, line in enumerate(lines) if line.startswith("      run:"))
    title = next(place for place, line in enumerate(lines) if line.startswith("    # By windows"))
    end = lines.index("", title)
    variant = [line.replace("# ", "", 1) for line in lines[title + 1 : end]]
    Path("made.yaml").write_text("\n".join([*lines[:replaced], *variant, *lines[end:]]))
    topology = load(Path("made.yaml"))
    assert (topology.operators[0].run, topology.operators[0].grouping.policy) == ("window-aggregate", "auto")
    check_before_start(topology, Path())


def test_data_without_any_key_passes_through(capsys: pytest.CaptureFixture[str]):
    write_parquet("data", pa.table({"price": np.random.default_rng(1).random(ROWS), "seq": np.arange(ROWS)}))
    spec = init("data")
    assert "no column can be a key" in capsys.readouterr().out
    assert "grouping" not in spec["operators"][0]
    assert spec["operators"][0]["run"] == "map"


def test_texts_of_times_are_event_time():
    stamps = [f"2025-01-31T12:{n // 60 % 60:02d}:{n % 60:02d}+01:00" for n in range(ROWS)]
    write_parquet("data", trips().drop_columns(["at"]).append_column("created_at", pa.array(stamps)))
    assert init("data")["sources"][0]["watermark"]["column"] == "created_at"
    assert rows_read(load(Path("made.yaml"))).column("created_at")[61].as_py() == datetime(2025, 1, 31, 11, 1, 1, tzinfo=UTC)


def test_watermark_waits_for_the_disorder_of_the_sample():
    write_parquet("data", trips().take(pa.array(np.concatenate([np.arange(600, ROWS), np.arange(600)]))))
    assert init("data")["sources"][0]["watermark"]["delay"] == "40m"


def test_odd_names_become_plain_ones_and_the_rows_stay():
    names = ["order id", 'say "hi"', "it's", "select", "back`tick", "naïve", "a.b", "Ünï", "1st"]
    table = pa.table({name: [f"v{number % (20 + place)}" for number in range(ROWS)] for place, name in enumerate(names)})
    table = table.append_column("the sum", trips().column("fare"))
    write_parquet("data", table)
    for key in ["order_id", "say_hi", "it_s", "select", "back_tick", "naive", "a_b", "Ueni", "c_1st"]:
        spec = init("data", "--key", key)
        assert spec["operators"][0]["grouping"]["key"] == key
        check_before_start(load(Path("made.yaml")), Path())
        assert set(rows_read(load(Path("made.yaml"))).column_names) == {key, "the_sum"}
        Path("made.yaml").unlink()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text(min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=5, unique_by=str.lower))
def test_every_name_of_a_column_gives_a_manifest_that_is_valid(names: list[str], tmp_path: Path):
    names = [name for name in names if "\r" not in name and "\0" not in name and name.isprintable()] or ["a"]
    rows = pa.table({name: [f"v{number % 10}" for number in range(100)] for name in names})
    sample = sampled("parquet", "a sample", rows, {"path": "data"}, [(name, "STRING") for name in names], 1, 100, [])
    for key in sample.table.column_names:
        text = manifest_text("named", sample, choose(sample.table, 2, key), Executors(2, 500), "run")
        manifest = tmp_path / "named.yaml"
        manifest.write_text(text)
        (tmp_path / "data").mkdir(exist_ok=True)
        check_before_start(load(manifest), tmp_path)


def test_nested_and_unknown_types_are_left_out_and_named(capsys: pytest.CaptureFixture[str]):
    table = trips().append_column("point", pa.array([{"x": 1}] * ROWS))
    table = table.append_column("big", pa.array(np.ones(ROWS), pa.uint64()))
    table = table.append_column("price", pa.array([Decimal("1.50")] * (ROWS - 1) + [Decimal("2.50")]))
    write_parquet("data", table)
    spec = init("data")
    shown = capsys.readouterr().out
    assert "left out: column 'point', of type struct<x: int64>" in shown
    assert "left out: column 'big', of type uint64" in shown
    assert 'CAST("price" AS DOUBLE) AS price' in spec["sources"][0]["select"]
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_data_with_nested_columns_only_is_refused(capsys: pytest.CaptureFixture[str]):
    write_parquet("data", pa.table({"tags": [["a"]] * ROWS, "names": [["b", "c"]] * ROWS}))
    assert "no column of a plain type" in refused(capsys, "data")


def test_files_of_mixed_schemas_share_the_columns_that_all_have(capsys: pytest.CaptureFixture[str]):
    wide = trips().set_column(3, "seats", trips().column("seats").cast(pa.int64()))
    other = trips().drop_columns(["id"]).set_column(1, "fare", trips().column("driver"))
    write_parquet("data", trips(), wide.append_column("tip", wide.column("fare")), other)
    spec = init("data")
    assert spec["sources"][0]["schema"] == "driver STRING, seats BIGINT, at TIMESTAMP"
    shown = capsys.readouterr().out
    assert "column 'id', not once in data/part-2.parquet" in shown
    assert "column 'tip', not once in data/part-0.parquet, data/part-2.parquet" in shown
    assert "column 'fare', of type double and string" in shown
    assert rows_read(load(Path("made.yaml"))).num_rows == 3 * ROWS


@pytest.mark.parametrize("with_key", [True, False])
def test_manifest_of_very_wide_files_is_short_and_reads_them(with_key: bool, capsys: pytest.CaptureFixture[str]):
    wide = trips() if with_key else trips().select(["id"])
    for place in range(200):
        wide = wide.append_column(f"column number {place}", pa.array(np.random.default_rng(place).random(ROWS)))
    write_parquet("data", wide.append_column("point", pa.array([{"x": 1}] * ROWS)))
    spec = init("data", *(["--key", "driver"] if with_key else []))
    assert ("driver" in spec["sources"][0]["schema"]) == with_key
    shown = Path("made.yaml").read_text().splitlines()
    assert len(shown) <= 60
    assert max(map(len, shown)) <= 128
    assert "more columns are in the files: add those that you need" in "".join(shown)
    assert "more columns\n" in capsys.readouterr().out
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_typical_manifest_has_at_most_fifty_lines():
    write_parquet("data", trips(), trips(ROWS))
    init("data")
    assert len(Path("made.yaml").read_text().splitlines()) <= 50


def test_partitioned_folders_are_read_and_their_columns_explained(capsys: pytest.CaptureFixture[str]):
    for day in (1, 2):
        write_parquet(f"data/day={day}/hour=0", trips(day * ROWS))
    write_parquet("data/_delta_log/x", trips())
    Path("data/day=1/.part-0.parquet.crc").write_bytes(b"1")
    Path("data/README.md").write_text("about")
    spec = init("data")
    assert spec["sources"][0]["options"]["path"] == "data/[!_]*/[!_]*/[!_]*.parquet"
    shown = capsys.readouterr().out
    assert "left out: README.md" in shown
    assert "day, hour: only in the names of folders" in shown
    assert rows_read(load(Path("made.yaml"))).num_rows == 2 * ROWS


def test_folders_of_different_data_are_named_with_the_command_for_one_of_them(capsys: pytest.CaptureFixture[str]):
    write_parquet("data/trips", trips())
    write_parquet("data/users", pa.table({"user": ["ann"], "age": [33]}))
    assert main(["init", "data", "--output", "made.yaml"]) == 2
    refusal = capsys.readouterr().err
    assert "that every other file has" in refusal
    assert "the folders trips, users; for the data of one of them: streamtopology init data/trips;" in refusal


def test_hidden_and_foreign_files_of_a_folder_are_not_read():
    write_parquet("data", trips())
    for name in (".hidden.parquet", "_SUCCESS", "notes.txt", "empty.parquet.tmp"):
        Path("data", name).write_text("no data")
    assert init("data")["sources"][0]["options"]["pathGlobFilter"] == "*.parquet"
    assert list_files(SourceSpec.of(load(Path("made.yaml")).sources[0])) == [str(Path("data/part-0.parquet").resolve())]


def test_path_with_characters_of_patterns_is_taken_as_it_is():
    write_parquet("data [1]", trips())
    init("data [1]")
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_csv_gets_separator_header_types_and_missing_values():
    rows = [
        [f"s{n % 20}", n, "NA" if n % 50 == 0 else n / 4, f"0{n % 9}111", f"2025-01-31 12:00:{n % 60:02d}"] for n in range(ROWS)
    ]
    write_csv("data/a.csv", [["sensor", "n", "celsius", "postcode", "at"], *rows], ";")
    spec = init("data")
    source = spec["sources"][0]
    assert source["schema"] == "sensor STRING, n BIGINT, celsius DOUBLE, postcode STRING, at TIMESTAMP"
    assert {name: source["options"][name] for name in ("header", "sep", "nullValue")} == {
        "header": True,
        "sep": ";",
        "nullValue": "NA",
    }
    read = rows_read(load(Path("made.yaml")))
    assert (read.num_rows, read.column("celsius").null_count) == (ROWS, ROWS // 50)


def test_csv_without_header_has_numbered_columns():
    write_csv("data.csv", [[f"s{n % 20}", n % 7, n / 4] for n in range(ROWS)])
    assert init("data.csv")["sources"][0]["schema"] == "c1 STRING, c2 BIGINT, c3 DOUBLE"
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_csv_whose_later_values_are_texts_is_read_as_texts(capsys: pytest.CaptureFixture[str]):
    rows = [[f"s{n % 20}", n] for n in range(40_000)]
    write_csv("data.csv", [["sensor", "value"], *rows, ["s1", "broken"]])
    assert init("data.csv")["sources"][0]["schema"] == "sensor STRING, value STRING"
    assert "column 'value' has values of several types: text" in capsys.readouterr().out


def test_compressed_json_lines_are_read():
    Path("data").mkdir()
    with gzip.open("data/a.json.gz", "wt") as file:
        for n in range(ROWS):
            row = {
                "user": f"u{n % 20}",
                "amount": n / 2 if n % 2 else n,
                "at": f"2025-01-31T12:00:{n % 60:02d}Z",
                "to": {"x": 1},
            }
            file.write(json.dumps(row) + "\n")
    spec = init("data")
    assert spec["sources"][0]["schema"] == "user STRING, amount DOUBLE, at TIMESTAMP, to STRUCT<`x`: BIGINT>"
    assert rows_read(load(Path("made.yaml"))).num_rows == ROWS


def test_lines_of_text_become_words():
    Path("book.txt").write_text("It was the best of times.\nIt was the worst of times.\n" * 200)
    spec = init("book.txt")
    assert spec["operators"][0]["run"] == "count"
    assert rows_read(load(Path("made.yaml"))).column("word").to_pylist()[:3] == ["it", "was", "the"]


def test_empty_and_missing_places_are_refused(capsys: pytest.CaptureFixture[str]):
    Path("empty").mkdir()
    Path("empty/.hidden").write_text("x")
    Path("empty/none.csv").touch()
    assert "empty has no data" in refused(capsys, "empty")
    assert "no file or folder missing; for a Kafka topic of that name add --servers" in refused(capsys, "missing")
    assert "no file fits missing/*.csv" in refused(capsys, "missing/*.csv")
    write_parquet("hollow", trips(rows=0))
    assert "no rows" in refused(capsys, "hollow")


def test_garbage_is_refused_with_the_name_of_its_file(capsys: pytest.CaptureFixture[str]):
    for name, content, message in (
        ("a.bin", bytes(range(256)) * 10, "neither parquet nor text"),
        ("b.csv", b"a,b\n1,\x00\n", "zero bytes"),
        ("c.parquet", b"PAR1 but no more", "c.parquet is no readable parquet file"),
        ("d.json", b'[\n {"a": 1},\n {"a": 2}\n]\n', "d.json is not one JSON object a line; `jq -c"),
        ("e.csv", b"a,b\n1,2\n3\n", "e.csv: row 3 has 1 columns, the first has 2"),
        ("f.json.gz", b"no gzip", "cannot read f.json.gz"),
    ):
        Path(name).write_bytes(content)
        assert message in refused(capsys, name)


def test_damaged_file_among_good_ones_is_refused(capsys: pytest.CaptureFixture[str]):
    write_parquet("data", trips(), trips())
    Path("data/part-2.parquet").write_bytes(b"half a fi")
    assert "part-2.parquet is no readable parquet file" in refused(capsys, "data")


def test_unreadable_file_is_refused(capsys: pytest.CaptureFixture[str]):
    os.symlink("/proc/self/mem", "data.csv")
    assert "cannot read data.csv" in refused(capsys, "data.csv")


def test_place_on_another_machine_is_refused(capsys: pytest.CaptureFixture[str]):
    for place in ("s3a://bucket/trips", "hdfs://host/trips/*.csv"):
        assert f"path {place!r}: only local paths and file: URIs can be read; mount" in refused(capsys, place)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Nothing is closed to root, so root becomes nobody for a while."""
    mine = os.geteuid()
    os.seteuid(mine or 65_534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_folder_without_permission_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    write_parquet("closed", trips())
    init("closed")  # loads what nobody may not
    Path("made.yaml").unlink()
    tmp_path.chmod(0o755)
    Path("closed").chmod(0)
    try:
        with unprivileged():
            assert "cannot read closed: permission denied" in refused(capsys, "closed")
    finally:
        Path("closed").chmod(0o755)


def test_huge_file_is_sampled_and_its_remedy_works(capsys: pytest.CaptureFixture[str]):
    write_parquet("it's data", trips(rows=600_000))
    init("it's data")
    shown = capsys.readouterr().out
    assert "about 600,000 rows: large; cut them with mkdir" in shown
    command = (
        shown.partition("cut them with ")[2]
        .partition(", then: streamtopology init ")[0]
        .replace("python ", f"{sys.executable} ", 1)
    )
    subprocess.run(["bash", "-c", command], check=True)
    Path("made.yaml").unlink()
    init("build/parquet-parts")
    assert "large" not in capsys.readouterr().out
    assert rows_read(load(Path("made.yaml"))).num_rows == 600_000


@pytest.mark.parametrize(
    ("machine", "executors"),
    [
        (Machine(1, 8), Executors(2, 350)),
        (Machine(2, 8), Executors(2, 750)),
        (Machine(4, 16), Executors(3, 1000)),
        (Machine(64, 512), Executors(8, 1000)),
        (Machine(64, 6), Executors(4, 1000)),
        (Machine(0.1, 1), Executors(2, 50)),
    ],
)
def test_executors_fit_the_machine(machine: Machine, executors: Executors):
    assert executors_for(machine) == executors


def test_settings_of_clients_need_servers(capsys: pytest.CaptureFixture[str]):
    assert "--option is for Kafka" in refused(capsys, "topic", "--option", "kafka.x=y")
    assert "allowed: kafka.NAME=VALUE" in refused(capsys, "topic", "--servers", "localhost:1", "--option", "x=y")
