"""A release as scripts/release.py builds it, with real Helm and uv, its files taken by a real API server. Nothing is pushed."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support.kube.apiserver import ApiServer
from support.kube.binaries import binary, require
from support.kube.neighbours import OPERATOR_FRAMEWORK
from support.kube.processes import run
from support.oci_archive import write_oci_archive

ROOT = Path(__file__).parents[2]
REGISTRY = "registry.example.com:5000/team"
COMMIT = "0" * 40
STATUS = "var/lib/dpkg/status"
TINI = "Package: tini\nStatus: install ok installed\nArchitecture: amd64\nVersion: 0.19.0-1\nDescription: init\n Status: no\n"
GONE = "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n"
JAVA = "Package: openjdk-17\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2:17.0.1+8-1\n"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The modules of scripts/, which import each other by their names."""
    names = ("image_packages", "olm_bundle", "release")
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def built(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release with two small images."""
    require(["helm"])
    folder = tmp_path_factory.mktemp("release")
    images = {target: folder / f"{target}.tar" for target in ("operator", "spark")}
    write_oci_archive(images["operator"], [{STATUS: f"{TINI}\n{GONE}"}, {"opt/x": ""}])
    write_oci_archive(images["spark"], [{STATUS: TINI}, {f"./{STATUS}": f"{JAVA}\n{TINI}"}], ("amd64", "arm64"))
    uv = shutil.which("uv") or str(ROOT / "build" / "uv" / "bin" / "uv")
    release = scripts["release"]
    origin = release.Origin("https://git.example.com/flow", COMMIT, "urn:builder", datetime(2026, 11, 24, tzinfo=UTC))
    release.build(folder / "out", REGISTRY, images, origin, release.Tools(str(binary("helm")), uv))
    return folder / "out"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_release_has_chart_manifests_images_bills_provenance_and_sums(built: Path) -> None:
    crds = {f"olm/manifests/{name}.streamtopology.dev.yaml" for name in ("streamtopologies", "streamtopologysnapshots")}
    assert files(built) == {
        "streamtopology-0.1.0.tgz", "crd.yaml", "install.yaml", "operator-0.1.0.oci.tar", "spark-0.1.0.oci.tar",
        "operator-0.1.0.cdx.json", "spark-0.1.0.cdx.json", "olm/bundle.Dockerfile", "olm/metadata/annotations.yaml",
        "olm/manifests/streamtopology.clusterserviceversion.yaml", "provenance.intoto.json", "SHA256SUMS", *crds,
    }  # fmt: skip
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=built, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count(": OK") == len(files(built)) - 1


def test_provenance_names_each_file_by_its_digest_and_the_commit(built: Path) -> None:
    statement = json.loads((built / "provenance.intoto.json").read_text())
    digests = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert digests.keys() == files(built) - {"provenance.intoto.json", "SHA256SUMS"}
    for name, digest in digests.items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
    definition = statement["predicate"]["buildDefinition"]
    source, lock = definition["resolvedDependencies"]
    assert source == {"uri": f"git+https://git.example.com/flow@{COMMIT}", "digest": {"gitCommit": COMMIT}}
    assert lock["digest"]["sha256"] == hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    assert statement["predicate"]["runDetails"]["metadata"]["startedOn"] == "2026-11-24T00:00:00Z"


def components(built: Path, target: str) -> dict[str, dict[str, str]]:
    bill = json.loads((built / f"{target}-0.1.0.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    return {each["name"]: each for each in bill["components"]}


def test_bill_of_an_image_has_its_locked_and_its_debian_packages(built: Path) -> None:
    operator, spark = components(built, "operator"), components(built, "spark")
    assert {"kopf", "numpy", "tini"} <= operator.keys()
    assert not {"pyspark", "pytest", "gone"} & operator.keys()
    assert {"pyspark", "numpy", "kubernetes", "tini"} <= spark.keys()
    assert "kopf" not in spark
    assert spark["openjdk-17"]["purl"] == "pkg:deb/debian/openjdk-17@2%3A17.0.1%2B8-1?arch=amd64"
    locked = re.search(r'name = "pyspark"\nversion = "(\S+)"', (ROOT / "uv.lock").read_text())
    assert locked is not None
    assert spark["pyspark"]["version"] == locked[1]


def rendered_chart(built: Path, *options: str) -> str:
    chart = str(built / "streamtopology-0.1.0.tgz")
    return run([str(binary("helm")), "template", "streamtopology", chart, "--kube-version", "1.30.0", *options], 60)


def images_of(text: str) -> set[str]:
    return set(re.findall(r"[\w.:/-]*streamtopology/(?:operator|spark):[\w.]+", text))


def test_chart_manifests_and_bundle_name_images_of_the_registry(built: Path) -> None:
    expected = {f"{REGISTRY}/streamtopology/{target}:0.1.0" for target in ("operator", "spark")}
    rendered = rendered_chart(built)
    version = (built / "olm" / "manifests" / "streamtopology.clusterserviceversion.yaml").read_text()
    assert images_of(rendered) == images_of((built / "install.yaml").read_text()) == images_of(version) == expected


def test_api_server_takes_the_manifests(built: Path) -> None:
    with ApiServer() as empty:
        for name in ("crd.yaml", "install.yaml"):
            empty.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(built / name))
        output = empty.kubectl("get", "deployment", "-n", "streamtopology", "-o", "name")
        assert output.strip() == "deployment.apps/streamtopology"
        empty.kubectl("delete", "--wait=false", "-f", str(built / "install.yaml"))
        empty.kubectl("wait", "--for=delete", "crd/streamtopologies.streamtopology.dev", "--timeout=300s", seconds=330)


def test_release_is_refused_over_files_and_without_an_oci_archive(
    scripts: dict[str, ModuleType], tmp_path: Path, built: Path
) -> None:
    release, packages = scripts["release"], scripts["image_packages"]
    origin = release.Origin("", COMMIT, "", datetime(2026, 11, 24, tzinfo=UTC))
    with pytest.raises(release.ReleaseError, match="not empty"):
        release.build(built, REGISTRY, {}, origin, release.Tools("helm", "uv"))
    (tmp_path / "archive.tar").write_bytes(b"x" * 1024)
    with pytest.raises(packages.ImageError, match=r"(?s)not an OCI archive .* build it by"):
        packages.debian_packages(tmp_path / "archive.tar")
    write_oci_archive(tmp_path / "archive.tar", [{"etc/alpine-release": "3"}])
    with pytest.raises(packages.ImageError, match="not an image on Debian"):
        packages.debian_packages(tmp_path / "archive.tar")


# The bundle for OLM ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def version(built: Path) -> dict[str, Any]:
    """The ClusterServiceVersion."""
    return yaml.safe_load((built / "olm" / "manifests" / "streamtopology.clusterserviceversion.yaml").read_text())


def test_olms_own_definition_takes_the_cluster_service_version(
    version: dict[str, Any], api_server: ApiServer, namespace: str
) -> None:
    definition = OPERATOR_FRAMEWORK.definition("operators.coreos.com_clusterserviceversions.yaml")
    api_server.kubectl("apply", "--server-side", "-f", str(definition))
    crd = "crd/clusterserviceversions.operators.coreos.com"
    api_server.served(crd)
    try:
        create = ("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
        assert "created (server dry run)" in api_server.kubectl(*create, stdin=json.dumps(version))
    finally:
        api_server.kubectl("delete", crd, "--timeout=30s")


def test_bundle_has_the_deployment_and_the_rights_of_the_chart(version: dict[str, Any], built: Path) -> None:
    install = version["spec"]["install"]["spec"]
    chart = [each for each in yaml.safe_load_all(rendered_chart(built, "--skip-tests")) if each]
    rights = [rule for each in chart if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    aggregated = [each for each in chart if each["metadata"]["name"] in ("streamtopology-view", "streamtopology-edit")]
    of_people = [rule for each in aggregated for rule in each["rules"]]
    [granted], [in_cluster] = install["permissions"], install["clusterPermissions"]
    assert granted["serviceAccountName"] == in_cluster["serviceAccountName"] == "streamtopology"
    in_order = sorted([*granted["rules"], *in_cluster["rules"]], key=json.dumps)
    assert in_order == sorted([rule for rule in rights if rule not in of_people], key=json.dumps)
    assert [rule["apiGroups"] for rule in in_cluster["rules"]] == [["apiextensions.k8s.io"]]

    [deployment] = [each["spec"] for each in chart if each["kind"] == "Deployment"]
    [bundled] = [each["spec"] for each in install["deployments"]]
    [container], [of_chart] = (each["template"]["spec"]["containers"] for each in (bundled, deployment))
    assert {**container, "env": []} == {**of_chart, "env": []}
    differing = [ours for ours, theirs in zip(container["env"], of_chart["env"], strict=True) if ours != theirs]
    [namespaces] = differing
    assert namespaces["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['olm.targetNamespaces']"


def test_bundle_owns_the_crds_and_has_an_example_of_each(version: dict[str, Any], built: Path) -> None:
    owned = version["spec"]["customresourcedefinitions"]["owned"]
    files = [built / "olm" / "manifests" / f"{each['name']}.yaml" for each in owned]
    definitions = [yaml.safe_load(file.read_text()) for file in files]
    assert definitions == list(yaml.safe_load_all((built / "crd.yaml").read_text()))
    examples = json.loads(version["metadata"]["annotations"]["alm-examples"])
    for example, definition, each in zip(examples, definitions, owned, strict=True):
        assert example["apiVersion"] == f"{definition['spec']['group']}/{each['version']}"
        assert example["kind"] == each["kind"]
    annotations = yaml.safe_load((built / "olm" / "metadata" / "annotations.yaml").read_text())["annotations"]
    labels = dict(re.findall(r"^LABEL (\S+)=(.*)$", (built / "olm" / "bundle.Dockerfile").read_text(), re.MULTILINE))
    assert labels == annotations


def test_bundle_is_refused_when_the_chart_makes_an_unknown_kind(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    bundle = scripts["olm_bundle"]
    objects = [*bundle.rendered(str(binary("helm"))), {"kind": "Service", "metadata": {"name": "x"}}]
    with pytest.raises(bundle.BundleError, match="the chart makes Service"):
        bundle.write_bundle(tmp_path, objects)


# The workflow ---------------------------------------------------------------------------------------------------------

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())


def commands() -> list[str]:
    return [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step]


def test_commands_of_the_workflow_are_bash_and_their_scripts_are_here() -> None:
    for command in commands():
        without_expressions = re.sub(r"\$\{\{.*?\}\}", "x", command)
        checked = subprocess.run(["bash", "-n"], input=without_expressions, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
    named = {path for command in commands() for path in re.findall(r"\b(?:scripts|images)/[\w.]+\.(?:py|sh)", command)}
    assert named == {"scripts/setup.sh", "scripts/release.py"}
    assert all((ROOT / path).is_file() for path in named)


def test_options_that_the_workflow_gives_are_those_of_the_script() -> None:
    [command] = [each for each in commands() if "release.py" in each]
    helped = subprocess.run([sys.executable, ROOT / "scripts" / "release.py", "--help"], capture_output=True, text=True)
    options = set(re.findall(r" (--[a-z]+)", command))
    assert options
    assert options <= set(re.findall(r"--[a-z]+", helped.stdout))


def test_workflow_pushes_to_the_registry_of_a_variable_alone() -> None:
    assert WORKFLOW["jobs"]["release"]["env"]["REGISTRY"] == "${{ vars.REGISTRY }}"
    pushing = [step for step in WORKFLOW["jobs"]["release"]["steps"] if re.search(r"push|docker://", str(step.get("run")))]
    targets = {target for step in pushing for target in re.findall(r"(?:docker|oci)://(\S+?)/", step["run"])}
    assert targets == {"$REGISTRY"}
    assert all(step["if"] == "env.REGISTRY != ''" for step in pushing if "docker://" in step["run"])
