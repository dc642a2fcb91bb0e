"""Spark's own log of its jobs, for Spark's history server: off unless a folder for it is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamtopology.contract.environment import SPARK_EVENTS
from streamtopology.jobs.errors import WrongUse


def history_log(environ: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for a log in the folder that the user names, which is made. Raises WrongUse.

    The files are closed at 16 MiB each: the history server deletes old ones where it is set to.
    """
    asked = environ.get(SPARK_EVENTS)
    if not asked:
        return {}
    folder = Path(asked)
    if not folder.is_absolute():
        raise WrongUse(f"{SPARK_EVENTS}={asked!r}: expected the absolute path of a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"{SPARK_EVENTS}={asked!r}: no folder can be made there: {error.strerror}") from error
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "16m",
    }
