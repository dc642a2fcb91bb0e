"""A machine that lacks something: one sentence that names it and the way to get it, before anything is installed or tested."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECK = f"{sys.executable} {ROOT}/scripts/check_machine.py"
OWN_MOUNTS = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
HIDE_JAVA = "for folder in /usr/lib/jvm /usr/java /opt/java; do [ ! -d $folder ] || mount -t tmpfs none $folder; done; "


def findings(before: str, **environment: str) -> list[str]:
    """The lines that `check_machine.py` prints after the commands `before` in a mount namespace of its own."""
    done = subprocess.run(
        [*OWN_MOUNTS, before + CHECK], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == (1 if done.stderr else 0), done.stderr
    return done.stderr.splitlines()


def test_machine_that_has_everything_has_no_findings() -> None:
    assert findings("") == []


def test_missing_java_is_named_with_its_package() -> None:
    (line,) = findings(HIDE_JAVA, JAVA_HOME="/nowhere", PATH=f"{Path(sys.executable).parent}:/bin")
    assert line.startswith("Spark needs Java 17 or 21")
    assert "apt-get install openjdk-17-jre-headless" in line


def test_full_folder_is_named_with_its_room(tmp_path: Path) -> None:
    (line,) = findings(f"mount -t tmpfs -o size=10m none {tmp_path}; ", TMPDIR=str(tmp_path))
    assert line == (
        f"the folder of temporary files, {tmp_path}, has 0.0 GB free of 1 GB needed: free some, or set TMPDIR to another folder"
    )


def test_read_only_home_is_named_with_the_way_around_it(tmp_path: Path) -> None:
    read_only = f"mount -t tmpfs none {tmp_path}; mount -o remount,ro {tmp_path}; "
    (line,) = findings(read_only, HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert line == (
        f"the folder of caches, {tmp_path}/.cache, cannot be written: set XDG_CACHE_HOME to a folder that can be written"
    )
    assert findings(read_only, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path.parent)) == []


@pytest.mark.clusters
def test_setup_without_a_registry_says_so_in_its_last_line(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, tmp_path / "clone"], check=True)
    if (ROOT / "build" / "uv").exists():
        shutil.copytree(ROOT / "build" / "uv", tmp_path / "clone" / "build" / "uv", symlinks=True)
    without_network = ["unshare", "--net", "--map-root-user", "sh", "-c", "ip link set lo up; exec scripts/setup.sh"]
    environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(without_network, cwd=tmp_path / "clone", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert done.stderr.splitlines()[-1].startswith(
        "[setup] the Python packages were not installed, see above: is PyPI reachable"
    )
