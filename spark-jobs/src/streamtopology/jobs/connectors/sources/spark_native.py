"""Any other Spark streaming source (rate, socket, a connector's format): read where Spark puts it.

Several sources of a topology are one query over their tagged union, so that a batch has one number and one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from streamtopology.jobs.connectors.sources.errors import SourceError
from streamtopology.jobs.connectors.sources.source_tag import TAG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamtopology.topology import Source


def load(spark: SparkSession, source: Source) -> DataFrame:
    """The streaming frame of a source after its where and select. Raises SourceError with Spark's own sentence."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    reader = spark.readStream.format(source.format).options(**dict(source.options))
    try:
        if source.schema is not None:
            reader = reader.schema(source.schema)
        frame = reader.load()
        if source.where is not None:
            frame = frame.where(source.where)
        return frame.selectExpr(*source.select) if source.select else frame
    except (PySparkException, Py4JJavaError) as error:
        spoken = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
        why = spoken.splitlines()[0].rstrip(".")
        wrong = f"source {source.name!r}: Spark does not read it with format {source.format!r}: {why}"
        raise SourceError(f"{wrong}; the jar of a connector is named in spec.sparkConf") from error


def tagged_union(frames: Mapping[str, DataFrame]) -> DataFrame:
    """All rows of `frames`: column `__source` names the frame, the struct column of that name holds its row."""
    from pyspark.sql import functions as f

    def tagged(name: str, frame: DataFrame) -> DataFrame:
        row = f.struct(*[frame[f"`{column}`"] for column in frame.columns])
        return frame.select(f.lit(name).alias(TAG), row.alias(name))

    tagged_frames = [tagged(name, frame) for name, frame in frames.items()]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), tagged_frames)
