"""Benchmarks that anyone can run again: `streamtopology bench NAME`. A benchmark is a module with `run(runs) -> dict`."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BENCHMARKS: Mapping[str, str] = {
    "kernels": "hashing, table lookup and choosers, beside numpy take",
    "planners": "how long a plan takes, from 10 thousand to 1 million keys",
    "locality": "a locality plan of 150,000 key pairs, beside METIS alone",
    "dataplane": "two chained stateful operators, against Spark's own row exchange",
    "latency": "1,000 rows a batch, against a foreachBatch with one pinned Python stage",
    "startup": "from `streamtopology run` to the first batch on four executors, beside plain Spark's start",
    "heterogeneous": "one executor of four at 30 %: re-routing against fields, and against plain Spark",
    "rescale": "one executor more and one fewer under a running topology",
    "chaos": "kill -9 of everything while it is re-routed: nothing lost, nothing counted twice (--seed, --kills)",
    "recovery": "kill -9 of an executor with a million keys, and of the driver: seconds to the next commit (--keys)",
    "migrate": "state copied ahead of a re-routing: what is read and written, and the switching batch (--keys)",
    "reconfigure": "moving a tenth of a million keys: when, and how long the switching batch takes",
}


def run_bench(name: str, json_file: Path | None, options: Mapping[str, int]) -> int:
    """Run a benchmark, print its table, write its JSON; 2 when there is none of that name, or it has no such option.

    1 when it counts its rows and some were lost or counted twice.
    """
    if name not in BENCHMARKS:
        print(f"there is no benchmark {name!r}; there are:")
        for known, what in BENCHMARKS.items():
            print(f"  {known:14} {what}")
        return 2
    run = importlib.import_module(f"streamtopology.jobs.bench.{name}").run
    known = inspect.signature(run).parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        print(f"bench {name} has no option --{unknown[0]}; it has: {', '.join(f'--{option}' for option in known)}")
        return 2
    result = run(**options)
    print(table(result))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    return int(any(result.get("check", {}).values()))


def table(result: Mapping[str, Any]) -> str:
    """The results as a table for a terminal: a line a case, with its ratios to other cases."""
    lines = [f"{result['name']} on {result['machine']}"]
    for row in result["results"]:
        ratios = "  ".join(f"{ratio:.2f}x {case}" for case, ratio in row.get("ratio_to", {}).items())
        figures = f"{row['min']:>12.4g} {row['median']:>12.4g} {row['max']:>12.4g}"
        lines.append(f"  {row['case']:34} {row['metric']:18} {figures} {row['unit']:10} {ratios}")
    return "\n".join(lines)
