"""Print the CustomResourceDefinition as YAML, of snapshots with `snapshot`, or the admission policy with `admission`."""

from __future__ import annotations

import argparse
import sys

import yaml

from streamtopology.topology.crd import custom_resource_definition
from streamtopology.topology.crd.admission import admission_policy
from streamtopology.topology.crd.snapshot import snapshot_definition


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m streamtopology.topology.crd", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("object", nargs="?", choices=("definition", "snapshot", "admission"), default="definition")
    chosen = parser.parse_args(arguments).object
    objects = {
        "definition": [custom_resource_definition()],
        "snapshot": [snapshot_definition()],
        "admission": admission_policy(),
    }[chosen]
    sys.stdout.write("# Written by `make crds` from routing/topology/crd; change that, not this.\n")
    yaml.safe_dump_all(objects, sys.stdout, sort_keys=False, width=120, allow_unicode=True)


main(sys.argv[1:])
