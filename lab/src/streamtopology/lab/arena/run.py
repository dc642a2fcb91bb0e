"""`streamtopology arena`: measures, prints the table and writes the page."""

from __future__ import annotations

from pathlib import Path

from streamtopology.jobs.cli.parameters import FAILURE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.arena.engines import ENGINES, Place
from streamtopology.lab.arena.nexmark import EXAMPLES, OURS, Nexmark, measure
from streamtopology.lab.arena.page import is_right, nexmark_table
from streamtopology.lab.arena.peer import Arena
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.figures import machine
from streamtopology.lab.nexmark.sql import SQL

FOLDER = Path("build/arena")


def run_nexmark(asked: Nexmark, nexmark: str, *, fresh: bool) -> int:
    """Measure what is asked, unless it was before; 1 if a result of ours is missing or wrong."""
    for kind, names, known in (("query", asked.queries, SQL), ("engine", asked.engines, ENGINES)):
        if unknown := [name for name in names if name not in known]:
            raise WrongUse(f"--{kind} {unknown[0]}: there is no such {kind}; there are {', '.join(known)}")
    if not EXAMPLES.exists():
        raise WrongUse(f"{EXAMPLES} is not here: the arena runs in a checkout")
    place = Place(FOLDER, nexmark)
    rows = measure(asked, Arena(ENGINES, place, announce, fresh=fresh), place, announce)
    found = machine(events=asked.events, runs=asked.runs)
    text = f"Two workers of one core each, {asked.events:,} events, on {found}.\n\n{nexmark_table(rows)}"
    page = FOLDER / f"{asked.case}{'-datagen' if asked.datagen else ''}.md"
    page.write_text(f"# Nexmark\n\n{text}")
    print(text)
    print(f"written to {page}")
    return FAILURE if any(row["engine"] == OURS and ("failed" in row or not is_right(row)) for row in rows) else SUCCESS
