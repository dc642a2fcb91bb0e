"""The life of a source's folder at random: files written, hidden, removed, mended and moved between batches.

The reference is slow and plain: what each file holds is known because it was written here, and the rules of Spark's file
sources for names are one function, `is_seen`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.topology import Source
from support.streams import Stream, rows_of

COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string())])
DDL = "n BIGINT, text STRING"
PARTITIONS = {"day": "DATE", "city": "STRING"}
TEXTS = (
    "a",
    "",
    " x ",
    "07102",
    "1E5",
    "NULL",
    "null",
    "NaN",
    "true",
    "é",
    "e\u0301",
    "日本",
    "a,b",
    "a;b",
    "#",
    "'",
    "%41",
    "\t",
)
NAMES = ("part 1", "a[1]", "b{2}", "größe", "日本", "c=d", "e,f", "100%", "%41", "part-00000", "x.y.z", "a_b", "~", "+", "a\\b")
HIDDEN = ("_SUCCESS", ".part-0", "_part-1", "draft._COPYING_", "._SUCCESS.crc")
FOLDERS = {
    "day": ("day=2024-01-31", "day=0001-01-01", "day=__HIVE_DEFAULT_PARTITION__"),
    "city": ("city=Köln%2FS", "city=a b", "city=07102", "city=__HIVE_DEFAULT_PARTITION__", "city=a%3Db"),
}
OTHER_FOLDERS = ("_manifest", ".git", "_temporary", "old", "batch-000000001")
PACKED: Mapping[str, Callable[[bytes], bytes]] = {"gz": partial(gzip.compress, mtime=0), "bz2": bz2.compress}
ROWS = tuple[tuple[Any, ...], ...]


def is_seen(path: str, is_deep: bool) -> bool:
    """True for a path below the source's folder that Spark's file sources read."""
    *folders, name = path.split("/")
    for part in [*folders, name]:
        if part.startswith(".") or part.endswith("._COPYING_") or (part.startswith("_") and "=" not in part):
            return False
    return is_deep or not folders or ("=" in folders[0] and not folders[0].startswith("=") and not folders[0].endswith("="))


class FolderLife:
    """A folder and its reader. Each `step` changes the folder or starts the reader again; `differences` compares.

    A change to a file that was handed out changes no rows: like Spark, a source reads each path once.
    """

    def __init__(self, seed: int, here: Path) -> None:
        self._random = Random(seed)
        self._home = here / "one"
        self._format = self._random.choice(("parquet", "json", "csv"))
        self._options = self._drawn_options()
        self._is_deep = self._options.get("recursiveFileLookup") == "true"
        layouts = ((),) if self._is_deep else ((), ("day",), ("city",), ("day", "city"))
        self._layout: tuple[str, ...] = self._random.choice(layouts)
        self._files: dict[str, ROWS] = {}
        self._handed_out: set[str] = set()
        self._number = 0
        self._ddl = ", ".join([DDL, *(f"{column} {PARTITIONS[column]}" for column in self._layout)])
        self.story = [f"{self._format} {self._options}"]
        self._root.mkdir(parents=True)
        self._start()
        self._position: dict[str, Any] = {}

    @property
    def _root(self) -> Path:
        return self._home / "in"

    def _drawn_options(self) -> dict[str, str]:
        options = {
            "recursiveFileLookup": self._random.choice(("true", "false")),
            "maxFilesPerTrigger": self._random.choice(("1", "3", "1000")),
            "encoding": self._random.choice(("UTF-8", "ISO-8859-1", "US-ASCII")),
            "header": self._random.choice(("true", "false")),
            "sep": self._random.choice((",", ";", "|")),
        }
        kept = tuple(options)[: {"parquet": 2, "json": 3, "csv": 5}[self._format]]
        return {name: options[name] for name in kept if self._random.random() < 0.6}

    def _start(self) -> None:
        """Start the reader, as after a restart: it knows the log of files and the last offset."""
        self._spec = SourceSpec.of(Source("s", self._format, self._ddl, {"path": str(self._root), **self._options}))
        self._stream = Stream(self._home / "log", self._spec)

    def step(self) -> None:
        """Do one thing to the folder or the reader."""
        deeds = (self._write, self._write, self._write, self._remove, self._mend, self._hide, self._move, self._restart)
        self._random.choice(deeds)()

    def differences(self) -> list[str]:
        """Read until nothing is new, and compare with the files that are seen now; each batch reads the same again."""
        wanted = Counter[tuple[Any, ...]]()
        for path in sorted(self._files.keys() - self._handed_out):
            if is_seen(path, self._is_deep):
                wanted.update(self._rows_of(path))
                self._handed_out.add(path)
        found, differences = Counter[tuple[Any, ...]](), list[str]()
        while True:
            descriptors, end = self._stream.read(self._position)
            if end == self._position:
                break
            rows = rows_of(descriptors, self._spec)
            if rows_of(self._stream.replay(self._position, end), self._spec) != rows:
                differences.append(f"batch to {end} has other rows when it is read again")
            found.update(tuple(row.values()) for row in rows)
            self._position = end
        differences += [f"missing: {row}" for row in (wanted - found).elements()]
        differences += [f"surplus: {row}" for row in (found - wanted).elements()]
        return differences

    def rows_now(self) -> Counter[tuple[Any, ...]]:
        """The rows of all files that are seen now."""
        seen = (path for path in self._files if is_seen(path, self._is_deep))
        return Counter(row for path in seen for row in self._rows_of(path))

    def rows_in_spark(self, spark: SparkSession) -> Counter[tuple[Any, ...]] | None:
        """The same, as Spark reads the folder in one batch; None where it refuses partitions next to other folders."""
        must_say = {"lineSep": "\n"} if self._format == "json" and self._encoding != "UTF-8" else {}  # Spark wants to know
        try:
            options = {**self._options, **must_say}
            frame = spark.read.format(self._format).schema(self._ddl).options(**options).load(str(self._root))
            return Counter(tuple(row) for row in frame.collect())
        except SparkRuntimeException as error:
            if error.getCondition() != "CONFLICTING_DIRECTORY_STRUCTURES":
                raise
            return None

    # What happens to a folder ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        folders = [self._random.choice(FOLDERS[column]) for column in self._layout]
        if self._random.random() < 0.2:
            folders.insert(self._random.choice((0, len(folders))), self._random.choice(OTHER_FOLDERS))
        self._number += 1
        packed = self._random.choice(("", "", ".gz", ".bz2")) if self._format != "parquet" else ""
        name = f"{self._random.choice(NAMES)}-{self._number}.{self._format}{packed}"
        self._put("/".join([*folders, name]), self._drawn_rows())

    def _hide(self) -> None:
        self._put(self._random.choice(HIDDEN), self._drawn_rows())

    def _mend(self) -> None:
        """Replace a file that is not handed out yet, or touch one that is: only the first changes rows."""
        if path := self._any_file():
            self._put(path, self._drawn_rows() if path not in self._handed_out else self._files[path])

    def _remove(self) -> None:
        if path := self._any_file():
            self.story.append(f"remove {path}")
            (self._root / path).unlink()
            del self._files[path]

    def _move(self) -> None:
        """Move folder and checkpoint to another mount."""
        home = self._home.with_name(f"{self._home.name}+")
        self.story.append(f"move to {home.name}")
        self._home.rename(home)
        self._home = home
        self._start()

    def _restart(self) -> None:
        self.story.append("restart")
        self._start()

    def _any_file(self) -> str | None:
        return self._random.choice(sorted(self._files)) if self._files else None

    def _put(self, path: str, rows: ROWS) -> None:
        self.story.append(f"write {path}: {rows}")
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        (self._root / path).write_bytes(parquet_bytes(rows) if self._format == "parquet" else self._text_bytes(path, rows))
        self._files[path] = rows

    def _text_bytes(self, path: str, rows: ROWS) -> bytes:
        """The rows in the source's encoding, packed as the file's name says; ends of lines and quotes go by the name, too."""
        form = Random(path)
        if self._format == "json":
            lines = json_lines(rows)
        else:
            options, quotes = self._options, form.random() < 0.3
            lines = csv_lines(rows, options.get("sep", ","), options.get("header") == "true", quotes)
        end = form.choice(("\n", "\n", "\r\n"))
        written = "".join(f"{line}{end}" for line in lines).encode(self._encoding)
        return PACKED.get(path.rpartition(".")[2], bytes)(written)

    @property
    def _encoding(self) -> str:
        return self._options.get("encoding", "UTF-8")

    def _drawn_rows(self) -> ROWS:
        count = self._random.choice((0, 1, 2, 5)) if self._format == "parquet" else self._random.choice((1, 2, 5))
        numbers = (0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1)
        texts = [text for text in TEXTS if text or self._format != "csv"]  # Spark reads a quoted empty text as NULL
        texts = [text for text in texts if is_spelt(text, self._encoding)]
        return tuple((self._random.choice(numbers), self._random.choice(texts)) for _ in range(count))

    def _rows_of(self, path: str) -> list[tuple[Any, ...]]:
        """The rows of a file with the values of its folders."""
        named = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        values = tuple(partition_value(column, named[column]) for column in self._layout)
        return [(*row, *values) for row in self._files[path]]


def partition_value(column: str, written: str) -> Any:
    """The value that a folder's name says, as it was drawn."""
    if written == "__HIVE_DEFAULT_PARTITION__":
        return None
    return date.fromisoformat(written) if column == "day" else unquote(written)


def parquet_bytes(rows: Sequence[Sequence[Any]]) -> bytes:
    out = io.BytesIO()
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(COLUMNS)]
    pq.write_table(pa.table(columns, COLUMNS), out, row_group_size=2)
    return out.getvalue()


def is_spelt(text: str, encoding: str) -> bool:
    """True if the encoding has all characters of the text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def json_lines(rows: Sequence[Sequence[Any]]) -> list[str]:
    return [json.dumps({"n": n, "text": text}, ensure_ascii=False) for n, text in rows]


def csv_lines(rows: Sequence[Sequence[Any]], sep: str, has_header: bool, quotes: bool) -> list[str]:
    """As Spark writes it: texts with a separator are quoted, or all of them."""
    lines = [sep.join(COLUMNS.names)] if has_header else []
    return lines + [f'{n}{sep}"{text}"' if quotes or sep in text else f"{n}{sep}{text}" for n, text in rows]
