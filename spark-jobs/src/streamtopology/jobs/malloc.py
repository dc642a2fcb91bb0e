"""For processes that live long and plan again and again: what memory they keep, and where."""

from __future__ import annotations

import ctypes
import gc
import os

# As much may lie idle between two plans; a locality plan of 150,000 pairs takes about 40 MiB.
KEPT_BYTES = 64 << 20

# Python's own is 700: a batch of 256 executors makes as many objects a hundred times.
NEW_OBJECTS = 20_000

_LARGEST_FROM_HEAP = 32 << 20  # what glibc's own dynamic threshold grows to at most
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def share_one_heap() -> None:
    """Have all threads, and Arrow, share one heap: before Arrow is imported, and threads are started.

    With a heap for each thread and another for Arrow, all of them keep what only one needs at a time, and a long run grows
    (decision 65). Where there is another C library than glibc, only Arrow is moved.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set({_M_ARENA_MAX: 1})


def keep_freed_memory() -> None:
    """Have glibc give freed memory back only beyond `KEPT_BYTES`; where there is another C library, nothing is done.

    By default most of it goes back at once, and a page fault for each 4 KiB that is asked for again makes METIS, and so a
    locality plan, a fifth slower.
    """
    _set({_M_MMAP_THRESHOLD: _LARGEST_FROM_HEAP, _M_TRIM_THRESHOLD: KEPT_BYTES})


def collect_garbage_seldom() -> None:
    """Have Python look for cycles after so many as `NEW_OBJECTS` more objects were made than freed.

    It looks through all objects now and then, and the history of a run has hundreds of thousands of them.
    """
    gc.set_threshold(NEW_OBJECTS)


def give_back_idle_memory() -> None:
    """Have glibc give all idle pages back now; where there is another C library, nothing is done.

    Between blocks in use, pages stay idle in ever new places, and a process that lives long keeps more and more of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _set(options: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in options.items():
            mallopt(option, value)
