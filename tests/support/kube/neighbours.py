"""CustomResourceDefinitions of what our manifests are made for, as its makers publish them: in their Go modules.

They come from Go's module cache, or from the proxy into it (some megabytes, once), and are what the pinned sum says.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.kube.binaries import KubernetesMissing, find_go


@dataclass(frozen=True)
class Module:
    """A Go module, its sum as in a `go.sum`, and the folder in it that has the definitions."""

    path: str
    version: str
    sum: str
    folder: str

    def definition(self, name: str) -> Path:
        """The file `name` of that folder. Raises `KubernetesMissing` when the module cannot be had."""
        return _downloaded(self) / self.folder / name


KEDA = Module("github.com/kedacore/keda/v2", "v2.18.1", "h1:h6bRt/IOxxtZpJlHSqhdH/lcInH7Z9obxg/JvWOmGAw=", "config/crd/bases")
PROMETHEUS_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    "example/prometheus-operator-crd",
)
OPERATOR_FRAMEWORK = Module(
    "github.com/operator-framework/api", "v0.33.0", "h1:Tdu9doXz6Key2riIiP3/JPahHEgFBXAqyWQN4kOITS8=", "crds"
)


@functools.cache
def _downloaded(module: Module) -> Path:
    command = [str(find_go()), "mod", "download", "-json", f"{module.path}@{module.version}"]
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    with tempfile.TemporaryDirectory() as outside:  # of any module: nothing here depends on it
        done = subprocess.run(command, cwd=outside, env=environment, capture_output=True, text=True, timeout=120, check=False)
    reported = json.loads(done.stdout) if done.stdout else {"Error": done.stderr}
    if "Error" in reported:
        raise KubernetesMissing(f"{module.path} {module.version} cannot be had: {reported['Error']}")
    if reported["Sum"] != module.sum:
        raise KubernetesMissing(f"{module.path} {module.version} is not what it was: {reported['Sum']}, expected {module.sum}")
    return Path(reported["Dir"])
