"""`streamtopology arena`: measures, prints the tables and writes the pages."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from streamtopology.jobs.cli.parameters import FAILURE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.arena import keyed, keyed_page
from streamtopology.lab.arena.engines import ENGINES, Place
from streamtopology.lab.arena.nexmark import ENGINES_OF_NEXMARK, EXAMPLES, OURS, Nexmark, measure
from streamtopology.lab.arena.page import is_right, nexmark_table
from streamtopology.lab.arena.peer import Arena
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.figures import machine
from streamtopology.lab.nexmark.sql import SQL

FOLDER = Path("build/arena")


def run_nexmark(asked: Nexmark, nexmark: str, *, fresh: bool) -> int:
    """Measure what is asked, unless it was before; 1 if a result of ours is missing or wrong."""
    _check("query", asked.queries, SQL)
    _check("engine", asked.engines, ENGINES_OF_NEXMARK)
    if not EXAMPLES.exists():
        raise WrongUse(f"{EXAMPLES} is not here: the arena runs in a checkout")
    place = Place(FOLDER, nexmark)
    rows = measure(asked, Arena(ENGINES, place, announce, fresh=fresh), place, announce)
    found = machine(events=asked.events, runs=asked.runs)
    workers = " and ".join(f"{count} of {cpu:g}" for cpu, count in Counter(asked.cpus).items())
    text = f"Workers by cores: {workers}; {asked.events:,} events, on {found}.\n\n{nexmark_table(rows)}"
    page = FOLDER / f"{asked.case}{'-datagen' if asked.datagen else ''}.md"
    page.write_text(f"# Nexmark\n\n{text}")
    print(text)
    print(f"written to {page}")
    return FAILURE if any(row["engine"] == OURS and ("failed" in row or not is_right(row)) for row in rows) else SUCCESS


def run_keyed(asked: keyed.Keyed, place: Place, *, fresh: bool) -> int:
    """Measure what is asked, unless it was before; 1 if a result of ours is missing or wrong."""
    _check("engine", asked.engines, asked.case.peers)
    _check("change", asked.changes, keyed.CHANGES)
    rows = keyed.measure(asked, Arena(ENGINES, place, announce, fresh=fresh), place, announce)
    found = machine(seconds=keyed.SECONDS, runs=asked.runs)
    cpu = keyed.worker_cpu()
    text = f"Four workers of {cpu:g} cores each, one of {cpu * keyed.SLOW:g} in the end where one is slowed, on {found}.\n\n"
    text += keyed_page.keyed_table(rows)
    page = place.folder / f"{asked.case.name}.md"
    pictures: list[str] = []
    for skew, change in itertools.product(asked.skews, asked.changes):
        file = place.folder / f"{asked.case.name}-{skew:g}-{change}.svg"
        drawn = keyed_page.picture(rows, skew, change)
        if drawn.svg:
            file.write_text(drawn.svg)
            pictures.append(f"![{drawn.title}]({file.name})\n")
    page.write_text("\n".join([f"# {asked.case.title}", "", *pictures, text]))
    print(text)
    print(f"written to {page}")
    ours = [row for row in rows if row["engine"] == OURS]
    return FAILURE if any("failed" in row or not keyed_page.is_right(row) for row in ours) else SUCCESS


def _check(kind: str, names: Sequence[str], known: Collection[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise WrongUse(f"--{kind} {unknown[0]}: there is no such {kind}; there are {', '.join(known)}")
