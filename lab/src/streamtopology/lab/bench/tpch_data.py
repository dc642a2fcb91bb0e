"""TPC-H's tables as the streams of a continuous query 5, from the generator in the package tpchgen-cli.

Rows flow in the order of their orders' dates, one week of them a window. Foreign keys are redrawn by Zipf's law, as
mixed-routing does (section 5): TPC-H's own are uniform. Customers and suppliers come again in each week that needs them, as
a stream of what is known of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamtopology.lab.bench.flights_data import DataMissingError
from streamtopology.lab.numbered_files import write_batches
from streamtopology.lab.simulate.streams import Floats, draw, zipf_probabilities

# The schemas of the four streams, each a folder of numbered parquet files.
STREAMS = {
    "orders": "orderkey BIGINT, custkey BIGINT, placed TIMESTAMP",
    "lineitems": "orderkey BIGINT, suppkey BIGINT, revenue DOUBLE, placed TIMESTAMP",
    "customers": "custkey BIGINT, nation STRING, region STRING, placed TIMESTAMP",
    "suppliers": "suppkey BIGINT, nation STRING, placed TIMESTAMP",
}

TABLES = ("customer", "lineitem", "nation", "orders", "region", "supplier")

# The first whole week of TPC-H's orders, counted from 1970 as windows of seven days are, and how many there are.
_FIRST_WEEK, _WEEKS = 1148, 343

_ROWS = {
    "orders": "SELECT orderkey, custkey, placed FROM ordered",
    "lineitems": "SELECT orderkey, suppkey, revenue, placed FROM ordered JOIN items USING (orderkey)",
    "customers": """
        SELECT custkey, n_name AS nation, r_name AS region, min(placed) AS placed
        FROM ordered JOIN customer ON c_custkey = custkey
        JOIN nation ON n_nationkey = c_nationkey JOIN region ON r_regionkey = n_regionkey
        GROUP BY week, custkey, n_name, r_name""",
    "suppliers": """
        SELECT suppkey, n_name AS nation, min(placed) AS placed
        FROM ordered JOIN items USING (orderkey) JOIN supplier ON s_suppkey = suppkey JOIN nation ON n_nationkey = s_nationkey
        GROUP BY week, suppkey, n_name""",
}


# (shares, keys) -> the share of each key in the first part of the time, in the second and so on; parts are equally long.
Changing = Callable[[Floats, npt.NDArray[np.int64]], Sequence[Floats]]


def make_q5(
    target: Path,
    batches: int,
    weeks: int,
    scale: float,
    exponent: float,
    seed: int,
    changing: Changing = lambda shares, keys: [shares],
) -> dict[str, Path]:
    """Write `batches` files of `weeks` weeks each for every stream; returns the folder of each.

    About 4,400 orders x `scale` a week. `scale`: TPC-H's scale factor. `exponent`: of the foreign keys' Zipf law, whose
    shares change over time by `changing`. Raises `DataMissingError`.
    """
    if batches * weeks > _WEEKS:
        raise ValueError(f"TPC-H has orders of {_WEEKS} whole weeks, {batches} x {weeks} are asked for")
    with duckdb.connect() as database:
        _load(database, _tables(target / "tables", scale))
        _draw_foreign_keys(database, exponent, seed, changing, batches * weeks)
        for name in STREAMS:
            write_batches(target / name, name, batches, 16, lambda number, name=name: _part(database, name, number, weeks))
    return {name: target / name for name in STREAMS}


def _tables(folder: Path, scale: float) -> Path:
    generator = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    if generator is None:
        raise DataMissingError("TPC-H's tables come with the package tpchgen-cli: pip install 'streamtopology-lab[data]'")
    command = [generator, "parquet", f"--scale-factor={scale:g}", f"--tables={','.join(TABLES)}", f"--output-dir={folder}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise DataMissingError(f"{' '.join(command)} failed: {made.stderr.strip()}")
    return folder


def _load(database: duckdb.DuckDBPyConnection, folder: Path) -> None:
    for table in TABLES:
        database.read_parquet(str(folder / f"{table}.parquet")).create_view(table)


def _draw_foreign_keys(database: duckdb.DuckDBPyConnection, exponent: float, seed: int, changing: Changing, weeks: int) -> None:
    """`all_orders` and `items`, with customers and suppliers drawn by their shares in the part of `weeks` that they are of."""
    random = np.random.default_rng(seed)
    parts = 1
    for child, parent in (("orders", "customer"), ("lineitem", "supplier")):
        rows, keys = (_count(database, table) for table in (child, parent))
        # Ranks are no key's number, else the first keys would be the heavy ones.
        by_part = changing(random.permutation(zipf_probabilities(keys, exponent)), np.arange(1, keys + 1))
        drawn = {f"drawn_{part}": draw(shares, rows, random) + 1 for part, shares in enumerate(by_part)}
        database.from_arrow(pa.table({"place": np.arange(rows), **drawn})).create(f"{child}_drawn")
        parts = len(by_part)
    drawn_then = "[" + ", ".join(f"drawn_{part}" for part in range(parts)) + "]"
    part = f"least(greatest(week * {parts} // {weeks}, 0), {parts - 1})"
    database.execute(
        f"""
        CREATE TABLE dated AS
        SELECT o_orderkey AS orderkey, o_orderdate::TIMESTAMP AS placed,
               (o_orderdate - DATE '1970-01-01') // 7 - {_FIRST_WEEK} AS week, row_number() OVER () - 1 AS place
        FROM orders;
        CREATE TABLE all_orders AS
        SELECT orderkey, {drawn_then}[{part} + 1] AS custkey, placed, week FROM dated JOIN orders_drawn USING (place);
        CREATE TABLE items AS
        SELECT orderkey, {drawn_then}[{part} + 1] AS suppkey, (l_extendedprice * (1 - l_discount))::DOUBLE AS revenue
        FROM (SELECT *, row_number() OVER () - 1 AS place FROM lineitem) JOIN lineitem_drawn USING (place)
        JOIN dated ON dated.orderkey = l_orderkey
        """
    )


def _count(database: duckdb.DuckDBPyConnection, table: str) -> int:
    ((rows,),) = database.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(rows)


def _part(database: duckdb.DuckDBPyConnection, name: str, number: int, weeks: int) -> pa.Table:
    """The rows of one file, in the order of their times."""
    first = number * weeks
    ordered = f"SELECT * FROM all_orders WHERE week >= {first} AND week < {first + weeks}"
    return database.sql(f"WITH ordered AS ({ordered}) {_ROWS[name]} ORDER BY placed, 1").to_arrow_table()
