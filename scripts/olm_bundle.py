"""Write a bundle for the Operator Lifecycle Manager from the chart's own rendering: scripts/olm_bundle.py FOLDER [HELM].

The ClusterServiceVersion has the chart's Deployment and rights, so it cannot differ from them. A kind of object that the
chart brings and this script does not know is an error, not left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "streamtopology"
NAME = "streamtopology"
CHANNEL = "alpha"
Object = dict[str, Any]

LEFT_OUT = {
    "ServiceAccount": "OLM makes the one that the rights are for",
    "ClusterRoleBinding": "OLM binds the rights",
    "RoleBinding": "OLM binds the rights",
    "ValidatingAdmissionPolicy": "OLM takes none; the operator reports the same in a topology's status",
    "ValidatingAdmissionPolicyBinding": "as the policy",
}
# Files of the chart with the resource definitions.
DEFINITIONS = ("crd.yaml", "crd-snapshots.yaml")
# The CRD is a file of the bundle, OLM makes the ClusterRoles for viewers and editors itself, and one before OpenShift 4.20
# refuses a bundle with a NetworkPolicy.
VALUES = ("crds.install=false", "networkPolicy.enabled=false", "rbac.aggregate=false")
OF_HELM = ("helm.sh/chart", "app.kubernetes.io/managed-by")
# OpenShift gives each namespace its own; elsewhere the image's user holds.
UIDS = ("runAsUser", "runAsGroup", "fsGroup")


class BundleError(Exception):
    """The chart brings something that a bundle has no place for."""


def rendered(helm: str, chart: Path = CHART) -> list[Object]:
    """The chart's objects as the bundle needs them."""
    values = [word for value in VALUES for word in ("--set", value)]
    command = [helm, "template", NAME, str(chart), "--skip-tests", "--kube-version", "1.30.0", *values]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def write_bundle(folder: Path, objects: Sequence[Object], chart: Path = CHART) -> None:
    """Write `manifests/`, `metadata/` and `bundle.Dockerfile` into an empty `folder`. Raises BundleError."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    definitions = [yaml.safe_load((chart / "files" / name).read_text(encoding="utf-8")) for name in DEFINITIONS]
    manifests, metadata = folder / "manifests", folder / "metadata"
    manifests.mkdir(parents=True)
    metadata.mkdir()
    _write(manifests / f"{NAME}.clusterserviceversion.yaml", cluster_service_version(objects, about, definitions, examples()))
    for name, definition in zip(DEFINITIONS, definitions, strict=True):
        shutil.copyfile(chart / "files" / name, manifests / f"{definition['metadata']['name']}.yaml")
    _write(metadata / "annotations.yaml", {"annotations": annotations()})
    labels = "".join(f"LABEL {name}={value}\n" for name, value in annotations().items())
    copies = "COPY manifests /manifests/\nCOPY metadata /metadata/\n"
    (folder / "bundle.Dockerfile").write_text(f"FROM scratch\n{labels}{copies}", encoding="utf-8")


def annotations() -> dict[str, str]:
    """By which OLM finds its way in the bundle: labels of its image, and a file in it."""
    bundle = "operators.operatorframework.io.bundle"
    return {
        f"{bundle}.mediatype.v1": "registry+v1",
        f"{bundle}.manifests.v1": "manifests/",
        f"{bundle}.metadata.v1": "metadata/",
        f"{bundle}.package.v1": NAME,
        f"{bundle}.channels.v1": CHANNEL,
        f"{bundle}.channel.default.v1": CHANNEL,
    }


def examples() -> list[Object]:
    """The first topology of docs/run/kubernetes.md, and a snapshot."""
    texts = [(ROOT / "examples" / name).read_text(encoding="utf-8") for name in ("first-k8s.yaml", "snapshot.yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text)]
    return [each for each in documents if each["kind"].startswith("StreamTopology")]


def cluster_service_version(
    objects: Sequence[Object], about: Object, definitions: Sequence[Object], samples: Sequence[Object]
) -> Object:
    """The ClusterServiceVersion: the Deployment and the rights among `objects`, and what `about` (Chart.yaml) says of them."""
    deployment = _deployment(objects)
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    in_namespaces, in_cluster = _rights(objects)
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{NAME}.v{about['appVersion']}",
            "annotations": {
                "alm-examples": json.dumps(samples, indent=2),
                "capabilities": "Deep Insights",
                "categories": "Streaming & Messaging, Big Data",
                "containerImage": image,
                "description": about["description"],
            },
        },
        "spec": {
            "displayName": "StreamTopology",
            "description": f"{about['description']}. {about['home']}",
            "version": about["appVersion"],
            "minKubeVersion": about["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "maturity": CHANNEL,
            "provider": {"name": "StreamTopology"},
            "keywords": about["keywords"],
            "links": [{"name": "StreamTopology", "url": about["home"]}],
            "installModes": [
                {"type": mode, "supported": True}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned(definition) for definition in definitions]},
            "relatedImages": [{"name": "operator", "image": image}, {"name": "spark", "image": _spark_image(deployment)}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [deployment],
                    "permissions": [{"serviceAccountName": account, "rules": in_namespaces}],
                    "clusterPermissions": [{"serviceAccountName": account, "rules": in_cluster}],
                },
            },
        },
    }


def _owned(definition: Object) -> Object:
    spec = definition["spec"]
    version = spec["versions"][0]
    return {
        "name": definition["metadata"]["name"],
        "version": version["name"],
        "kind": spec["names"]["kind"],
        "displayName": spec["names"]["kind"],
        "description": version["schema"]["openAPIV3Schema"]["description"],
    }


def _deployment(objects: Sequence[Object]) -> Object:
    """The chart's, in the form of a ClusterServiceVersion; OLM says by an annotation which namespaces it works in."""
    [found] = [each for each in objects if each["kind"] == "Deployment"]
    template = found["spec"]["template"]
    for metadata in (found["metadata"], template["metadata"]):
        metadata["labels"] = {name: value for name, value in metadata["labels"].items() if name not in OF_HELM}
    security = template["spec"]["securityContext"]
    template["spec"]["securityContext"] = {name: value for name, value in security.items() if name not in UIDS}
    [namespaces] = [each for each in _environment(found) if each["name"] == "STREAMTOPOLOGY_WATCH_NAMESPACES"]
    namespaces.pop("value")
    namespaces["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    return {"name": found["metadata"]["name"], "label": found["metadata"]["labels"], "spec": found["spec"]}


def _environment(deployment: Object) -> list[Object]:
    return deployment["spec"]["template"]["spec"]["containers"][0]["env"]


def _spark_image(deployment: Object) -> str:
    return next(each["value"] for each in _environment(deployment) if each["name"] == "STREAMTOPOLOGY_IMAGE")


def _rights(objects: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """Rules for the operator's namespaces, and rules for the cluster.

    OLM grants the former in its own namespace and in those that it is to watch, or in all if those are all.
    """
    known = {"Deployment", "Role", "ClusterRole", *LEFT_OUT}
    unknown = sorted({each["kind"] for each in objects} - known)
    if unknown:
        raise BundleError(f"the chart makes {', '.join(unknown)}: scripts/olm_bundle.py has no place for it")
    rules = [rule for each in objects if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    in_cluster = [rule for rule in rules if rule["apiGroups"] == ["apiextensions.k8s.io"]]
    return [rule for rule in rules if rule not in in_cluster], in_cluster


def _write(path: Path, document: Object) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: scripts/olm_bundle.py FOLDER [HELM]")
    write_bundle(Path(sys.argv[1]), rendered(sys.argv[2] if len(sys.argv) == 3 else "helm"))
