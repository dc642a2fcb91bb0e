"""Runs a benchmark by name, prints its table and writes its JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamtopology.jobs.cli.parameters import FAILURE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.bench.catalog import BENCHMARKS


def run_bench(name: str, json_file: Path | None, options: Mapping[str, int | bool | str | tuple[int, ...]]) -> int:
    """Run a benchmark; returns the exit code: 1 when it counts its rows and some were lost or counted twice.

    WrongUse: a package is missing, or the surroundings are not those that the benchmark needs.
    """
    try:
        result = importlib.import_module(f"streamtopology.lab.bench.{name}").run(**options)
    except ModuleNotFoundError as missing:
        extra = BENCHMARKS[name].extra
        if extra is None:
            raise
        raise WrongUse(f"bench {name} needs the package {missing.name}: pip install 'streamtopology-lab[{extra}]'") from missing
    print(table(result))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    return FAILURE if any(result.get("check", {}).values()) else SUCCESS


def table(result: Mapping[str, Any]) -> str:
    """The results as a table for a terminal: a line a case, with its ratios to other cases."""
    lines = [f"{result['name']} on {result['machine']}"]
    for row in result["results"]:
        ratios = "  ".join(f"{ratio:.2f}x {case}" for case, ratio in row.get("ratio_to", {}).items())
        figures = f"{row['min']:>12.4g} {row['median']:>12.4g} {row['max']:>12.4g}"
        lines.append(f"  {row['case']:34} {row['metric']:18} {figures} {row['unit']:10} {ratios}")
    return "\n".join(lines)
