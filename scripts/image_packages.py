"""The Debian packages of an image, from its OCI archive: dpkg's own list, as components of an SBOM (CycloneDX)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STATUS = "var/lib/dpkg/status"


class ImageError(Exception):
    """An archive is not an OCI archive of a Debian image."""


def debian_packages(archive: Path) -> list[dict[str, str]]:
    """Components of the installed packages, sorted. Of an image for several architectures: those of the first."""
    try:
        with tarfile.open(archive) as image:
            status = _status(image, _read(image, "index.json"))
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise ImageError(f"{archive} is not an OCI archive ({error}): build it by `images/build.py --oci`") from error
    if status is None:
        raise ImageError(f"{archive} has no {STATUS}: it is not an image on Debian")
    return sorted(_components(status), key=lambda component: component["purl"])


def _read(image: tarfile.TarFile, name: str) -> Any:
    return json.loads(_open(image, name).read())


def _open(image: tarfile.TarFile, name: str) -> Any:
    content = image.extractfile(name)
    if content is None:
        raise KeyError(name)
    return content


def _blob(descriptor: dict[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _status(image: tarfile.TarFile, index: Any) -> str | None:
    """dpkg's list in the newest layer that has one."""
    manifest = _read(image, _blob(index["manifests"][0]))
    if "manifests" in manifest:
        return _status(image, manifest)
    for layer in reversed(manifest["layers"]):
        with tarfile.open(fileobj=_open(image, _blob(layer))) as files:
            for entry in files:
                if entry.isfile() and entry.name.removeprefix("./") == STATUS:
                    return _open(files, entry.name).read().decode()
    return None


def _components(status: str) -> Iterator[dict[str, str]]:
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status") == "install ok installed":
            name, version, architecture = (fields[key] for key in ("Package", "Version", "Architecture"))
            purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
            yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
