"""Examples of commands, for `--help` and for the reference: each is parsed by a test."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.jobs.documentation import address

_PAGE = "reference/command-line"

# The command behind `streamtopology` -> calls of it, as a user types them.
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": (
        "streamtopology init data/trips",
        "streamtopology try trips.yaml",
        "streamtopology run trips.yaml --report build/trips",
        "streamtopology apply trips.yaml",
        "streamtopology stop trips",
    ),
    "run": (
        "streamtopology run trips.yaml",
        "streamtopology run trips.yaml --duration 10m --report build/trips",
        "streamtopology run trips.yaml --batches 40 --baseline fields",
    ),
    "validate": ("streamtopology validate trips.yaml",),
    "try": ("streamtopology try trips.yaml", "streamtopology try trips.yaml --rows 50"),
    "init": (
        "streamtopology init data/trips",
        "streamtopology init 'data/*.csv' --key driver -o trips.yaml",
        "streamtopology init purchases --servers localhost:9092",
    ),
    "new-operator": ("streamtopology new-operator SessionLength",),
    "plan": (
        "streamtopology plan trips.yaml",
        "streamtopology plan trips.yaml --stats http://127.0.0.1:4041/stats",
    ),
    "apply": ("streamtopology apply trips.yaml",),
    "resize": ("streamtopology resize small --cpu 300m",),
    "scale": ("streamtopology scale large --replicas 3",),
    "stop": ("streamtopology stop", "streamtopology stop trips --drain"),
    "top": ("streamtopology top", "streamtopology top trips -n streams"),
    "explain": (
        "streamtopology explain",
        "streamtopology explain trips -n streams --epoch 4",
        "streamtopology explain http://127.0.0.1:4041 --json",
    ),
    "ui": ("streamtopology ui", "streamtopology ui trips -n streams", "streamtopology ui --report build/trips"),
    "state": ("streamtopology state get trips.yaml d17", "streamtopology state check trips.yaml"),
    "state get": ("streamtopology state get trips.yaml d17", "streamtopology state get trips.yaml NULL --operator totals"),
    "state clone": ("streamtopology state clone trips.yaml file:///backup/trips",),
    "state rollback": ("streamtopology state rollback trips.yaml --to 41",),
    "state skip-file": ("streamtopology state skip-file trips.yaml data/trips/2013-05.parquet",),
    "state export-batch": ("streamtopology state export-batch trips.yaml --sink totals --to totals-left-out",),
    "state list": ("streamtopology state list",),
    "state delete": ("streamtopology state delete trips.yaml",),
    "state watermark": (
        "streamtopology state watermark trips.yaml",
        "streamtopology state watermark trips.yaml --set 2026-11-23T12:00:00Z",
    ),
    "state check": ("streamtopology state check trips.yaml",),
    "arena": ("streamtopology arena nexmark --events 1000000 --runs 1",),
    "arena keyed": (
        "streamtopology arena keyed --skew 1",
        "streamtopology arena keyed --skew 1 --change moved --engine streamtopology --engine flink",
    ),
    "arena nexmark": (
        "streamtopology arena nexmark --query q5 --query q7",
        "streamtopology arena nexmark --events 100000 --runs 1 --engine flink",
    ),
    "arena shufflebench": ("streamtopology arena shufflebench --skew 1 --engine streamtopology --engine flink",),
    "arena switch": (
        "streamtopology arena switch --bootstrap 127.0.0.1:9092",
        "streamtopology arena switch --lives 1 --event move --engine streamtopology",
    ),
    "bench": ("streamtopology bench kernels --json kernels.json",),
    "demo": ("streamtopology demo --batches 20",),
    "nexmark": (
        "streamtopology nexmark build/nexmark",
        "streamtopology nexmark build/nexmark --events 20000000 --files 50 --hot-auction-ratio 10",
    ),
    "reproduce": (
        "streamtopology reproduce dkg-k --quick",
        "streamtopology reproduce cg-hetero --seeds 1 --set slot=15000",
        "streamtopology reproduce all --report build/papers",
    ),
    "sample-data": ("streamtopology sample-data build/data/flights --files 10",),
    "simulate": (
        "streamtopology simulate trips.yaml --zipf 1.4 --keys totals=20000",
        "streamtopology simulate trips.yaml --trace data/trips",
    ),
    "simulate-faults": ("streamtopology simulate-faults --seed 1 --histories 200",),
}


def epilog(path: str, after: str = "") -> str | None:
    """The end of the help of the command `path`: its examples, its page, then `after`; None for one without examples."""
    if path not in EXAMPLES:
        return None
    lines = "\n".join(f"  {example}" for example in EXAMPLES[path])
    return "\n\n".join(part for part in (f"\b\nExamples:\n{lines}", f"\b\nDocumentation: {_link(path)}", after) if part)


def _link(path: str) -> str:
    """The address of the documentation of the command `path`."""
    return address(_PAGE, f"#{'-'.join(['streamtopology', *path.split()])}" if path else "")
