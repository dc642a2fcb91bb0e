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
    asyncio.run(_run(settings))


async def _run(settings: Settings) -> None:
    try:
        async with ApiClient(await configuration()) as client:
            await run(client, settings)
    except LeaseLostError as lost:
        log.error("%s", lost)
        logging.shutdown()
        os._exit(1)  # at once: what hangs in the middle of a step must not keep a process that does not lead any more


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
