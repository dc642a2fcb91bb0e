"""Bytes of text files as UTF-8, whatever their encoding and compression; what is no text in it is an error."""

from __future__ import annotations

import codecs

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.text.compressed import UnreadableFileError, open_decompressed

READ_BYTES = 1 << 20
_UTF_8 = "utf-8"
# Codecs of Python that write characters as other characters, and can make halves of characters of them.
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7")
_MARK = "\ufeff"
# Without one, Java takes the text for big-endian, and Spark cuts its lines within characters.
_MARKS = {"utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)}


class EncodingError(SchemaMismatchError):
    """A file has bytes that are no text in the encoding of its source; the message names the line."""


def encoding_of(spec: SourceSpec) -> str:
    """Python's name of the encoding of a source's files, by the option `encoding` or `charset`. Raises SourceError."""
    given = next((spec.options[name] for name in ("encoding", "charset") if name in spec.options), "UTF-8")
    try:
        encoding = codecs.lookup(given).name
        "".encode(encoding)  # codecs such as hex make no texts
        if encoding.replace("_", "-") in _NO_ENCODINGS:
            raise LookupError(encoding)
    except (LookupError, ValueError) as error:
        known = "UTF-8, ISO-8859-1, windows-1252, UTF-16 and Python's other names of encodings"
        raise SourceError(f"source {spec.name!r}: unknown encoding {given!r}; known are {known}") from error
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
        except UnicodeError as error:
            whole = bytes(pending) + data
            if self._at_start and not whole.startswith(_MARKS.get(self._encoding, b"")):
                raise EncodingError(f"{self._place} {self._unmarked(whole)}") from error
            if isinstance(error, UnicodeDecodeError):
                raise self._refusal(error, bytes(pending)) from error
            raise
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix(_MARK)
        whole = text.encode(_UTF_8)
        self._lines += whole.count(b"\n")
        return whole

    def _refusal(self, error: UnicodeDecodeError, pending: bytes) -> EncodingError:
        before = error.object[: error.start]
        line = self._lines + before.count(b"\n") + 1
        end_of_line = min(place for place in (error.object.find(b"\n", error.start), len(error.object)) if place >= 0)
        begin = before.rfind(b"\n") + 1
        shown = error.object[max(begin, error.start - 20) : min(end_of_line, error.start + 10)].decode("latin-1")
        other = "UTF-8" if self._encoding != _UTF_8 else "ISO-8859-1"
        return EncodingError(
            f"{self._place}: line {line} is no text in {self._encoding.upper()}: byte 0x{error.object[error.start]:02x}, which "
            f"ISO-8859-1 reads as in {shown!r}; set options.encoding to that of the file, such as {other}"
        )

    def _unmarked(self, data: bytes) -> str:
        """A clause on a file of UTF-16 or UTF-32 without a mark: the high bytes of most texts are zeros."""
        little, big = (f"{self._encoding.upper()}{end}" for end in ("LE", "BE"))
        likely = little if data[:1] != b"\0" else big
        other = big if likely == little else little
        return f"is {self._encoding.upper()} without a byte order mark; set options.encoding: {likely}, or {other}"
