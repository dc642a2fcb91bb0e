"""Build what a release publishes into one folder; .github/workflows/release.yaml pushes it, and nothing here needs a network.

    scripts/release.py build/release --registry registry.example.com/team \\
        --image operator=operator.oci.tar --image spark=spark.oci.tar

The folder: the chart (whose `image.registry` is the registry), the CRD, `install.yaml` for kubectl, an OLM bundle, the images
as OCI archives, an SBOM of each (CycloneDX), the provenance (in-toto, SLSA 1.0), and SHA256SUMS. docs/decisions has why.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml
from image_packages import ImageError, debian_packages
from olm_bundle import DEFINITIONS, BundleError, rendered, write_bundle

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "streamtopology"
# Of uv.lock, by image: what the Dockerfile installs.
PACKAGES = {
    "operator": ("--package", "streamtopology-operator", "--extra", "traces"),
    "spark": ("--package", "streamtopology", "--extra", "kubernetes", "--extra", "traces"),
}
NO_REGISTRY = '\n  registry: ""\n'
# An identifier in the domain of the API group: this script.
BUILD_TYPE = "https://streamtopology.dev/release/v1"


class ReleaseError(Exception):
    """A release cannot be built; the message has the remedy."""


@dataclass(frozen=True)
class Origin:
    """The origin of a release: repository, commit, the builder's URI, and the time at which it began."""

    source: str
    commit: str
    builder: str
    began: datetime


@dataclass(frozen=True)
class Tools:
    helm: str
    uv: str


def build(folder: Path, registry: str, images: Mapping[str, Path], origin: Origin, tools: Tools) -> None:
    """Fill the empty `folder`. `images`: OCI archives by the target of the Dockerfile. Raises ReleaseError."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty: a release is built into a folder of its own")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    chart = _chart_of(registry, folder / "chart")
    _run(tools.helm, "package", str(chart), "--destination", str(folder))
    definitions = [(chart / "files" / name).read_text(encoding="utf-8") for name in DEFINITIONS]
    (folder / "crd.yaml").write_text("---\n".join(definitions), encoding="utf-8")
    (folder / "install.yaml").write_text(_install(tools.helm, chart), encoding="utf-8")
    write_bundle(folder / "olm", rendered(tools.helm, chart), chart)
    shutil.rmtree(chart)
    for target, archive in images.items():
        shutil.copyfile(archive, folder / f"{target}-{version}.oci.tar")
    for target in PACKAGES:
        bill = _bill(tools.uv, target, images.get(target))
        (folder / f"{target}-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    statement = provenance(_digests(folder), registry, version, origin)
    (folder / "provenance.intoto.json").write_text(json.dumps(statement, indent=1) + "\n", encoding="utf-8")
    sums = "".join(f"{digest}  {name}\n" for name, digest in _digests(folder).items())
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")


def _chart_of(registry: str, folder: Path) -> Path:
    """A copy of the chart with `registry` as the default: its users need not name it."""
    shutil.copytree(CHART, folder)
    values = folder / "values.yaml"
    text = values.read_text(encoding="utf-8")
    if text.count(NO_REGISTRY) != 1:
        raise ReleaseError(f'{CHART / "values.yaml"} has not one line `registry: ""`: it is the registry\'s place')
    values.write_text(text.replace(NO_REGISTRY, f"\n  registry: {json.dumps(registry)}\n"), encoding="utf-8")
    return folder


def _install(helm: str, chart: Path) -> str:
    """`kubectl apply --server-side -f install.yaml` is what `kubectl apply -k deploy` is, with the registry's images."""
    namespace = (ROOT / "deploy" / "namespace.yaml").read_text(encoding="utf-8")
    where = ("--namespace", "streamtopology", "--kube-version", "1.30.0")
    made = _run(helm, "template", "streamtopology", str(chart), *where, "--skip-tests")
    of_helm = ("helm.sh/", "app.kubernetes.io/managed-by: Helm", "# Source: ")
    lines = [line for line in made.splitlines() if not line.strip().startswith(of_helm)]
    return namespace + "\n".join(["---", *lines, ""])


def _bill(uv: str, target: str, archive: Path | None) -> dict[str, object]:
    """The SBOM of an image: uv's of the locked packages, and Debian's packages as the image's own dpkg lists them."""
    exported = _run(uv, "export", "--quiet", "--frozen", "--no-dev", "--format", "cyclonedx1.5", *PACKAGES[target])
    bill = json.loads(exported)
    if archive is not None:
        bill["components"] = [*bill.get("components", []), *debian_packages(archive)]
    return bill


def provenance(digests: Mapping[str, str], registry: str, version: str, origin: Origin) -> dict[str, object]:
    """An in-toto statement with SLSA's predicate: these files (name, SHA-256) are built from that commit."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"registry": registry, "version": version},
                "resolvedDependencies": [
                    {"uri": f"git+{origin.source}@{origin.commit}", "digest": {"gitCommit": origin.commit}},
                    {"uri": "uv.lock", "digest": {"sha256": _sha256(ROOT / "uv.lock")}},
                ],
            },
            "runDetails": {
                "builder": {"id": origin.builder},
                "metadata": {"startedOn": origin.began.strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
        },
    }


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, by its path in `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command[:3])} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def committed() -> str:
    """The commit that is checked out. Raises ReleaseError if files differ from it: the provenance would be wrong."""
    changed = _run("git", "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(f"{len(changed)} files differ from the commit ({changed[0].strip()} ...): commit them first")
    return _run("git", "rev-parse", "HEAD").strip()


def _image(text: str) -> tuple[str, Path]:
    target, _, path = text.partition("=")
    if target not in PACKAGES or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"found {text!r}, expected operator=ARCHIVE or spark=ARCHIVE of an existing file")
    return target, Path(path)


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit code: 1 if a release cannot be built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="empty, or not there yet")
    parser.add_argument("--registry", required=True, help="of images and chart, e.g. registry.example.com/team")
    parser.add_argument("--image", action="append", type=_image, default=[], help="TARGET=ARCHIVE (images/build.py --oci)")
    parser.add_argument("--source", help="the repository's URL; default: that of the remote origin")
    parser.add_argument("--builder", default="urn:streamtopology:local", help="the URI of who builds")
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--uv", default="uv")
    given = parser.parse_args(arguments)
    try:
        source = given.source or _run("git", "remote", "get-url", "origin").strip()
        origin = Origin(source, committed(), given.builder, datetime.now(UTC))
        build(given.folder, given.registry, dict(given.image), origin, Tools(given.helm, given.uv))
    except (ReleaseError, BundleError, ImageError) as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
