"""URIs of files and of objects.

`file:` URIs are read as Hadoop reads them: `#` and `?` are characters of names; only `%` and two digits are decoded. What
follows `s3://BUCKET/` is an object's key as it is.
"""

from __future__ import annotations

import re

# Bytes of a name in UTF-8, as a URI writes them.
ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")

BUCKET_SCHEME = "s3://"
_FILE_URI = re.compile(r"file:(?://(?P<host>[^/]*))?(?P<path>.*)", re.IGNORECASE | re.DOTALL)


def is_in_bucket(path: str) -> bool:
    return path.startswith(BUCKET_SCHEME)


def encoded_path(uri: str) -> str | None:
    """The absolute path in a `file:` URI, still encoded; None if `uri` is none. Raises ValueError with what is wrong."""
    found = _FILE_URI.fullmatch(uri)
    if found is None:
        return None
    host, path = found["host"] or "", found["path"]
    if host.lower() not in ("", "localhost"):
        raise ValueError(f"{uri!r} names a machine, {host!r}: write file:///{host}{path}, or a plain path")
    if not path.startswith("/"):
        raise ValueError(f"{uri!r} has no absolute path (file:///data/in); write a relative one plainly")
    return path
