"""Each cast of docs/guide/casts.md, compared with Spark itself: the page has the table that this test finds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.casts import CASTS, compare, count_of_values, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/casts.md"
FOUND = ROOT / "build/casts.md"


def test_the_page_of_casts_has_what_spark_and_our_sql_give(spark: SparkSession) -> None:
    assert count_of_values() >= 200
    found = [compare(spark, kind, target) for kind, target in CASTS]
    FOUND.parent.mkdir(exist_ok=True)
    FOUND.write_text(table(found) + "\n")
    written = PAGE.read_text().split("<!-- casts: written by tests/jobs/test_casts_like_spark.py -->\n")[1]
    assert written.split("<!-- casts: end -->")[0].strip() == table(found), f"copy the table of {FOUND} into {PAGE}"
