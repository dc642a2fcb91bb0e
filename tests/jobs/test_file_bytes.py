"""Bytes of text files: each encoding and codec is read as Python reads it, or refused by name."""

from __future__ import annotations

import bz2
import encodings
import gzip
import lzma
import pkgutil
from pathlib import Path

import pyarrow as pa
import pytest
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.text import text_stream
from streamtopology.jobs.connectors.sources.text.text_stream import UnreadableFileError, encoding_of
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source

TEXT = 'a,"b+AGE-,\\n\\u00e9"\r\nxn--a,"c\nd"\n'
ROWS = [("a", "b+AGE-,\\n\\u00e9"), ("xn--a", "c\nd")]


def values(path: Path, **options: str) -> list[tuple]:
    source = spec(path.parent, "csv", "a STRING, b STRING", escape='"', **options)
    return [tuple(row.values()) for row in rows_of([Descriptor("s", "csv", str(path), 0, 0, path.stat().st_size, 1)], source)]


def is_refused(name: str) -> bool:
    try:
        encoding_of(SourceSpec("s", "csv", None, {"encoding": name}))
    except SourceError:
        return True
    return False


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_texts_of_every_encoding_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(text_stream, "READ_BYTES", size)
    names = [module.name for module in pkgutil.iter_modules(encodings.__path__)]
    known = [name for name in names if not is_refused(name)]
    assert {"ascii", "utf_8_sig", "utf_16_le", "utf_32_be", "cp1252", "latin_1", "shift_jis", "gb18030", "cp037"} <= set(known)
    for name in known:
        path = tmp_path / f"{name}.csv"
        path.write_bytes(TEXT.encode(name))
        assert values(path, encoding=name) == ROWS, name


@pytest.mark.parametrize(
    "name",
    ["idna", "punycode", "Unicode-Escape", "raw_unicode_escape", "utf-7", "UTF7", "rot13", "base64", "undefined", "\ud800"],
)
def test_codecs_that_are_no_encodings_are_refused(name: str) -> None:
    with pytest.raises(SourceError, match=r"unknown encoding .*; known are UTF-8"):
        encoding_of(SourceSpec("s", "csv", None, {"encoding": name}))


@pytest.mark.parametrize("option", ["nullValue", "timestampFormat", "sep", "encoding"])
@pytest.mark.parametrize("text", ["\ud800", "yyyy-MM-dd\udfff"])
def test_half_a_character_in_an_option_is_a_finding(tmp_path: Path, option: str, text: str) -> None:
    (tmp_path / "a.csv").write_text("x,1\n")
    found = check(Source("s", "csv", "a STRING, b STRING", {"path": str(tmp_path), option: text})).findings
    assert [finding.path for finding in found] == [f"options.{option}"]
    assert "\\ud" in found[0].message


@pytest.mark.parametrize("option", ["kafka.bootstrap.servers", "subscribe", "kafka.client.id"])
def test_half_a_character_in_an_option_of_kafka_is_a_finding(option: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", option: "\ud800"}
    (found,) = check(Source("s", "kafka", None, options)).findings
    assert (found.path, "half a character" in found.message) == (f"options.{option}", True)


def by_arrow(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(TEXT.encode())
    return sink.getvalue().to_pybytes()


COMPRESSED = {
    ".gz": gzip.compress(TEXT.encode(), mtime=0),
    ".bz2": bz2.compress(TEXT.encode()),
    ".zst": by_arrow("zstd"),
    ".lz4": by_arrow("lz4"),
}


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_compressed_files_are_read_by_their_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, size: int
) -> None:
    monkeypatch.setattr(text_stream, "READ_BYTES", size)
    for name in (f"a.csv{suffix}", f"b{suffix.upper()}"):
        (tmp_path / name).write_bytes(COMPRESSED[suffix])
        assert values(tmp_path / name) == ROWS
    (tmp_path / f"none{suffix}").write_bytes(b"")
    assert values(tmp_path / f"none{suffix}") == []


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_files_of_several_compressed_parts_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, size: int
) -> None:
    monkeypatch.setattr(text_stream, "READ_BYTES", size)
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESSED[suffix] * 3)
    assert values(path) == ROWS * 3
    for cut in (COMPRESSED[suffix][:-1], COMPRESSED[suffix] + COMPRESSED[suffix][:-1]):
        path.write_bytes(cut)
        with pytest.raises(UnreadableFileError, match=r"cannot be decompressed: .*; write the file again"):
            values(path)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", COMPRESSED[".gz"], r"its name says no compression, its content \.gz; end its name in \.gz"),
        ("a.csv", COMPRESSED[".bz2"], r"content \.bz2; end its name in \.bz2"),
        ("part-0", COMPRESSED[".zst"], r"content \.zst; end its name in \.zst"),
        ("a.csv.bz2", COMPRESSED[".gz"], r"its name says \.bz2, its content \.gz; end its name in \.gz"),
        ("a.csv.xz", lzma.compress(b"a"), r"says \.xz, its content \.xz; write it with \.gz, \.bz2 or \.zst"),
        ("a.csv.zip", b"PK\x03\x04rest", r"content \.zip; write it with \.gz"),
        ("a.csv.snappy", b"\x00\x00\x00\x02ab", r"says \.snappy, its content none that is read; write it with \.gz"),
        ("a.csv.deflate", b"x\x9c", r"says \.deflate, its content none that is read; write it with \.gz"),
        ("a.csv.gz", TEXT.encode(), r"says \.gz, its content none that is read; write it .* or as text without"),
        ("a.csv.lz4", b"\x00\x00\x00\x02ab", r"says \.lz4, its content none that is read"),
        ("a.csv.gz", COMPRESSED[".gz"][:-9], "cannot be decompressed: .*; write the file again"),
    ],
)
def test_file_of_another_codec_is_named_with_the_way_out(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=f"source 's', .*{complaint}"):
        values(path)
    (found,) = check(Source("s", "csv", "a STRING, b STRING", {"path": str(tmp_path), "escape": '"'})).findings
    assert (found.path, name in found.message) == ("options.path", True)


@pytest.mark.parametrize("format_", ["csv", "json", "text"])
@pytest.mark.parametrize("encoding", ["UTF-16", "utf_32"])
def test_encoding_without_an_order_of_bytes_names_both(tmp_path: Path, format_: str, encoding: str) -> None:
    name = encoding.replace("_", "-").upper()
    (found,) = check(Source("s", format_, "value STRING", {"path": str(tmp_path), "encoding": encoding})).findings[:1]
    assert (found.path, f"set {name}LE or {name}BE" in found.message) == ("options.encoding", True)
    text = {"json": '{"value": "\xf6"}\n'}.get(format_, "\xf6\n")
    for order, mark in (("LE", ""), ("BE", ""), ("LE", "\ufeff"), ("BE", "\ufeff")):
        (tmp_path / "a").write_bytes((mark + text).encode(f"{name}{order}"))
        part = Descriptor("s", format_, str(tmp_path / "a"), 0, 0, 1, 1)
        assert rows_of([part], spec(tmp_path, format_, "value STRING", encoding=f"{name}{order}")) == [{"value": "\xf6"}]
