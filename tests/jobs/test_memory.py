"""A process that plans keeps the memory that it lets go, and one that lives long does not keep ever more of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKS_AGAIN = """
import resource, sys
import numpy as np
from streamtopology.jobs.malloc import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()

def plan():
    for _ in range(10):
        arrays = [np.ones(2_500_000 // 8) for _ in range(8)]
        del arrays

plan()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
plan()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

KEEPS_SOME = """
import sys
from pathlib import Path
from streamtopology.jobs.malloc import give_back_idle_memory, keep_freed_memory, share_one_heap
share_one_heap()
keep_freed_memory()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

blocks = [b"x" * 100_000 for _ in range(4_000)]
kept = blocks[::40]
del blocks
before = resident()
give_back_idle_memory()
print(before - resident())
"""

COLLECTS = """
import gc
from streamtopology.jobs.malloc import NEW_OBJECTS, collect_garbage_seldom
collect_garbage_seldom()
gc.collect()
begun = []
gc.callbacks.append(lambda phase, info: begun.append(phase))
kept = [[] for _ in range(NEW_OBJECTS - 1000)]
few = len(begun)
for _ in range(2 * NEW_OBJECTS):
    cycle = []
    cycle.append(cycle)
print(few, len(begun) > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults of glibc's memory")
def test_freed_memory_is_reused_without_page_faults() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", ASKS_AGAIN, how], check=True, capture_output=True, text=True).stdout)

    assert faults("keep") < 100 < 1000 < faults("not")


@pytest.mark.skipif(sys.platform != "linux", reason="idle pages of glibc's heap")
def test_idle_pages_between_blocks_in_use_are_given_back() -> None:
    shown = subprocess.run([sys.executable, "-c", KEEPS_SOME], check=True, capture_output=True, text=True).stdout
    assert int(shown) > 300, "of 380 MiB, all but what is in use"


def test_arrow_shares_the_heap_of_a_command() -> None:
    asks = "from streamtopology.jobs.malloc import share_one_heap; share_one_heap(); import pyarrow as pa; "
    shown = [sys.executable, "-c", f"{asks}print(pa.default_memory_pool().backend_name)"]
    assert subprocess.run(shown, check=True, capture_output=True, text=True).stdout == "system\n"
    imported = "import sys, streamtopology.jobs.cli.main; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", imported], check=True)


def test_garbage_is_looked_for_seldom_and_found() -> None:
    shown = subprocess.run([sys.executable, "-c", COLLECTS], check=True, capture_output=True, text=True).stdout
    assert shown == "0 True\n"
