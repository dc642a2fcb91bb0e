"""For processes that plan again and again: memory that a plan lets go stays with the process for the next one."""

from __future__ import annotations

import ctypes

KEPT_BYTES = 64 << 20
"""As much may lie idle between two plans; a locality plan of 150,000 pairs takes about 40 MiB."""

_LARGEST_FROM_HEAP = 32 << 20  # what glibc's own dynamic threshold grows to at most
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> None:
    """Have glibc give freed memory back only beyond `KEPT_BYTES`; where there is another C library, nothing is done.

    By default most of it goes back at once, and a page fault for each 4 KiB that is asked for again makes METIS, and so a
    locality plan, a fifth slower.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
