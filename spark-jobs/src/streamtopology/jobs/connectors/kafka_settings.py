"""The `kafka.*` options of a source or sink as settings of librdkafka: `kafka.sasl.password: ${env:KAFKA_PASSWORD}`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from streamtopology.jobs.variables import MissingVariable, with_variables

PREFIX = "kafka."
# Settings that are ours, and what depends on them: another value would lose rows or repeat them.
SET_BY_SOURCES = {
    "auto.offset.reset": "option startingOffsets says where a stream begins, and failOnDataLoss what becomes of lost messages",
    "enable.auto.commit": "positions are in the checkpoint",
    "enable.partition.eof": "it tells where a partition ends",
}
SET_BY_SINKS = {
    "transactional.id": "it names topology, sink and checkpoint, and keeps a second process of them out",
    "group.id": "the number of the newest batch is kept under it",
    "enable.auto.commit": "the number of the newest batch is committed with its rows",
    "isolation.level": "the number of the newest batch is read once it is committed",
}
_NEEDED_BY = "the driver and to each class of executors"


def set_by_us(option: str, ours: Mapping[str, str]) -> str | None:
    """A clause on a `kafka.*` option that is one of `ours`; None if users may set it."""
    reason = ours.get(option.removeprefix(PREFIX)) if option.startswith(PREFIX) else None
    return None if reason is None else f"option {option} cannot be set, because {reason}; leave it out"


def kafka_settings(options: Mapping[str, object], wrong: Callable[[str], Exception]) -> dict[str, str]:
    """Return the settings. Raises what `wrong` makes of the sentence on a variable that is not set."""
    settings: dict[str, str] = {}
    for name, value in options.items():
        if name.startswith(PREFIX):
            try:
                settings[name.removeprefix(PREFIX)] = with_variables(name, str(value), os.environ, _NEEDED_BY)
            except MissingVariable as missing:
                raise wrong(str(missing)) from None
    return settings
