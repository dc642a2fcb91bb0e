"""A small OCI archive, as buildah and Docker write them: layers of a few files, for one architecture or for two."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


class _Blobs:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, content: bytes) -> dict[str, object]:
        """Keep `content`; its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def add_document(self, document: object) -> dict[str, object]:
        return self.add(json.dumps(document).encode())


def write_oci_archive(archive: Path, layers: Sequence[Mapping[str, str]], architectures: Sequence[str] = ("amd64",)) -> None:
    """Write `layers` (path -> text, the oldest first) as an image; with several architectures as an index of equal images."""
    blobs = _Blobs()
    packed = [blobs.add(gzip.compress(_tar({path: text.encode() for path, text in layer.items()}))) for layer in layers]
    manifests = []
    for architecture in architectures:
        config = blobs.add_document({"architecture": architecture, "os": "linux"})
        manifests.append(blobs.add_document({"schemaVersion": 2, "config": config, "layers": packed}))
    if len(manifests) > 1:
        manifests = [blobs.add_document({"schemaVersion": 2, "manifests": manifests})]
    blobs.files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    blobs.files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    archive.write_bytes(_tar(blobs.files))


def _tar(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()
