"""Word counts in PostgreSQL, for upsert.yaml: each batch is added once, however often the function gets it."""

from __future__ import annotations

import os
from collections import Counter

import psycopg
import pyarrow as pa

TABLES = """
CREATE TABLE IF NOT EXISTS totals (word text PRIMARY KEY, count bigint NOT NULL);
CREATE TABLE IF NOT EXISTS batches (sink text PRIMARY KEY, newest bigint NOT NULL);
"""
# Changes one row if the batch is newer than the newest that is there, and none if it is there already.
NOTE = """
INSERT INTO batches AS known VALUES ('totals', %s)
ON CONFLICT (sink) DO UPDATE SET newest = EXCLUDED.newest WHERE known.newest < EXCLUDED.newest
"""
ADD = """
INSERT INTO totals AS known VALUES (%s, %s)
ON CONFLICT (word) DO UPDATE SET count = known.count + EXCLUDED.count
"""


def add(rows: pa.Table, batch: int) -> None:
    """Add a batch's words to the table, in the transaction that notes its number."""
    with psycopg.connect(os.environ["DATABASE"]) as database:
        database.execute(TABLES)
        if database.execute(NOTE, (batch,)).rowcount:
            words = Counter(rows["word"].to_pylist())
            database.cursor().executemany(ADD, list(words.items()))
