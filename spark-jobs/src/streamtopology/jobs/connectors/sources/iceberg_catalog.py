"""The catalogue of Iceberg's tables, as options of a source or a sink name it. Loads pyiceberg only when it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamtopology.jobs.connectors.sources.descriptors import local_path
from streamtopology.jobs.variables import MissingVariable, with_variables

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG = "catalog."
_TYPES = ("sql", "rest")
_LOCAL_SCHEME = "file:"
# What pyiceberg asks for as its own property, though credentials come from the environment: as for all other buckets.
_OF_THE_ENVIRONMENT = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}


def open_catalog(options: Mapping[str, str]) -> Catalog:
    """The catalogue that options `catalog.*` name. Variables in them have values in the environment: MissingVariable."""
    from pyiceberg.catalog import load_catalog

    given = [(name, text) for name, text in options.items() if name.startswith(CATALOG)]
    settings = {name.removeprefix(CATALOG): with_variables(name, text, os.environ, "the driver") for name, text in given}
    for name, variables in _OF_THE_ENVIRONMENT.items():
        if known := next(filter(None, map(os.environ.get, variables)), None):
            settings.setdefault(name, known)
    warehouse = settings.get("warehouse", "")
    if settings["type"] == "sql" and (warehouse.startswith(_LOCAL_SCHEME) or "://" not in warehouse):
        settings["warehouse"] = local_path(warehouse)  # for readers in other working directories
    return load_catalog(settings.pop("name", "default"), **settings)


def unset_variable(option: str, value: str) -> str | None:
    """A sentence on a variable in an option of the catalogue that this environment does not have."""
    try:
        with_variables(option, value, os.environ, "the driver")
    except MissingVariable as missing:
        return str(missing)
    return None


def _table_name(value: str) -> str | None:
    parts = value.split(".")
    return None if len(parts) > 1 and all(part.strip() for part in parts) else "must be NAMESPACE.NAME"


def _catalog_type(value: str) -> str | None:
    return None if value in _TYPES else f"must be {' or '.join(_TYPES)}"


# Option -> None or a clause about a value that is wrong.
CHECKS: Mapping[str, Callable[[str], str | None]] = {"table": _table_name, "catalog.type": _catalog_type}
