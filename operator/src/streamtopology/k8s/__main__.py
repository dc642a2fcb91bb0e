"""`streamtopology-operator`. Exit codes: 0 stopped by a signal, 1 the lease was lost or something failed, 2 usage error."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from yaml import YAMLError

from streamtopology.contract.environment import exempt_api_server
from streamtopology.k8s.app import run
from streamtopology.k8s.instants import format_instant
from streamtopology.k8s.io.api import ApiError, NoCluster, missing_right
from streamtopology.k8s.io.leader import LeaseLostError
from streamtopology.k8s.io.watchdog import NotServedError
from streamtopology.k8s.settings import Settings, read_settings
from streamtopology.tracing.opening import check_traces, traces
from streamtopology.tracing.settings import TracesUnusable

log = logging.getLogger("streamtopology.k8s")

# Seconds between two looks at a kubeconfig.
TOKEN_SECONDS = 60.0

KUBECONFIG_ERRORS = (config.ConfigException, YAMLError, OSError, ValueError, TypeError, LookupError)


def main() -> None:
    exempt_api_server(os.environ)
    settings = read_settings(sys.argv[1:], os.environ)
    try:
        check_traces(os.environ, "streamtopology-operator")
    except TracesUnusable as wrong:
        print(f"streamtopology-operator: {wrong}", file=sys.stderr)
        sys.exit(wrong.exit_code)
    configure(settings.log_level, settings.log_format)
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    try:
        asyncio.run(_run(settings))
    except (NoCluster, NotServedError) as missing:
        log.error("%s", missing)
        sys.exit(missing.exit_code)
    except ApiError as refused:
        log.error("%s", missing_right(refused) or refused)
        sys.exit(refused.exit_code)


async def _run(settings: Settings) -> None:
    with traces(os.environ, settings.resource, log.warning) as emit:
        try:
            await run(await configuration(), settings, emit)
        except LeaseLostError as lost:
            log.error("%s", lost)
            logging.shutdown()
            os._exit(1)  # at once: a step that hangs must not keep a process alive that no longer leads


async def configuration() -> Configuration:
    """Configure the client by the pod's service account, else by KUBECONFIG."""
    found = Configuration()
    found.connection_pool_maxsize = 64
    try:
        config.load_incluster_config(client_configuration=found)
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=found)
        except KUBECONFIG_ERRORS as missing:
            raise NoCluster(
                "no cluster to operate: this is no pod with a service account, and the kubeconfig cannot be used "
                f"({' '.join(str(missing).split())}); set KUBECONFIG"
            ) from missing
        cast(Any, found).refresh_api_key_hook = Tokens(found.api_key).renew
    return found


class Tokens:
    """The token of the kubeconfig, which is read again as the library reads a pod's: a file or a plugin has others later.

    `clock`: monotonic seconds.
    """

    def __init__(self, keys: dict[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._read_at = clock()

    async def renew(self, configuration: Configuration) -> None:
        """Give `configuration` the newest token; if there is none now, the one that it had."""
        if self._clock() - self._read_at >= TOKEN_SECONDS:
            self._read_at = self._clock()
            fresh = Configuration()
            try:
                await config.load_kube_config(client_configuration=fresh)
            except KUBECONFIG_ERRORS as missing:
                log.warning("the kubeconfig cannot be read again: %s", missing)
            else:
                self._keys = fresh.api_key
        configuration.api_key = self._keys

    def __deepcopy__(self, _: dict[int, object]) -> Tokens:
        return self  # a copied configuration has the same one


class JsonLines(logging.Formatter):
    """A record as a JSON object in one line: time, level, logger, message, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {
            "time": format_instant(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Log to the standard error from now on. `form`: text or json."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler])


if __name__ == "__main__":
    main()
