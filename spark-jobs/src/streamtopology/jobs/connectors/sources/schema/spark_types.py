"""Arrow types as Spark's DDL writes them: the inverse of `connectors.sources.ddl`."""

from __future__ import annotations

import pyarrow as pa

from streamtopology.jobs.columnar.plain_types import plain_type
from streamtopology.topology.schema import quoted

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
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
    pa.null(): "STRING",
}
_MOST_DECIMAL_DIGITS = 38


def spark_type(type_: pa.DataType) -> str | None:
    """The Spark type that holds every value of `type_` and that a source reads it as, or None if there is none.

    >>> spark_type(pa.uint16()), spark_type(pa.timestamp("ns")), spark_type(pa.list_(pa.int8())), spark_type(pa.uint64())
    ('INT', 'TIMESTAMP_NTZ', 'ARRAY<TINYINT>', 'DECIMAL(20, 0)')
    """
    type_ = plain_type(type_)
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
    if pa.types.is_map(type_):
        key, item = spark_type(type_.key_type), spark_type(type_.item_type)
        return f"MAP<{key}, {item}>" if key and item else None
    if pa.types.is_struct(type_) and type_.num_fields:
        fields = [(field.name, spark_type(field.type)) for field in type_]
        return f"STRUCT<{', '.join(f'{quoted(name)}: {kind}' for name, kind in fields)}>" if all(k for _, k in fields) else None
    return _NAMES.get(type_)
