"""The table of a lookup that the driver reads again while the topology runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec, format_options
from streamtopology.jobs.connectors.sources.iceberg_catalog import CATALOG
from streamtopology.jobs.connectors.sources.path_patterns import from_folder, literal, plain
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.operators.options import OptionError, seconds_of
from streamtopology.topology import Source, did_you_mean

TABLE_OPTIONS = ("format", "refresh")
_FILES = ("csv", "json", "parquet")
_FORMATS = (*_FILES, "delta", "iceberg")
_PLACES = {"delta": ("path",), "iceberg": ("table",)}
_PLACES_OF_FILES = ("path", "pathGlobFilter", "recursiveFileLookup", "basePath")
_EVERY = "1m"


@dataclass(frozen=True)
class LookupTable:
    """source: the table, as one that is streamed would be named. every: seconds after which it is looked at again.

    declared: its columns, which no version changes.
    """

    source: Source
    every: float
    declared: pa.Schema

    @staticmethod
    def from_options(options: Mapping[str, Any], base_dir: Path) -> LookupTable | None:
        """Those of a lookup; None if its file is read once, by each executor. Raises OptionError."""
        if not set(TABLE_OPTIONS) & set(options):
            return None
        if "file" in options and "format" in options:
            raise OptionError("lookup has file and format; give it one of them: a format has its place in options", "lookup")
        given = options.get("options")
        if "file" in options:
            file = str(options["file"])
            format_ = Path(file).suffix.removeprefix(".")
            if format_ not in _FILES:
                known = ", ".join(f".{kind}" for kind in _FILES)
                raise OptionError(f"lookup file {file} is of no known kind; allowed: {known}, or lookup.format", about="lookup")
            texts = texts_of(given, format_options(format_), format_)
            texts["path"] = literal(str((base_dir / file).absolute()))
        else:
            format_ = chosen(options, "format", _FORMATS)
            places = _PLACES.get(format_, _PLACES_OF_FILES)
            texts = texts_of(given, places if format_ in _PLACES else (*places, *format_options(format_)), format_)
            if places[0] not in texts:
                raise OptionError(f"option lookup.options.{places[0]} is missing; name the place of the table", about="lookup")
            if "path" in texts:
                texts["path"] = from_folder(base_dir, texts["path"], is_pattern=format_ not in _PLACES)
        if not isinstance(schema := options.get("schema"), str):
            raise OptionError(
                f"option lookup.schema is {schema!r}, and a table that is read again declares its columns: such as 'faa "
                "STRING, lat DOUBLE'",
                about="lookup",
            )
        source = Source("lookup", format_, schema, texts)
        try:
            every = seconds_of(options.get("refresh", _EVERY), "lookup.refresh")
            return LookupTable(source, every, declared_schema(SourceSpec.of(source)))
        except (SourceError, OptionError) as error:
            raise OptionError(str(error), about="lookup") from error

    @property
    def place(self) -> str:
        options = self.source.options
        return f"lookup table {options.get('table') or plain(options['path'])}"

    @property
    def digest(self) -> str:
        """Letters that say what is read, and as which columns."""
        what = (self.source.format, self.source.schema, sorted(self.source.options.items()))
        return hashlib.blake2b(repr(what).encode(), digest_size=8).hexdigest()


def chosen(options: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    """The value of an option of a lookup, which must be one of `allowed`. Raises OptionError."""
    if (value := options[name]) not in allowed:
        raise OptionError(f"option lookup.{name} is {value!r}; allowed: {', '.join(allowed)}", about="lookup")
    return str(value)


def texts_of(given: Any, known: tuple[str, ...], kind: str) -> dict[str, str]:
    """The options of a file or table of this kind, which has the `known` ones; of a csv file by default with a header."""
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"option lookup.options is {given!r}; allowed: a mapping such as {{sep: ';'}}", about="lookup")
    texts = {"header": "true"} if kind == "csv" else {}
    for name, value in (given or {}).items():
        if name not in known and not (kind == "iceberg" and str(name).startswith(CATALOG)):
            has = f"a {kind} {'table' if kind in _PLACES else 'file'} has {', '.join(known) or 'none'}"
            raise OptionError(f"unknown option lookup.options.{name}; {has}{did_you_mean(str(name), known)}", about="lookup")
        if not isinstance(value, (str, bool)):
            raise OptionError(f"option lookup.options.{name} is {value!r}; allowed: a text, in quotes", about="lookup")
        texts[str(name)] = str(value).lower() if isinstance(value, bool) else value
    return texts
