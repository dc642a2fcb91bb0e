"""What users may set on a pod: read from the manifest, written back, and judged as far as our own part goes.

The shapes are Kubernetes' own and are kept as they are; what they mean is judged by the API server when the operator
applies the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from streamtopology.routing.topology.limits import MOST_POD_ITEMS, MOST_VOLUMES
from streamtopology.routing.topology.problems import Problem, one_of
from streamtopology.routing.topology.reading import Place, is_mapping
from streamtopology.routing.topology.values import JsonMap, PodSettings


@dataclass(frozen=True)
class PodField:
    """One setting: its name in the manifest and in PodSettings, its form, what every item needs, a line for people.

    `most`: items at most.
    """

    name: str
    attribute: str
    form: Literal["objects", "object", "texts", "text"]
    summary: str
    needs: tuple[str, ...] = ()
    most: int = MOST_POD_ITEMS


POD_FIELDS = (
    PodField("volumes", "volumes", "objects", "volumes of the pod", ("name",), MOST_VOLUMES),
    PodField("volumeMounts", "volume_mounts", "objects", "where our container sees them", ("name", "mountPath"), MOST_VOLUMES),
    PodField("env", "env", "objects", "environment variables of our container", ("name",)),
    PodField("envFrom", "env_from", "objects", "ConfigMaps and Secrets that become environment variables"),
    PodField("nodeSelector", "node_selector", "texts", "labels of the nodes that the pod may run on"),
    PodField("tolerations", "tolerations", "objects", "taints of nodes that the pod bears"),
    PodField("affinity", "affinity", "object", "nodes and pods to be near to or far from"),
    PodField("topologySpreadConstraints", "topology_spread_constraints", "objects", "how the pods spread over zones and nodes"),
    PodField("annotations", "annotations", "texts", "annotations of the pod"),
    PodField("labels", "labels", "texts", "labels of the pod, beside ours"),
    PodField("serviceAccountName", "service_account_name", "text", "a service account of yours (workload identity)"),
    PodField("imagePullSecrets", "image_pull_secrets", "objects", "Secrets to pull the image with", ("name",)),
    PodField("priorityClassName", "priority_class_name", "text", "priority class of the pod"),
)

RESERVED_ENV_PREFIX = "STREAMTOPOLOGY_"
RESERVED_ENV = (
    "POD_IP",
    "POD_NAME",
    "_SPARK_AUTH_SECRET",
    "SPARK_EXECUTOR_ATTRIBUTE_CLASS",
    "SPARK_EXECUTOR_ATTRIBUTE_POD_NAME",
)
RESERVED_LABEL_PREFIXES = ("app.kubernetes.io/", "streamtopology.dev/")


def read_pod(place: Place) -> PodSettings:
    """The settings at this place, which may be absent."""
    if not place.present:
        return PodSettings()
    fields = place.fields(*(field.name for field in POD_FIELDS))
    values: dict[str, Any] = {field.attribute: _read(field, fields[field.name]) for field in POD_FIELDS}
    return PodSettings(**values)


def _read(field: PodField, place: Place) -> object:
    if field.form == "objects":
        place.at_most(field.most, field.name)
        return tuple(_read_object(field, item) for item in place.items("mappings"))
    if field.form == "object":
        return place.free_options("what Kubernetes takes there")
    if field.form == "texts":
        place.at_most(field.most, field.name)
        return place.text_map()
    return place.text("a name") if place.present else None


def _read_object(field: PodField, place: Place) -> JsonMap:
    written = place.free_options("what Kubernetes takes there", required=True)
    for name in field.needs if is_mapping(place.value) else ():
        Place(written.get(name), f"{place.path}.{name}", place.problems).text("a text")
    return written


def write_pod(pod: PodSettings) -> dict[str, object]:
    """The settings in Kubernetes' names, those left out or empty left out: ready for a pod template."""
    written: dict[str, object] = {}
    for field in POD_FIELDS:
        value = getattr(pod, field.attribute)
        if value:
            written[field.name] = list(cast("Sequence[object]", value)) if isinstance(value, tuple) else value
    return written


def pod_problems(path: str, pod: PodSettings) -> Iterator[Problem]:
    """What does not go together within the settings, or is the operator's to set. `path`: of the settings."""
    yield from _named_twice(f"{path}.volumes", pod.volumes)
    yield from _named_twice(f"{path}.env", pod.env)
    volumes = [str(volume.get("name")) for volume in pod.volumes]
    for index, mount in enumerate(pod.volume_mounts):
        if mount.get("name") not in volumes:
            yield Problem(f"{path}.volumeMounts[{index}].name", f"unknown volume: {one_of(str(mount.get('name')), volumes)}")
    for index, variable in enumerate(pod.env):
        name = str(variable.get("name"))
        if name.startswith(RESERVED_ENV_PREFIX) or name in RESERVED_ENV:
            yield Problem(f"{path}.env[{index}].name", f"found {name!r}, which the operator sets itself")
    for what, names in (("labels", pod.labels), ("annotations", pod.annotations)):
        for name in names:
            if name.startswith(RESERVED_LABEL_PREFIXES):
                yield Problem(f"{path}.{what}", f"found {name!r}, which the operator sets itself")


def _named_twice(path: str, items: Sequence[Mapping[str, object]]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        name = str(item.get("name"))  # what is no text is a problem of its own
        if name in first:
            yield Problem(f"{path}[{index}].name", f"found {name!r} again, [{first[name]}] has it; they need different names")
        first.setdefault(name, index)
