"""Arrow types as Spark's DDL writes them: the inverse of `connectors.sources.ddl`."""

from __future__ import annotations

import pyarrow as pa

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "DECIMAL(20, 0)",
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.string_view(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.binary_view(): "BINARY",
    pa.date32(): "DATE",
    pa.null(): "STRING",
}
_MOST_DECIMAL_DIGITS = 38


def spark_type(type_: pa.DataType) -> str | None:
    """The Spark type that holds every value of `type_` and that a source reads it as, or None if there is none.

    >>> spark_type(pa.uint16()), spark_type(pa.timestamp("ns")), spark_type(pa.list_(pa.int8())), spark_type(pa.uint64())
    ('INT', 'TIMESTAMP_NTZ', 'ARRAY<TINYINT>', 'DECIMAL(20, 0)')
    """
    if pa.types.is_dictionary(type_):
        return spark_type(type_.value_type)
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz is not None else "TIMESTAMP_NTZ"
    if pa.types.is_decimal(type_):
        fits = type_.precision <= _MOST_DECIMAL_DIGITS and 0 <= type_.scale <= type_.precision
        return f"DECIMAL({type_.precision}, {type_.scale})" if fits else None
    if pa.types.is_fixed_size_binary(type_):
        return "BINARY"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = spark_type(type_.value_type)
        return item and f"ARRAY<{item}>"
    return _NAMES.get(type_)
