"""Words that Spark, Flink and Storm have for what a manifest says otherwise, and what to write here."""

from __future__ import annotations

from collections.abc import Mapping

SINKS: Mapping[str, str] = {
    "hudi": "write format: delta or iceberg, or parquet, whose files a job of your own adds to the table",
    **{writer: f"format: spark writes it, with options: {{writer: {writer}}}" for writer in ("orc", "avro", "text", "jdbc")},
    **dict.fromkeys(
        ("foreachBatch", "foreach"),
        "format: function calls your function with each batch (options: {run: path/file.py:function})",
    ),
}
TRIGGERS: Mapping[str, str] = {
    "once": "Spark's once is availableNow: true here",
    "processingTime": "Spark's processingTime is interval here, such as interval: 10s",
    "continuous": "batches follow one another without a pause if the trigger is left out",
}
POLICIES: Mapping[str, str] = {
    **dict.fromkeys(("hash", "key", "keyed", "keyBy", "key-by", "field", "direct"), "a fixed hash of the key is fields"),
    **dict.fromkeys(("round-robin", "roundrobin", "random", "rebalance", "none"), "tuples in turn are shuffle"),
    **dict.fromkeys(("pkg", "partial", "partialKey"), "two instances a key are partial-key"),
}
