"""The stage `count` on three instances of 100,000 rows/s and one of 30,000."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import TableStage
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.table import BUCKETS, RoutingTable

RATES = np.array([1e5, 1e5, 1e5, 3e4])
INSTANCES = (0, 1, 2, 3)
KEY = 0x00000000DEADBEEF


def model(fixed: float = 0.05) -> SlotModel:
    names = (SOURCE, "count")
    return SlotModel(
        RATES / 1e5, dict.fromkeys(names, 1e5), dict.fromkeys(names, RATES), dict.fromkeys(names, np.full(4, fixed))
    )


def counting(rows: tuple[int, ...], key_rows: int = 0) -> TableStage:
    """`count` with these rows on its instances; on instance 1 one key has `key_rows` of them."""
    reports = [report(instance, count, key_rows if instance == 1 else 0) for instance, count in enumerate(rows)]
    route = Route("mixed", RoutingTable.uniform(INSTANCES), INSTANCES)
    return TableStage("count", route, INSTANCES, reports, reports, 1, "mixed")


def report(instance: int, rows: int, key_rows: int) -> LoadReport:
    buckets = BucketRows(np.array([instance]), np.array([rows - key_rows]), BUCKETS)
    light = LoadReport("count", instance, instance, rows, 1.0, 1.0, bucket_rows=buckets)
    if not key_rows:
        return light
    one = np.array([key_rows], np.int64)
    return replace(
        light,
        heavy_hashes=np.array([KEY], np.uint64),
        heavy_rows=one,
        heavy_seconds=np.zeros(1),
        heavy_bytes=one,
        heavy_labels=("Berlin",),
    )
