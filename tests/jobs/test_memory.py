"""A process that plans keeps the memory that it lets go."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="page faults of glibc's memory")
def test_freed_memory_is_reused_without_page_faults() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", ASKS_AGAIN, how], check=True, capture_output=True, text=True).stdout)

    assert faults("keep") < 100 < 1000 < faults("not")


def test_arrow_shares_the_heap_of_a_command() -> None:
    asks = "from streamtopology.jobs.malloc import share_one_heap; share_one_heap(); import pyarrow as pa; "
    shown = [sys.executable, "-c", f"{asks}print(pa.default_memory_pool().backend_name)"]
    assert subprocess.run(shown, check=True, capture_output=True, text=True).stdout == "system\n"
    imported = "import sys, streamtopology.jobs.cli.main; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", imported], check=True)
