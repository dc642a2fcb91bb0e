"""For processes that plan again and again: memory that a plan lets go stays with the process for the next one."""

from __future__ import annotations

import ctypes

import pyarrow as pa

KEPT_BYTES = 64 << 20
"""As much may lie idle between two plans; a locality plan of 150,000 pairs takes about 40 MiB."""

_LARGEST_FROM_HEAP = 32 << 20  # what glibc's own dynamic threshold grows to at most
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def keep_freed_memory() -> None:
    """Have glibc give freed memory back only beyond `KEPT_BYTES`; where there is another C library, nothing is done.

    By default most of it goes back at once, and a page fault for each 4 KiB that is asked for again makes METIS, and so a
    locality plan, a fifth slower. All threads, and Arrow, share one heap: with one for each thread and another for Arrow, all
    of them keep what only one needs at a time, and a long run grows for days (decision 65).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)
        pa.set_memory_pool(pa.system_memory_pool())
