"""Columns that `streamtopology init` makes usable: times in numbers, money, values in texts, names; and those it never sums."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.formats import read_all
from streamtopology.jobs.scaffold.choice import choose
from streamtopology.jobs.scaffold.json_text import json_column
from streamtopology.topology import load

ROWS = 600
START = 1_767_225_600  # 2026


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def keys() -> list[str]:
    return [f"k{number % 20}" for number in range(ROWS)]


def init_table(**columns: Any) -> dict[str, Any]:
    """The source of the manifest for a parquet file of a key and these columns."""
    pq.write_table(pa.table({"name": keys(), **columns}), "data.parquet")
    return init("data.parquet")


def init_csv(**columns: list[str]) -> dict[str, Any]:
    """The source of the manifest for a CSV file of a key and these columns."""
    with Path("data.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["name", *columns])
        writer.writerows(zip(keys(), *columns.values(), strict=True))
    return init("data.csv")


def init(place: str) -> dict[str, Any]:
    Path("made.yaml").unlink(missing_ok=True)
    assert main(["init", place, "--output", "made.yaml"]) == 0
    return yaml.safe_load(Path("made.yaml").read_text())["spec"]["sources"][0]


def comments() -> str:
    """The lines of the manifest that are comments, joined."""
    lines = [line.strip() for line in Path("made.yaml").read_text().splitlines()]
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))


def calls() -> set[str]:
    """The aggregates of the manifest."""
    operator = yaml.safe_load(Path("made.yaml").read_text())["spec"]["operators"][0]
    return set(operator.get("with", {}).get("aggregates", {}).values())


def values(column: str) -> list[Any]:
    """A column of all rows, as a run reads them."""
    spec = SourceSpec.of(load(Path("made.yaml")).sources[0])
    path = next(iter(Path().glob("data.*")))
    part = Descriptor(spec.name, spec.format, str(path), 0, 0, ROWS if spec.format == "parquet" else path.stat().st_size, ROWS)
    batches = list(read_all([part], spec, lambda _, why: pytest.fail(why)))
    return pa.Table.from_batches(batches).column(column).to_pylist()


@pytest.mark.parametrize(("divisor", "unit"), [(1, "seconds"), (1000, "milliseconds"), (1_000_000, "microseconds")])
@pytest.mark.parametrize("name", ["event_ts", "Zeit (Ereignis)"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_epoch_numbers_of_any_name_are_event_time(
    divisor: int, unit: str, name: str, kind: pa.DataType, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = pa.array((START + np.arange(ROWS)) * divisor).cast(kind)
    source = init_table(**{name: numbers})
    plain = {"Zeit (Ereignis)": "Zeit_Ereignis"}.get(name, name)
    assert source["watermark"]["column"] == plain
    shown = capsys.readouterr().out
    assert f"event time '{plain}' ({unit} since 1970); " in shown
    assert ("names in the manifest: Zeit_Ereignis for 'Zeit (Ereignis)'\n" in shown) == (plain != name)
    last = values(plain)[-1]
    assert last == (START + ROWS - 1 if divisor == 1 else datetime(2026, 1, 1) + timedelta(seconds=ROWS - 1))
    assert calls() == {"count()", f"max({plain})"}
    assert f"# event time ({unit} since 1970); older rows are late" in Path("made.yaml").read_text()


@pytest.mark.parametrize(
    "numbers",
    [
        START * 1000 + np.arange(ROWS) * 10**10,  # beyond 2100
        np.where(np.arange(ROWS) == 7, 5, START + np.arange(ROWS)),  # one that is no time
        np.full(ROWS, START),
    ],
)
def test_numbers_that_are_not_all_times_are_no_event_time(numbers: np.ndarray) -> None:
    assert "watermark" not in init_table(amount=numbers)


def test_time_by_type_or_name_comes_before_numbers_that_look_like_times() -> None:
    numbers = START * 1000 + np.arange(ROWS)
    stamps = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC"))
    assert init_table(counter=numbers, at=stamps)["watermark"]["column"] == "at"
    assert init_table(counter=numbers, created_at=numbers)["watermark"]["column"] == "created_at"
    assert init_table(order_no=numbers, counter=numbers)["watermark"]["column"] == "counter"


def test_decimals_say_that_sums_are_rounded_and_which_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    cents = [Decimal(number % 97).scaleb(-2) for number in range(ROWS)]
    init_table(Betrag=pa.array(cents, pa.decimal128(12, 2)))
    exact = 'exact are those of whole units, CAST("Betrag" * 100 AS BIGINT)'
    sentence = f"Betrag: DECIMAL(12, 2) as DOUBLE, so sums are rounded; {exact}"
    assert f"\n{sentence}\n" in capsys.readouterr().out
    assert sentence in comments()
    text = Path("made.yaml").read_text().replace('CAST("Betrag" AS DOUBLE)', 'CAST("Betrag" * 100 AS BIGINT)')
    Path("made.yaml").write_text(text)
    assert values("Betrag") == [number % 97 for number in range(ROWS)]


def test_numbers_with_a_decimal_comma_and_german_dates_become_values(capsys: pytest.CaptureFixture[str]) -> None:
    amounts = ["1.234,50" if number % 3 else "0,5" for number in range(ROWS)]
    days = [f"{number % 28 + 1:02d}.01.2026" for number in range(ROWS)]
    source = init_csv(Umsatz=amounts, Datum=days)
    assert source["schema"] == "name STRING, Umsatz STRING, Datum STRING"
    assert source["watermark"]["column"] == "Datum"
    shown = capsys.readouterr().out
    for sentence in ("Umsatz: texts read as numbers with a decimal comma", "Datum: texts read as dates (day.month.year)"):
        assert f"\n{sentence}; others become NULL\n" in shown
        assert sentence in comments()
    assert values("Umsatz")[:3] == [0.5, 1234.5, 1234.5]
    assert values("Datum")[2] == date(2026, 1, 3)
    assert calls() == {"count()", "sum(Umsatz)", "mean(Umsatz)", "max(Datum)"}


def test_german_times_become_times() -> None:
    init_csv(wann=[f"01.02.2026 10:{number % 60:02d}" for number in range(ROWS)])
    assert values("wann")[61] == datetime(2026, 2, 1, 10, 1)


def test_words_for_missing_values_do_not_hide_the_numbers() -> None:
    init_csv(a=["-" if number % 5 == 0 else "1,5" for number in range(ROWS)])
    assert values("a")[:2] == [None, 1.5]


def test_texts_that_are_mostly_values_are_named_with_the_expression(capsys: pytest.CaptureFixture[str]) -> None:
    init_csv(Umsatz=["viel" if number % 10 == 0 else "2,5" for number in range(ROWS)])
    sentence = (
        "column 'Umsatz': 90% of the texts are numbers with a decimal comma: "
        "TRY_CAST(replace(replace(\"Umsatz\", '.', ''), ',', '.') AS DOUBLE) reads these"
    )
    assert sentence in capsys.readouterr().out
    assert sentence in comments()
    assert "sum(Umsatz)" not in calls()


@pytest.mark.parametrize("text", ["1,234", "10.1.2", "12.5.26", "a,5", "31.13.2026"])
def test_texts_that_may_be_something_else_stay_texts(text: str) -> None:
    init_csv(a=[text] * ROWS)
    assert "TRY_CAST" not in Path("made.yaml").read_text()


@pytest.mark.parametrize("name", ["Kunde", "Kundennummer", "Bestellnr", "order_no", "Filiale", "customer_id", "phone"])
def test_numbers_that_name_something_are_counted_not_summed(name: str) -> None:
    random = np.random.default_rng(3)
    heavy = np.minimum(random.zipf(1.5, ROWS), 40)
    table = pa.table({"shop": heavy, name: random.integers(0, 200, ROWS), "fare": random.random(ROWS)})
    assert choose(table, 2, key="shop").measures == ("fare",)
    assert choose(table.drop_columns(["fare"]), 2, key="shop").measures == ()


def test_delay_of_very_unordered_rows_is_at_most_a_year() -> None:
    times = (START + np.where(np.arange(ROWS) % 2, 0, 3 * 366 * 86_400)) * 1000
    assert init_table(time=times)["watermark"]["delay"] == "8784h"


def test_topology_of_a_name_with_umlauts_is_readable() -> None:
    pq.write_table(pa.table({"name": keys()}), "Verkäufe Süd.parquet")
    assert main(["init", "Verkäufe Süd.parquet"]) == 0
    assert load(Path("verkaeufe-sued.yaml")).name == "verkaeufe-sued"


def order(number: int) -> str:
    shop = json.dumps({"shop": f"s{number % 5}", "lot": number})
    fields = {
        "user id": f"u{number % 37 * (number % 2)}",
        "amount": number / 4,
        "vip": number % 2 == 0,
        "name": "x",
        "to": {"x": 1},
        "tags": ["a"],
    }
    return json.dumps({**fields, "at": (datetime(2026, 1, 1) + timedelta(seconds=number)).isoformat(), "note": shop})


@pytest.mark.parametrize("as_source", [lambda texts: init_table(payload=texts), lambda texts: init_csv(payload=texts)])
def test_fields_of_json_in_a_column_of_texts_become_columns(
    as_source: Callable[[list[str]], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    source = as_source([order(number) if number % 50 else "{broken" for number in range(ROWS)])
    assert source["watermark"]["column"] == "at"
    assert calls() >= {"sum(amount)"}
    shown = capsys.readouterr().out
    columns = "user_id, amount, vip, payload_name, to_x, at, note_shop, note_lot"
    assert f"column 'payload' holds JSON objects, whose fields are columns here: {columns}; 2% of its texts are none" in shown
    assert "left out: field 'tags', an array or of several types (column 'payload')" in shown
    assert "* user_id " in shown
    assert values("user_id")[49:52] == ["u12", None, "u14"]
    assert values("amount")[49:52] == [49 / 4, None, 51 / 4]
    assert values("at")[51] == datetime(2026, 1, 1, 0, 0, 51, tzinfo=UTC)


def test_fields_of_objects_in_json_files_become_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": n, "user": {"name": f"u{n % 20}", "a b": n % 50, "deep": {"x": 1}}} for n in range(ROWS)]
    Path("data.json").write_text("\n".join(map(json.dumps, [*rows, {"id": 0, "user": None}])))
    assert main(["init", "data.json", "--output", "made.yaml", "--key", "name"]) == 0
    assert "column 'user' holds JSON objects, whose fields are columns here: name, a_b" in capsys.readouterr().out
    assert values("name")[19:22] == ["u19", "u0", "u1"]
    assert values("name")[-1] is None


def test_field_of_json_within_json_can_be_the_key() -> None:
    pq.write_table(pa.table({"payload": [order(number) for number in range(ROWS)]}), "data.parquet")
    assert main(["init", "data.parquet", "--output", "made.yaml", "--key", "note_shop"]) == 0
    assert values("note_shop")[:6] == ["s0", "s1", "s2", "s3", "s4", "s0"]


@pytest.mark.parametrize(("later", "expected"), [(2.5, 2.5), ("many", "many"), (None, None)])
def test_field_of_json_has_a_type_that_holds_later_values(later: object, expected: object) -> None:
    rows = [1] * 6000 + [later]
    found = json_column(pa.chunked_array([[json.dumps({"n": number}) for number in rows]]), "payload")
    assert found is not None
    assert found.fields[0].values[-1].as_py() == expected


def test_column_of_json_is_declared_of_many() -> None:
    others = {f"other_{number}": ["x"] * ROWS for number in range(30)}
    source = init_table(**others, payload=[order(number) for number in range(ROWS)])
    assert "payload STRING" in source["schema"]
    assert values("user_id")[1] == "u1"


def test_texts_of_which_few_are_json_stay_texts() -> None:
    init_table(payload=[order(number) if number % 3 == 0 else f"line {number % 20}" for number in range(ROWS)])
    assert "json_extract_string" not in Path("made.yaml").read_text()
