"""Prints the CustomResourceDefinition as YAML."""

from __future__ import annotations

import sys

import yaml

from streamtopology.routing.topology.crd import custom_resource_definition

HEADER = "# Written by `python -m streamtopology.routing.topology.crd`; change that, not this.\n"


def main() -> None:
    sys.stdout.write(HEADER + yaml.safe_dump(custom_resource_definition(), sort_keys=False, width=120, allow_unicode=True))


main()
