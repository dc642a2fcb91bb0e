"""The `kafka.*` options of a source or sink as settings of librdkafka. Passwords in them come from the environment.

A manifest is copied into a ConfigMap, so it names the variable: `kafka.sasl.password: ${env:KAFKA_PASSWORD}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

PREFIX = "kafka."
_VARIABLE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def kafka_settings(
    options: Mapping[str, object], wrong: Callable[[str], Exception], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the settings. Raises what `wrong` makes of the sentence on a variable that is not set."""
    settings: dict[str, str] = {}
    for name, value in options.items():
        if name.startswith(PREFIX):
            text = str(value)
            missing = [variable for variable in _VARIABLE.findall(text) if variable not in environ]
            if missing:
                raise wrong(
                    f"option {name} needs the environment variable {missing[0]}, which is not set here; on Kubernetes give it "
                    "to the driver and to each class of executors: pod.env or pod.envFrom, from a Secret"
                )
            settings[name.removeprefix(PREFIX)] = _VARIABLE.sub(lambda found: environ[found[1]], text)
    return settings
