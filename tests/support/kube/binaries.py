"""Kubernetes' binaries, built once from the Go module of the tests into ~/.cache/streamtopology/kube.

python -m support.kube.binaries api     what the API server's tests need (about 6 minutes on 2 cores, once)
python -m support.kube.binaries node    all of it (about 8 minutes)
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

MODULE = Path(__file__).parents[2] / "kubernetes" / "go"
API = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "helm")
NODE = (*API, "kube-scheduler", "kubelet", "kube-proxy", "coredns", "pause")

_OLDEST_GO = (1, 25)
_PROGRESS_SECONDS = 15
_KUBERNETES = re.search(r"k8s\.io/kubernetes v(1\.(\d+)\.\d+)", (MODULE / "go.mod").read_text())
assert _KUBERNETES is not None
VERSION = _KUBERNETES[1]


class KubernetesMissing(Exception):
    """Binaries are not built, or cannot be; the text says what to do."""


def binary(name: str) -> Path:
    """The path of the binary `name` once built (see `require`)."""
    return _folder() / "bin" / name


def require(names: Iterable[str]) -> None:
    """Raises `KubernetesMissing` when one is not built yet: a test does not wait minutes for it."""
    missing = [name for name in names if not binary(name).exists()]
    if missing:
        target = "api" if set(missing) <= set(API) else "node"
        raise KubernetesMissing(f"not built yet: {', '.join(missing)} (some minutes, once): run `make kube-{target}`")


def build(names: Iterable[str], say: Callable[[str], None] = print) -> Path:
    """Build what is missing of `names`; returns the folder of the binaries.

    Others that build at the same time wait for each other. A binary appears in the folder when it is complete.
    Raises `KubernetesMissing`: no Go, or a failed build with the end of the compiler's output.
    """
    folder = _folder()
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        if not _try_lock(lock.fileno()):
            say(f"waiting for another build of Kubernetes {VERSION}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in names if not (folder / "bin" / name).exists()]
        if missing:
            with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as built:
                _compile(missing, Path(built), say)
                for name in missing:
                    Path(built, name).rename(folder / "bin" / name)
    return folder / "bin"


@functools.cache
def _folder() -> Path:
    """One folder for each state of the Go module: a changed module builds its own, the others keep theirs."""
    digest = hashlib.sha256(_linker_flags().encode())
    for source in sorted([MODULE / "go.mod", MODULE / "go.sum", *MODULE.rglob("*.go")]):
        digest.update(f"{source.relative_to(MODULE)}\n".encode() + source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "streamtopology" / "kube" / f"{VERSION}-{digest.hexdigest()[:12]}"


def _package(name: str) -> str:
    if (MODULE / "cmd" / name).is_dir():
        return f"./cmd/{name}"
    return "helm.sh/helm/v3/cmd/helm" if name == "helm" else f"k8s.io/kubernetes/cmd/{name}"


def _linker_flags() -> str:
    """Kubernetes' version, which its own build sets this way: without it the parts refuse or mistrust each other."""
    assert _KUBERNETES is not None
    values = {
        "gitVersion": f"v{VERSION}", "gitMajor": "1", "gitMinor": _KUBERNETES[2], "gitTreeState": "clean",
        "gitCommit": "0" * 40, "buildDate": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())])


def _compile(names: list[str], into: Path, say: Callable[[str], None]) -> None:
    """All in one `go build`: linking one binary overlaps with compiling the next."""
    go = find_go()
    say(f"building {', '.join(names)} (Kubernetes {VERSION}) with {go}: some minutes, once")
    started = reported = time.monotonic()
    flags = ["-v", "-trimpath", "-buildvcs=false", f"-ldflags={_linker_flags()}", f"-o={into}/"]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    command = [str(go), "build", *flags, *map(_package, names)]
    with subprocess.Popen(command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True) as compiler:
        assert compiler.stderr is not None
        lines = []
        for line in compiler.stderr:
            lines.append(line)
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                say(f"  {reported - started:.0f} s, {len(lines)} packages downloaded or compiled, now {line.strip()}")
    if compiler.returncode != 0:
        raise KubernetesMissing("".join(["go build failed; the end of its output:\n", *lines[-15:]]))
    say(f"built in {time.monotonic() - started:.0f} s")


def find_go() -> Path:
    """Go from PATH, else the one that scripts/setup.sh put into .venv. Raises `KubernetesMissing`."""
    site_packages = Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for found in (shutil.which("go"), site_packages / "go" / "bin" / "go"):
        if found is not None and Path(found).exists() and _go_version(found) >= _OLDEST_GO:
            return Path(found)
    raise KubernetesMissing("the tests' Kubernetes needs Go 1.25 or newer: run scripts/setup.sh, which installs one into .venv")


def _go_version(go: str | Path) -> tuple[int, ...]:
    output = subprocess.run([str(go), "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True).stdout
    numbers = re.match(r"go(\d+)\.(\d+)", output)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    try:
        build({"api": API, "node": NODE}[sys.argv[1]], lambda text: print(f"[kube] {text}", flush=True))
    except KubernetesMissing as missing:
        sys.exit(f"[kube] {missing}")
