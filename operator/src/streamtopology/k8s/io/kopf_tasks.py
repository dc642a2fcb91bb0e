"""The tasks that are not kopf's, for `kopf.run_tasks`: as it ends, it cancels all tasks that began since, whosever they are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator

import kopf

_KOPF = os.path.dirname(kopf.__file__) + os.sep


class OthersTasks(Collection["asyncio.Task[object]"]):
    """All tasks of the running loop but those that run a coroutine of kopf's."""

    def __contains__(self, task: object) -> bool:
        return isinstance(task, asyncio.Task) and not _is_kopfs(task)

    def __iter__(self) -> Iterator[asyncio.Task[object]]:
        return (task for task in asyncio.all_tasks() if task in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_kopfs(task: asyncio.Task[object]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_KOPF)
