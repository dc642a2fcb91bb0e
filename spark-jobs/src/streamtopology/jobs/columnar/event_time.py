"""The types that event time can have."""

from __future__ import annotations

import pyarrow as pa

EVENT_TIMES = "a timestamp, a date, or a number of epoch seconds"


def is_event_time(kind: pa.DataType) -> bool:
    """True for the types of `EVENT_TIMES`."""
    test = pa.types
    return test.is_timestamp(kind) or test.is_date(kind) or test.is_integer(kind) or test.is_floating(kind)
