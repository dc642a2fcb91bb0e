"""Prints the CustomResourceDefinition as YAML, or with `admission` the admission policy beside it."""

from __future__ import annotations

import sys

import yaml

from streamtopology.routing.topology.crd import custom_resource_definition
from streamtopology.routing.topology.crd.admission import admission_policy


def main(arguments: list[str]) -> None:
    objects = admission_policy() if arguments == ["admission"] else [custom_resource_definition()]
    sys.stdout.write("# Written by `make crds` from routing/topology/crd; change that, not this.\n")
    yaml.safe_dump_all(objects, sys.stdout, sort_keys=False, width=120, allow_unicode=True)


main(sys.argv[1:])
