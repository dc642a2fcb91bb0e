"""`streamtopology-operator`: exit code 0 when told to stop, 1 when the lease was lost or something failed."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from streamtopology.operator.leader import LeaseLostError
from streamtopology.operator.operator import run
from streamtopology.operator.settings import Settings, read_settings

log = logging.getLogger("streamtopology.operator")


def main() -> None:
    settings = read_settings(sys.argv[1:], os.environ)
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLogger().level))
    try:
        asyncio.run(_run(settings))
    except LeaseLostError as lost:
        log.error("%s", lost)
        sys.exit(1)


async def _run(settings: Settings) -> None:
    async with ApiClient(await configuration()) as client:
        await run(client, settings)


async def configuration() -> Configuration:
    """How to reach the API server: by the pod's service account, else by KUBECONFIG."""
    found = Configuration()
    found.connection_pool_maxsize = 64
    try:
        config.load_incluster_config(client_configuration=found)
    except config.ConfigException:
        await config.load_kube_config(client_configuration=found)
    return found


if __name__ == "__main__":
    main()
