"""Text files as UTF-8, whatever their encoding and compression, in blocks of whole lines; what is no text is an error."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.stored_files import READ_AHEAD, opened

READ_BYTES = 1 << 20
# Bytes; Arrow counts in 32 bits.
_LONGEST_LINE = 1 << 30
# Codecs of Python that write characters as other characters, and can make halves of characters of them.
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7")
# Without a mark Java takes such a text for big-endian, Python for little-endian.
_NO_ORDER = ("utf-16", "utf-32")
_UTF_8, _MARK = "utf-8", "\ufeff"
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
# Those of compressed files, also of such as are refused; lz4 and snappy as Hadoop writes them are forms that only it has.
SUFFIXES = (*_CODECS, ".br", ".deflate", ".snappy", ".lzo", ".xz", ".zip")
# The first bytes of compressed data, with which no text begins.
_CONTENTS = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd"),
    ".lz4": re.compile(rb"\x04\x22\x4d\x18"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
    ".zip": re.compile(rb"PK\x03\x04"),
}


class EncodingError(SchemaMismatchError):
    """A file has bytes that are no text in the encoding of its source; the message names the line."""


class UnreadableFileError(SourceError):
    """A compressed file cannot be read to its end, or is compressed by another codec than its name says."""


def open_decompressed(path: str, place: str) -> pa.NativeFile:
    """The content of a file; its `read` raises OSError for what cannot be decompressed.

    Raises OSError and BucketError, and UnreadableFileError, which names `place`, for a codec that is not read.
    """
    suffix = os.path.splitext(path)[1].lower()
    file = opened(path, READ_AHEAD)
    head = file.peek(16)  # an object has come with this, if it is not large: each request takes a while
    said = suffix if suffix in SUFFIXES else ""
    found = next((codec for codec, begin in _CONTENTS.items() if begin.match(head)), "")
    if head and (said != found or said not in ("", *_CODECS)):
        remedy = f"end its name in {found}" if found in _CODECS else "write it with .gz, .bz2 or .zst, or as text without"
        names = f"its name says {said or 'no compression'}, its content {found or 'none that is read'}"
        raise UnreadableFileError(f"{place}: {names}; {remedy}")
    compression = _CODECS[said] if head and said else None
    if is_in_bucket(path):
        return pa.input_stream(file, compression=compression)
    file.close()
    return pa.input_stream(path, compression=compression)


def encoding_of(spec: SourceSpec) -> str:
    """Python's name of the encoding of a source's files, by the option `encoding` or `charset`. Raises SourceError."""
    given = next((spec.options[name] for name in ("encoding", "charset") if name in spec.options), "UTF-8")
    try:
        encoding = codecs.lookup(given).name
        "".encode(encoding)  # codecs such as hex make no texts
        if encoding.replace("_", "-") in _NO_ENCODINGS:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        known = "UTF-8, ISO-8859-1, windows-1252, UTF-16LE and Python's other names of encodings"
        raise SourceError(f"source {spec.name!r}: unknown encoding {given!r}; known are {known}") from error
    if encoding in _NO_ORDER:
        names = " or ".join(encoding.upper() + end for end in ("LE", "BE"))
        raise SourceError(f"source {spec.name!r}: encoding {given!r} says no order of bytes; set {names}, of Windows the first")
    return encoding


class TextStream:
    """The text of a file as UTF-8 without a byte order mark, piece by piece."""

    def __init__(self, path: str, spec: SourceSpec, place: str) -> None:
        self._encoding = encoding_of(spec)
        self._decoder = codecs.getincrementaldecoder(self._encoding)("strict")
        self._place = place
        self._lines = 0
        self._at_start = True
        self._stream = open_decompressed(path, place)

    def close(self) -> None:
        self._stream.close()

    def blocks(self, size: int) -> Iterator[bytes]:
        """Whole lines of about `size` bytes; the last may have no end. Raises SourceError for a line of more than 1 GiB."""
        gathered: list[bytes] = []
        while data := self.next_bytes():
            gathered.append(data)
            length = sum(map(len, gathered))
            if length >= size and b"\n" in data:
                whole, newline, rest = b"".join(gathered).rpartition(b"\n")
                yield whole + newline
                gathered = [rest]
            elif length > _LONGEST_LINE:
                sentence = f"line {self._lines + 1} is longer than {_LONGEST_LINE >> 30} GiB"
                raise SourceError(f"{self._place}: {sentence}; write the file with shorter lines")
        if rest := b"".join(gathered):
            yield rest

    def next_bytes(self) -> bytes:
        """Some more of the text, of whole characters; empty at its end."""
        while data := self._read():
            text = self._decode(data, final=False)
            if text:
                return text
        return self._decode(b"", final=True)

    def _read(self) -> bytes:
        try:
            return self._stream.read(READ_BYTES)
        except OSError as error:
            raise UnreadableFileError(f"{self._place}: cannot be decompressed: {error}; write the file again") from error

    def _decode(self, data: bytes, final: bool) -> bytes:
        pending, _ = self._decoder.getstate()
        if self._encoding == _UTF_8 and not pending and data.isascii():
            self._at_start = self._at_start and not data
            self._lines += data.count(b"\n")
            return data
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            line = self._lines + error.object[: error.start].count(b"\n") + 1
            before, after = error.object[: error.start], error.object[error.start :]
            around = (before.split(b"\n")[-1][-20:] + after.split(b"\n")[0][:10]).decode("latin-1")
            raise EncodingError(
                f"{self._place}: line {line} is no text in {self._encoding.upper()}: ISO-8859-1 reads it as {around!r}; "
                "set options.encoding to that of the file"
            ) from error
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(_MARK)
        whole = text.encode(_UTF_8)
        self._lines += whole.count(b"\n")
        return whole


def lines(stream: TextStream) -> Iterator[pa.StringArray]:
    r"""The lines without their ends (`\n` or `\r\n`), a value each; a last line without an end counts. Raises SourceError."""
    for block in stream.blocks(READ_BYTES):
        text = block.removesuffix(b"\n").replace(b"\r\n", b"\n").removesuffix(b"\r")
        whole = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, len(text)])), pa.py_buffer(text))
        yield pc.list_flatten(pc.split_pattern(whole, "\n")).cast(pa.string())
