#!/usr/bin/env python3
"""Build the images of the Dockerfile without Docker and without a registry: by buildah, on a base by debootstrap.

    images/build.py spark operator              # builds both and prints their names
    images/build.py spark operator --archive    # and writes archives for `ctr -n k8s.io images import` or `docker load`
    images/build.py spark operator --oci        # or OCI archives, for `skopeo copy` to a registry and scripts/release.py

Runs as root on Debian or Ubuntu. Layers are kept in ~/.cache/streamtopology/images, so that a change of our own code
rebuilds only the layers from there on. The base comes from Debian's archive and uv from PyPI, not from registries.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("operator", "spark")
SUITE = "bookworm"
ENDINGS = {"docker": "tar", "oci": "oci.tar"}
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
BASE = f"localhost/streamtopology/debian:{SUITE}"


class BuildError(Exception):
    """An image cannot be built; the message says what to do."""


class Builder:
    """Builds images into a store of its own, `folder`; nothing else on the machine knows of them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder()
        for tool in ("buildah", "debootstrap"):
            if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
                raise BuildError(f"{tool} is missing: apt-get install --no-install-recommends buildah debootstrap")
        if os.geteuid() != 0:
            raise BuildError("a base image is made with debootstrap and mounts, which only root may: run this by sudo")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # until this process ends: builds of several checkouts take turns

    def build(self, target: str) -> str:
        """Build `target`; the image's name, e.g. docker.io/streamtopology/spark:0.1.0. Takes seconds if nothing changed."""
        name = image_name(target)
        before = self._id(name)
        self._buildah(
            "build", "--layers", "--pull-never", "--isolation", "chroot", "--network", "host", *self._lent(),
            "--build-arg", f"BASE={self._base()}", "--build-arg", f"UV={self._uv()}",
            "--target", target, "--tag", name, "--file", str(ROOT / "Dockerfile"), str(ROOT),
        )  # fmt: skip
        if before not in ("", self._id(name)):
            self._forget(before)
        return name

    def archive(self, target: str, form: str = "docker") -> Path:
        """Build `target`; an archive of it (`docker` or `oci`), kept beside the layers, written when the image changed."""
        name = self.build(target)
        archive = self.folder / f"{target}-{self._id(name)[:12]}.{ENDINGS[form]}"
        if not archive.exists():
            for older in self.folder.glob(f"{target}-????????????.{ENDINGS[form]}"):
                older.unlink()
            part = archive.with_suffix(".part")
            self._buildah("push", "--quiet", name, f"{form}-archive:{part}:{name}")
            part.rename(archive)
        return archive

    def _base(self) -> str:
        """The name of the base image, made from Debian's archive: what debian:bookworm-slim is."""
        return self._made_once(BASE, _debootstrap)

    def _uv(self) -> str:
        """The name of an image that holds nothing but uv, in the version that the Dockerfile names."""
        version = re.search(r"^ARG UV=\S+:(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        if version is None:
            raise BuildError("the Dockerfile names no version of uv (ARG UV=IMAGE:VERSION)")
        return self._made_once(f"localhost/streamtopology/uv:{version[1]}", lambda root: _download_uv(version[1], root))

    def _made_once(self, name: str, fill: Callable[[Path], None]) -> str:
        """The image `name`, whose files `fill` writes into an empty folder if there is no such image yet."""
        if not self._id(name):
            container = self._buildah("from", "scratch", capture=True)
            try:
                fill(Path(self._buildah("mount", container, capture=True)))
                self._buildah("commit", "--quiet", container, name, capture=True)
            finally:
                self._buildah("rm", container, capture=True)
        return name

    def _lent(self) -> list[str]:
        """The folders and settings of this machine that a build may use: images/lent.sh."""
        cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
        cache.mkdir(parents=True, exist_ok=True)
        certificates = [f"--volume={CERTIFICATES}:/lent/certificates.crt:ro"] if CERTIFICATES.exists() else []
        return [f"--volume={cache}:/lent/uv", *certificates]

    def _id(self, name: str) -> str:
        """The id of the image `name`, or an empty text."""
        found = self._buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={name}", capture=True)
        return found.rpartition(":")[2]

    def _forget(self, image: str) -> None:
        """Remove an image that has lost its name, with the layers that no other image has."""
        self._buildah("rmi", "--force", image, capture=True)

    def _buildah(self, *arguments: str, capture: bool = False) -> str:
        store = ["--root", str(self.folder / "store"), "--runroot", str(self.folder / "run")]
        return _run(["buildah", *store, *arguments], capture=capture)


def image_name(target: str) -> str:
    """The name that the chart uses for the image of `target`, of the version that is checked out."""
    chart = (ROOT / "charts" / "streamtopology" / "Chart.yaml").read_text()
    version = re.search(r"^appVersion: (\S+)$", chart, re.MULTILINE)
    if version is None:
        raise BuildError("charts/streamtopology/Chart.yaml has no appVersion")
    return f"docker.io/streamtopology/{target}:{version[1]}"


def cache_folder() -> Path:
    """The folder of layers and archives: outside the checkout, for all checkouts of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopology" / "images"


def _debootstrap(root: Path) -> None:
    _run(["debootstrap", "--variant=minbase", SUITE, str(root)], capture=True)
    for waste in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / waste)
        (root / waste).mkdir()


def _download_uv(version: str, root: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _run([*_installer(), "--quiet", "--target", folder, "--no-deps", "--only-binary", ":all:", f"uv=={version}"])
        shutil.copyfile(Path(folder, "bin", "uv"), root / "uv")
    (root / "uv").chmod(0o755)


def _installer() -> list[str]:
    """The command that installs from PyPI: uv from PATH or of scripts/setup.sh, else pip, which a venv of uv lacks."""
    for uv in (shutil.which("uv"), ROOT / "build" / "uv" / "bin" / "uv"):
        if uv is not None and Path(uv).exists():
            return [str(uv), "pip", "install", "--python", sys.executable]
    return [sys._base_executable, "-m", "pip", "install"]


def _run(command: Sequence[str], *, capture: bool = False) -> str:
    """Run `command` and return its output if captured, else show it. Raises BuildError with its last lines."""
    ended = subprocess.run(
        command, stdout=subprocess.PIPE if capture else sys.stderr, stderr=subprocess.PIPE if capture else None, text=True
    )
    if ended.returncode:
        last = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-5:]) if capture else "see its last lines"
        raise BuildError(f"{' '.join(command[:2])} ... failed with exit code {ended.returncode}: {last}")
    return ended.stdout.strip() if capture else ""


def main() -> int:
    """The command; returns the exit code: 1 if an image cannot be built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("targets", nargs="+", choices=TARGETS, metavar="TARGET", help="operator, spark")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--archive", action="store_const", const="docker", help="also write docker archives, and print their paths"
    )
    forms.add_argument("--oci", action="store_const", const="oci", dest="archive", help="OCI archives instead")
    arguments = parser.parse_args()
    try:
        builder = Builder()
        for target in arguments.targets:
            print(builder.archive(target, arguments.archive) if arguments.archive else builder.build(target))
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
