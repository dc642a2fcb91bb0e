"""Write the chart's README: a table of its values from `values.yaml`, whose comments are in the form of helm-docs (`# --`).

`make reference` runs it; `tests/test_chart_values.py` fails while the page differs from what this script would write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "streamtopology"
_KEY = re.compile(r"( *)([A-Za-z]\w*):")

_HEAD = """\
# streamtopology

{description}.

Generated from `values.yaml` by `make reference`. [Install](../../docs/run/install.md) explains the important values,
[upgrade](../../docs/run/upgrade.md) the CRD, [platforms](../../docs/run/platforms.md) what differs between clusters.

```
helm install streamtopology charts/streamtopology -n streamtopology --create-namespace --wait
helm test streamtopology -n streamtopology --logs
```

## Values

| value | default | |
| --- | --- | --- |
"""


@dataclass(frozen=True)
class Value:
    """A value with its path, the comment on it in `values.yaml`, and its default."""

    path: str
    comment: str
    default: object


def documented(text: str) -> Iterator[Value]:
    """Yield each key below a `# --` comment. Keys of a mapping that has a comment of its own are its default."""
    defaults: Any = yaml.safe_load(text)
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("# ") and comment:
            comment.append(stripped.removeprefix("# "))
        elif found := _KEY.match(line):
            indent = len(found[1])
            above = [*((depth, key) for depth, key in above if depth < indent), (indent, found[2])]
            if comment:
                keys = [key for _, key in above]
                yield Value(".".join(keys), " ".join(comment), _at(defaults, keys))
            comment = []


def _at(values: Any, keys: list[str]) -> object:
    for key in keys:
        values = values[key]
    return values


def readme(chart: Path = CHART) -> str:
    """The page: description and table."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    found = documented((chart / "values.yaml").read_text(encoding="utf-8"))
    return _HEAD.format(**about) + "".join(_row(value) for value in found)


def _row(value: Value) -> str:
    comment = value.comment.replace("|", "\\|")
    return f"| `{value.path}` | `{json.dumps(value.default)}` | {comment} |\n"


if __name__ == "__main__":
    (CHART / "README.md").write_text(readme(), encoding="utf-8")
    print("wrote charts/streamtopology/README.md")
