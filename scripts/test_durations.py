"""Write the slowest files of the gate into CONTRIBUTING.md, from what `make test` left in build/tests/gate.

make test
.venv/bin/python scripts/test_durations.py
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "build" / "tests" / "gate", ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- durations: written by scripts/test_durations.py -->\n", "<!-- durations: end -->\n"
LISTED = 30


def main() -> int:
    seconds: dict[str, list[float]] = defaultdict(list)
    for file in RESULTS.glob("*.xml"):
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            seconds[_file_of(case.get("classname", ""))].append(float(case.get("time", 0)))
    if not seconds:
        print(f"{RESULTS} has no results: run `make test` first", file=sys.stderr)
        return 1
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(_table(seconds)) + "\n" + END + rest.partition(END)[2])
    return 0


def _file_of(classname: str) -> str:
    """The path of a test's file. `classname`: its module, and the class that a test may be of."""
    return "/".join(part for part in classname.split(".") if part[:1].islower()) + ".py"


def _table(seconds: dict[str, list[float]]) -> Iterator[str]:
    totals = sorted(((sum(times), file) for file, times in seconds.items()), reverse=True)
    yield "| file | seconds | tests | slowest test |"
    yield "| --- | ---: | ---: | ---: |"
    for total, file in totals[:LISTED]:
        yield f"| {file} | {total:.0f} | {len(seconds[file])} | {max(seconds[file]):.0f} |"
    others = sum(total for total, _ in totals[LISTED:])
    yield f"| {len(totals[LISTED:])} other files | {others:.0f} | {sum(len(seconds[file]) for _, file in totals[LISTED:])} | |"


if __name__ == "__main__":
    sys.exit(main())
