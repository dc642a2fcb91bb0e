"""The `kafka.*` options of a source or sink as settings of librdkafka: `kafka.sasl.password: ${env:KAFKA_PASSWORD}`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from streamtopology.jobs.variables import MissingVariable, with_variables

PREFIX = "kafka."
_NEEDED_BY = "the driver and to each class of executors"


def kafka_settings(
    options: Mapping[str, object], wrong: Callable[[str], Exception], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the settings. Raises what `wrong` makes of the sentence on a variable that is not set."""
    settings: dict[str, str] = {}
    for name, value in options.items():
        if name.startswith(PREFIX):
            try:
                settings[name.removeprefix(PREFIX)] = with_variables(name, str(value), environ, _NEEDED_BY)
            except MissingVariable as missing:
                raise wrong(str(missing)) from None
    return settings
