"""The text of a first manifest: what `init` found, with a comment for each choice."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import yaml

from streamtopology.jobs.columnar.expressions import quoted
from streamtopology.jobs.documentation import address
from streamtopology.jobs.scaffold.choice import ManifestChoice
from streamtopology.jobs.scaffold.column_names import in_ascii
from streamtopology.jobs.scaffold.event_time import EventTime
from streamtopology.jobs.scaffold.key_report import key_comment
from streamtopology.jobs.scaffold.machine import Executors
from streamtopology.jobs.scaffold.sample import Sample
from streamtopology.topology.limits import LONGEST_TOPOLOGY_NAME
from streamtopology.topology.schema import to_ddl

# Rows of a batch: small enough that routing can change every few seconds.
BATCH_ROWS = 100_000
# Batches of a small folder, if it has as many files: with one there is nothing to see.
LEAST_BATCHES = 10
# Columns that are passed on where there is no key.
MOST_COLUMNS = 6
# Columns that the schema declares of files with more.
MOST_DECLARED = 20
# Notes in the manifest's head; all of them are printed.
MOST_NOTES = 5
# Columns of a line, where it can be broken.
_WIDTH = 110
_LONGEST_DELAY = 366 * 24 * 3600
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600}


def topology_name(place: str) -> str:
    """A topology's name for a path or a topic.

    >>> topology_name("data/NYC Taxi 2024/*.parquet"), topology_name("2024.csv"), topology_name("///")
    ('nyc-taxi-2024', 'data-2024', 'data')
    >>> topology_name("Verkäufe.csv")
    'verkaeufe'
    """
    parts = [part for part in re.split(r"[/\\]+", place) if part not in ("", ".", "..") and "*" not in part]
    stem = re.sub(r"\.(\w{1,8})(\.gz|\.zst|\.bz2)?$", "", parts[-1]) if parts else ""
    label = re.sub(r"[^a-z0-9]+", "-", in_ascii(stem).lower()).strip("-")
    if not label[:1].isalpha():
        label = f"data-{label}".rstrip("-")
    return label[: LONGEST_TOPOLOGY_NAME - 10].rstrip("-")


def manifest_text(
    name: str, sample: Sample, choice: ManifestChoice, executors: Executors, command: str, sink_path: str = ""
) -> str:
    """The manifest, ready to run with `command`; its sink is `sink_path`, or else `out/name`."""
    return "\n".join(_lines(name, sample, choice, executors, command, sink_path)) + "\n"


def _lines(
    name: str, sample: Sample, choice: ManifestChoice, executors: Executors, command: str, sink_path: str
) -> Iterator[str]:
    yield from _head(sample, command)
    yield from ["apiVersion: streamtopology.dev/v1alpha1", "kind: StreamTopology", f"metadata: {{name: {name}}}", "spec:"]
    yield from _source(sample, choice)
    yield ""
    yield from _operator(sample, choice, executors)
    yield ""
    yield from [
        "  sinks:",
        "    - name: results",
        f"      input: {_operator_name(choice)}",
        "      format: parquet                # a file a batch: of a key that changed again, the newest row holds",
        f"      options: {{path: {sink_path or f'out/{name}'}}}",
        "",
        "  executors:                         # equal here; classes of other sizes may be added",
        f"    - {{name: worker, replicas: {executors.replicas}, cpu: {executors.millicores}m, memory: 1Gi}}",
        "  rebalance: {interval: 5s}          # how often the routing is judged",
    ]
    if sample.format != "kafka":
        yield "  trigger: {availableNow: true}      # stop at the end of the data; remove it to wait for new files"


def _head(sample: Sample, command: str) -> Iterator[str]:
    yield f"# Written by `streamtopology init DATA` from a sample: {_one_line(sample.title)}."
    for note in sample.notes[:MOST_NOTES]:
        yield f"# {_one_line(note)}"
    if len(sample.notes) > MOST_NOTES:
        yield f"# and {len(sample.notes) - MOST_NOTES} more: `init` prints all of them"
    yield "#"
    yield f"# Run it:  {command}"
    yield f"# Paths are relative to the folder in which you run it. Each field: {address('guide/manifest')}"


def _source(sample: Sample, choice: ManifestChoice) -> Iterator[str]:
    yield "  sources:"
    yield "    - name: rows"
    yield f"      format: {sample.format}"
    if sample.declared:
        yield from _schema(sample, used_columns(sample, choice))
    options = [f"{scalar(option)}: {_plain_value(value)}" for option, value in _options(sample).items()]
    on_one_line = f"      options: {{{', '.join(options)}}}"
    yield from [on_one_line] if len(on_one_line) <= _WIDTH else ["      options:", *(f"        {option}" for option in options)]
    select = _select(sample, choice)
    if select:
        yield "      select:                        # the columns that are used, under names that options take"
        for column, expression in select.items():
            yield from (f"        # {line}" for line in _wrapped(sample.remarks.get(column, "")))
            yield f"        - {scalar(expression)}"
    if sample.where:
        yield f"      where: {scalar(sample.where)}"
    if choice.time:
        delay, unit = _delay(choice.time), f" ({choice.time.unit} since 1970)" if choice.time.unit else ""
        yield f"      watermark: {{column: {choice.time.column}, delay: {delay}}}   # event time{unit}; older rows are late"


def _schema(sample: Sample, used: Sequence[str]) -> Iterator[str]:
    """The schema on one line, or folded: a line break of the folded form is a space."""
    declared = _declared(sample, used)
    if len(declared) < len(sample.declared):
        yield f"      # {len(sample.declared) - len(declared):,} more columns are in the files: add those that you need"
    columns = [to_ddl([column]) for column in declared]
    whole = f"      schema: {scalar(', '.join(columns))}"
    if len(whole) <= _WIDTH or not all(column.isprintable() for column in columns):
        yield whole
        return
    yield "      schema: >-"
    line = "       "
    for place, column in enumerate(columns):
        piece = f" {column}{',' if place < len(columns) - 1 else ''}"
        if line.strip() and len(line) + len(piece) > _WIDTH:
            yield line
            line = "       "
        line += piece
    yield line


def _declared(sample: Sample, used: Sequence[str]) -> list[tuple[str, str]]:
    """The columns to declare, in the order of the files: of very many, those that are `used` and the first others."""
    by_name = sample.format != "csv" or "header" in sample.options
    if not by_name or len(sample.declared) <= MOST_DECLARED:
        return list(sample.declared)
    expressions = [sample.expressions.get(column) or quoted(column) for column in used]
    needed = [column for column in sample.declared if any(quoted(column[0]) in sql for sql in expressions)]
    others = [column for column in sample.declared if column not in needed]
    kept = [*needed, *others[: MOST_DECLARED - len(needed)]]
    return [column for column in sample.declared if column in kept]


def _plain_value(value: str | int | bool) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else scalar(value)


def _options(sample: Sample) -> dict[str, str | int | bool]:
    if sample.format == "kafka":
        return {**sample.options, "maxOffsetsPerTrigger": BATCH_ROWS}
    by_rows = BATCH_ROWS // max(1, sample.rows_per_part)
    return {**sample.options, "maxFilesPerTrigger": max(1, min(by_rows, sample.parts // LEAST_BATCHES))}


def used_columns(sample: Sample, choice: ManifestChoice) -> list[str]:
    """The columns that the operator uses, under their plain names."""
    used: list[str] = [choice.key.column] if choice.key else sample.table.column_names[:MOST_COLUMNS]
    used += [choice.time.column] if choice.time else []
    return list(dict.fromkeys([*used, *choice.measures]))


def _select(sample: Sample, choice: ManifestChoice) -> dict[str, str]:
    """The expression of each used column; empty if all are declared under their names."""
    used = used_columns(sample, choice)
    expressions = {column: _expression(sample, choice, column) for column in used}
    return expressions if any(expressions[column] != quoted(column) for column in used) else {}


def _expression(sample: Sample, choice: ManifestChoice, column: str) -> str:
    given = sample.expressions.get(column) or quoted(column)
    if choice.time is None or choice.time.column != column:
        return given
    inner = given.removesuffix(f" AS {column}")
    converted = choice.time.converted(inner, sample.table.schema.field(column).type)
    return given if converted == inner else f"{converted} AS {column}"


def _operator(sample: Sample, choice: ManifestChoice, executors: Executors) -> Iterator[str]:
    if choice.key is None:
        yield from _without_key(sample, choice)
        return
    yield "  operators:"
    yield from (f"    # {_one_line(line)}" for line in key_comment(choice))
    too_heavy = choice.key.heaviest > 1 / executors.replicas
    why = "one key alone is too heavy for an executor: divided" if too_heavy else "heavy keys get a place of their own"
    yield "    - name: totals"
    yield "      inputs: [rows]"
    yield f"      grouping: {{policy: auto, key: {scalar(choice.key.column)}}}   # {why}"
    calls = _calls(choice)
    if not calls:
        yield "      run: count                     # one row for each key that a batch changes"
    else:
        yield "      run: aggregate                 # running figures; one row for each key that a batch changes"
        yield from ["      with:", "        aggregates:", *(f"          {result}: {call}" for result, call in calls)]
    if choice.time:
        yield from _window(choice.time, calls)


def _window(time: EventTime, calls: list[tuple[str, str]]) -> Iterator[str]:
    """Figures by windows of event time, as a comment."""
    inner = ", ".join(f"{result}: {call}" for result, call in calls[:2] if call.partition("(")[0] != "max") or "rows: count()"
    yield "    # By windows of event time, each emitted once: in place of run and with above, uncomment"
    yield "    #   run: window-aggregate"
    yield f"    #   with: {{time: {time.column}, size: 1h, aggregates: {{{inner}}}}}"


def _without_key(sample: Sample, choice: ManifestChoice) -> Iterator[str]:
    yield "  operators:"
    yield from (f"    # {_one_line(line)}" for line in key_comment(choice))
    yield "    - name: rows-as-they-are"
    yield "      inputs: [rows]"
    yield "      # no grouping, as there is no key: any executor takes any row"
    yield "      run: map"
    yield "      with:"
    yield "        select:"
    yield from (f"          - {scalar(quoted(column))}" for column in sample.table.column_names[:MOST_COLUMNS])
    more = sample.table.num_columns - MOST_COLUMNS
    if more > 0:
        yield f"          # {more:,} more columns: add those that you need, here and in the source's select"


def _operator_name(choice: ManifestChoice) -> str:
    return "totals" if choice.key else "rows-as-they-are"


def _calls(choice: ManifestChoice) -> list[tuple[str, str]]:
    """(result column, call) of the aggregates; no two results alike, none like the key."""
    if not choice.measures and choice.time is None:
        return []
    wanted = [("rows", "count()")]
    for column in choice.measures:
        wanted += [(f"total_{column}", f"sum({column})"), (f"mean_{column}", f"mean({column})")]
    if choice.time:
        wanted.append(("latest", f"max({choice.time.column})"))
    taken = [choice.key.column] if choice.key else []
    names = _distinct([*taken, *(name for name, _ in wanted)])[len(taken) :]
    return [(name, call) for name, (_, call) in zip(names, wanted, strict=True)]


def _distinct(names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        while name.lower() in {known.lower() for known in found}:
            name += "_"
        found.append(name)
    return found


def _delay(time: EventTime) -> str:
    """The disorder of the sample, rounded up to a duration of one unit; at least 10 s, at most a year."""
    seconds = min(max(10, math.ceil(time.disorder_seconds * 1.2)), _LONGEST_DELAY)
    unit = "s" if seconds < 120 else "m" if seconds < 7200 else "h"
    return f"{math.ceil(seconds / _SECONDS_OF[unit])}{unit}"


def scalar(value: str | bool) -> str:
    """`value` as YAML on one line, quoted where it would else be read as something else.

    >>> scalar("data/trips"), scalar("no"), scalar("a: b"), scalar(True)
    ('data/trips', '"no"', '"a: b"', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if re.fullmatch(r"[A-Za-z_][\w./()-]*", value, re.ASCII) and yaml.safe_load(value) == value:
        return value
    if '"' in value and "'" not in value and value.isascii() and value.isprintable():
        return f"'{value}'"
    return yaml.dump(value, default_style='"', allow_unicode=True, width=math.inf).strip()


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(_one_line(text), _WIDTH - 10, break_long_words=False, break_on_hyphens=False)


def _one_line(text: str) -> str:
    """`text` as part of a comment."""
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))
