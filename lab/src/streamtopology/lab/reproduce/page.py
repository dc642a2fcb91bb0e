"""The page of the reproduced experiments: `index.html`, one file with everything in it, and `report.md` with its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from streamtopology.contract import formatting
from streamtopology.lab.palette import BACKGROUND, COLORS, GRID, INK, MUTED
from streamtopology.lab.reproduce import markdown
from streamtopology.lab.reproduce.figure import Figure
from streamtopology.lab.reproduce.verdict import Result, Verdict, verdict_in_words

Figures = Mapping[str, Sequence[Figure]]

# Title of a paper by what the ids of its experiments begin with.
_PAPERS = {
    "dkg": "DKG: distribution-aware key grouping",
    "posg": "POSG: proactive online shuffle grouping",
    "cg": "Consistent Grouping",
    "mixed": "Mixed: routing table and hash",
    "locality": "Locality-aware routing",
    "kip": "KIP: dynamic repartitioning on Spark and Flink",
    "fish": "FISH: recent hot keys",
    "prompt": "Prompt: partitioning for micro-batches",
    "switch": "Gradual switches: Megaphone, Meces, DRRS",
}

# Classes of the style sheet: of an experiment's badge, and of a claim.
_CLASSES = {Verdict.HOLDS: "holds", Verdict.DEPENDS: "depends", Verdict.DOES_NOT: "not"}
_SIGNS = {Verdict.HOLDS: "yes", Verdict.BY_CONSTRUCTION: "given", Verdict.DEPENDS: "depends", Verdict.DOES_NOT: "no"}

_THEMED = {BACKGROUND: "--background", INK: "--ink", MUTED: "--muted", GRID: "--line"} | {
    color: f"--c{index}" for index, color in enumerate(COLORS, 1)
}


def write_page(folder: Path, results: Sequence[Result], figures: Figures) -> None:
    """Write `index.html`, `report.md` and `figures/` for `results`, one a experiment, failed ones included."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, drawn in figures.items():
        for number, figure in enumerate(drawn, 1):
            if figure.svg:
                (folder / markdown.figure_file(name, number)).write_text(figure.svg)
    (folder / "index.html").write_text(html(results, figures))
    (folder / "report.md").write_text(markdown.report(by_paper(results), figures))


def by_paper(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Title of the paper -> its results, in their order."""
    papers: dict[str, list[Result]] = {}
    for result in results:
        prefix = str(result["id"]).partition("-")[0]
        papers.setdefault(_PAPERS.get(prefix, prefix), []).append(result)
    return papers


def html(results: Sequence[Result], figures: Figures) -> str:
    """The whole page."""
    style = Path(__file__).with_name("page.css").read_text()
    papers = by_paper(results)
    body = [_head(results)]
    for title, of_paper in papers.items():
        body.append(f"<h2>{escape(title)}</h2>")
        body += [_section(result, figures.get(result["id"], ())) for result in of_paper]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Reproduced: the papers of StreamTopology</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f'<div class="all">\n{_contents(papers)}\n<main>\n' + "\n".join(body) + "\n</main>\n</div>\n</body>\n</html>\n"
    )


def _contents(papers: Mapping[str, Sequence[Result]]) -> str:
    lines = ['<nav aria-label="Experiments">']
    for title, results in papers.items():
        lines.append(f"<h2>{escape(title.partition(':')[0])}</h2>\n<ul>")
        for result in results:
            sign = {"holds": "✓", "depends": "~", "not": "✗", "failed": "!"}[_verdict(result)[0]]
            badge = f'<span class="{_verdict(result)[0]}" style="background:none" aria-hidden="true">{sign}</span>'
            lines.append(f'<li><a href="#{escape(result["id"])}">{badge}{escape(result["id"])}</a></li>')
        lines.append("</ul>")
    return "\n".join([*lines, "</nav>"])


def _head(results: Sequence[Result]) -> str:
    counts = markdown.Counts.of(results)
    quick = '<p class="note">Run with <code>--quick</code>: smaller and repeated less often than in the papers.</p>'
    failed = f"<li><b>{counts.failed}</b>failed to run</li>" if counts.failed else ""
    depend = f"<li><b>{counts.depend}</b>depend on the seed</li>" if counts.depend else ""
    return (
        "<h1>The papers, reproduced</h1>\n"
        f'<p class="lead">{escape(markdown.LEAD)}</p>\n'
        f'<ul class="counts"><li><b>{counts.held} of {counts.experiments}</b>experiments hold</li>'
        f"{depend}<li>{escape(counts.claims)}</li>"
        f"{failed}<li><b>{formatting.duration(counts.seconds)}</b>of measuring</li></ul>\n"
        f"{quick if counts.quick else ''}"
    )


def _verdict(result: Result) -> tuple[str, str]:
    """(class of the style sheet, words)."""
    if "error" in result:
        return "failed", "failed"
    return _CLASSES[Verdict(result["verdict"])], result["verdict"]


def _section(result: Result, figures: Sequence[Figure]) -> str:
    name, (kind, words) = escape(result["id"]), _verdict(result)
    head = (
        f'<section id="{name}">\n<h3><a href="#{name}"><code>{name}</code></a> {escape(result["title"])}'
        f'<span class="badge {kind}">{words}</span></h3>\n<p class="meta">{escape(result["source"])}</p>'
    )
    if "error" in result:
        trace = f"<details><summary>Where</summary><pre>{escape(result['trace'])}</pre></details>"
        return f'{head}\n<p class="note">It failed: {escape(result["error"])}</p>\n{trace}\n</section>'
    parts = [head, _drawn(figures), _claims(result), _table(result)]
    if result["stand_in"]:
        parts.append(f'<p class="note"><b>Stand-in.</b> {escape(result["stand_in"])}</p>')
    return "\n".join([*filter(None, parts), _parameters(result), "</section>"])


def _drawn(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    return '<div class="figures">\n' + "\n".join(_figure(figure) for figure in figures) + "\n</div>"


def _figure(figure: Figure) -> str:
    if not figure.svg:
        return f'<p class="note">Not drawn. {escape(figure.problem)}</p>'
    return f'<figure role="img" aria-label="{escape(figure.title)}">{themed(figure.svg)}</figure>'


def themed(svg: str) -> str:
    """An SVG document as an element of the page, in the page's colours."""
    element = svg[svg.index("<svg") :]
    for color, name in _THEMED.items():
        element = element.replace(color, f"var({name})")
    return element


def _claims(result: Result) -> str:
    lines = ['<ul class="claims">']
    for claim in result["claims"]:
        verdict = verdict_in_words(claim, len(result["seeds"]))
        notes = [note for note in (claim["why_not"], claim["by_construction"]) if note]
        notes = [f"{verdict[0].upper()}{verdict[1:]}.", *notes] if claim["verdict"] != Verdict.HOLDS else notes
        why = f'<span class="why">{escape(" ".join(notes))}</span>' if notes else ""
        lines.append(f'<li class="{_SIGNS[Verdict(claim["verdict"])]}" title="{verdict}">{escape(claim["sentence"])}{why}</li>')
    return "\n".join([*lines, "</ul>"])


def _table(result: Result) -> str:
    rows = [
        f'<tr><td>{escape(name)}</td><td class="number">{ours}</td><td class="number">{spread}</td>'
        f'<td class="number">{papers}</td></tr>'
        for name, ours, spread, papers in markdown.figures_beside(result)
    ]
    if not rows:
        return ""
    columns = ("here", "least to largest over the seeds", "paper")
    head = "".join(f'<th class="number">{column}</th>' for column in columns)
    return f'<div class="scrolled"><table><tr><th>figure</th>{head}</tr>{"".join(rows)}</table></div>'


def _parameters(result: Result) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(markdown.parameter(value))}</td></tr>"
        for name, value in result["parameters"].items()
    )
    runs = "once" if result["runs"] == 1 else f"{result['runs']} times"
    seeds = ", ".join(map(str, result["seeds"]))
    seconds = formatting.duration(result["seconds"])
    return (
        f"<details><summary>Parameters; seeds {seeds}; repeated {runs} with each, {seconds}</summary>"
        f'<div class="scrolled"><table>{rows}</table></div></details>'
    )
