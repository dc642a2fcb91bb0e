"""The settings of a pod that users may give: read from the manifest, written back, and checked against our own part.

The shapes are Kubernetes' own and are kept as they are; what they mean is judged by the API server when the operator
applies the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from streamtopology.contract import environment
from streamtopology.contract.pods import DRIVER_GRACE_SECONDS, EXECUTOR_GRACE_SECONDS, SECRET_FOLDER, SECRET_VOLUME, WRITABLE
from streamtopology.topology.limits import MOST_CONTAINERS, MOST_GRACE_SECONDS, MOST_POD_ITEMS, MOST_VOLUMES
from streamtopology.topology.problems import Problem, one_of
from streamtopology.topology.reading import LONGEST_NAME, NAME_EXPECTED, NAME_PATTERN, Place, is_mapping
from streamtopology.topology.values import JsonMap, PodSettings


@dataclass(frozen=True)
class PodField:
    """One setting: its name in the manifest and in PodSettings, its form, what every item needs, a line for people.

    `most`: items at most. `texts`: fields of an item where YAML reads another type without quotes (`value: 1`, `value: true`),
    which the API server refuses in a pod. `within`: settings of the same kind inside an item.
    """

    name: str
    attribute: str
    form: Literal["objects", "object", "texts", "text", "seconds"]
    summary: str
    needs: tuple[str, ...] = ()
    most: int = MOST_POD_ITEMS
    texts: tuple[str, ...] = ()
    within: tuple[PodField, ...] = ()


_ENV = PodField("env", "env", "objects", "environment variables of our container", ("name",), texts=("value",))

POD_FIELDS = (
    PodField("volumes", "volumes", "objects", "volumes of the pod", ("name",), MOST_VOLUMES),
    PodField("volumeMounts", "volume_mounts", "objects", "where our container sees them", ("name", "mountPath"), MOST_VOLUMES),
    _ENV,
    PodField("envFrom", "env_from", "objects", "ConfigMaps and Secrets that become environment variables"),
    PodField("nodeSelector", "node_selector", "texts", "labels of the nodes that the pod may run on"),
    PodField(
        "tolerations",
        "tolerations",
        "objects",
        "taints of nodes that the pod bears",
        texts=("key", "operator", "value", "effect"),
    ),
    PodField("affinity", "affinity", "object", "nodes and pods to be near to or far from"),
    PodField("topologySpreadConstraints", "topology_spread_constraints", "objects", "how the pods spread over zones and nodes"),
    PodField("annotations", "annotations", "texts", "annotations of the pod"),
    PodField("labels", "labels", "texts", "labels of the pod, in addition to ours"),
    PodField("serviceAccountName", "service_account_name", "text", "a service account of yours (workload identity)"),
    PodField("imagePullSecrets", "image_pull_secrets", "objects", "Secrets to pull the image with", ("name",)),
    PodField("priorityClassName", "priority_class_name", "text", "priority class of the pod"),
    PodField(
        "initContainers",
        "init_containers",
        "objects",
        "containers that end before ours start; with restartPolicy: Always sidecars, which start before ours and end after it",
        ("name", "image"),
        MOST_CONTAINERS,
        within=(replace(_ENV, summary="environment variables"),),
    ),
    PodField("securityContext", "security_context", "object", "fields of the pod's security context, in place of ours"),
    PodField("schedulerName", "scheduler_name", "text", "the scheduler of the pod"),
    PodField("runtimeClassName", "runtime_class_name", "text", "runtime class of the pod"),
    PodField("terminationGracePeriodSeconds", "termination_grace_seconds", "seconds", "seconds that the pod has to end"),
)


@dataclass(frozen=True)
class PodKind:
    """The parts of a pod that are the operator's: its containers, its volumes with their paths.

    `grace_seconds`: the least that its process needs to end, and `why`.
    """

    containers: tuple[str, ...]
    mounts: Mapping[str, str]
    grace_seconds: int
    why: str


# Also of the pre-copy Job, whose pod has the driver's settings.
DRIVER_POD = PodKind(
    ("driver", "migrate"), {**WRITABLE, SECRET_VOLUME: SECRET_FOLDER}, DRIVER_GRACE_SECONDS, "the driver finishes its batch"
)

EXECUTOR_POD = PodKind(("executor",), WRITABLE, EXECUTOR_GRACE_SECONDS, "an executor hands over")

RESERVED_LABEL_PREFIXES = ("app.kubernetes.io/", "streamtopology.dev/")

NAME_OF_LABEL = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE_PATTERN = "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
LABEL_VALUE_EXPECTED = "a label's value: at most 63 letters, digits, -, _ and ., a letter or digit at both ends"
LONGEST_LABEL_VALUE = 63
LABEL_NAME_PATTERN = f"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{NAME_OF_LABEL}"
LABEL_NAME_EXPECTED = "a label's name: [PREFIX/]NAME, NAME of at most 63 letters, digits, -, _ and ., PREFIX a DNS name"

# Sentences that the API server's rules say, too.
OWN_VOLUME = "the name of a volume that the operator adds: choose another"
OWN_PATH = "where the operator mounts a volume of its own: choose another path"
OWN_CONTAINER = "the name of the operator's own container: choose another"
REPEATED_PATH = "they need different paths"


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
    if field.form == "seconds":
        return place.whole(0, 1, MOST_GRACE_SECONDS) or None
    return place.text("a name") if place.present else None


def _read_object(field: PodField, place: Place) -> JsonMap:
    written = place.free_options("what Kubernetes takes there", required=True)
    for name in field.needs if is_mapping(place.value) else ():
        Place(written.get(name), f"{place.path}.{name}", place.problems).text("a text")
    for name in field.texts:
        if written.get(name) is not None and not isinstance(written[name], str):
            Place(written[name], f"{place.path}.{name}", place.problems).expected("a text: write it with quotes")
    for inner in field.within:
        if inner.name in written:
            _read(inner, Place(written[inner.name], f"{place.path}.{inner.name}", place.problems))
    return written


def write_pod(pod: PodSettings) -> dict[str, object]:
    """The settings in Kubernetes' names, those left out or empty left out: ready for a pod template."""
    written: dict[str, object] = {}
    for field in POD_FIELDS:
        value = getattr(pod, field.attribute)
        if value:
            written[field.name] = list(cast("Sequence[object]", value)) if isinstance(value, tuple) else value
    return written


def pod_problems(path: str, pod: PodSettings, kind: PodKind) -> Iterator[Problem]:
    """Find settings that conflict with each other or belong to the operator. `path`: of the settings."""
    yield from _named_twice(f"{path}.volumes", pod.volumes)
    yield from _named_twice(f"{path}.env", pod.env)
    yield from _named_twice(f"{path}.initContainers", pod.init_containers)
    yield from _taken(f"{path}.volumes", pod.volumes, tuple(kind.mounts), OWN_VOLUME)
    yield from _taken(f"{path}.volumeMounts", pod.volume_mounts, tuple(kind.mounts.values()), OWN_PATH, "mountPath")
    yield from _taken(f"{path}.initContainers", pod.init_containers, kind.containers, OWN_CONTAINER)
    volumes = [str(volume.get("name")) for volume in pod.volumes]
    paths = [_without_slashes(mount.get("mountPath")) for mount in pod.volume_mounts]
    for index, mount in enumerate(pod.volume_mounts):
        if mount.get("name") not in volumes:
            yield Problem(f"{path}.volumeMounts[{index}].name", f"unknown volume: {one_of(str(mount.get('name')), volumes)}")
        if paths[index] in paths[:index]:
            yield Problem(f"{path}.volumeMounts[{index}].mountPath", f"found {paths[index]!r} again; {REPEATED_PATH}")
    if pod.termination_grace_seconds is not None and pod.termination_grace_seconds < kind.grace_seconds:
        message = f"found {pod.termination_grace_seconds}, expected at least {kind.grace_seconds}: {kind.why} in that time"
        yield Problem(f"{path}.terminationGracePeriodSeconds", message)
    for index, variable in enumerate(pod.env):
        name = str(variable.get("name"))
        if name in environment.FOR_USERS:
            continue
        if name.startswith(environment.PREFIX) or name in environment.RESERVED:
            yield Problem(f"{path}.env[{index}].name", f"found {name!r}, which the operator sets itself")
    for what, labels in (("labels", pod.labels), ("nodeSelector", pod.node_selector)):
        for name, value in labels.items():
            if len(value) > LONGEST_LABEL_VALUE or not re.fullmatch(LABEL_VALUE_PATTERN, value):
                yield Problem(f"{path}.{what}", f"found {value!r} for {name!r}, expected {LABEL_VALUE_EXPECTED}")
    yield from _misnamed(path, pod)
    for what, names in (("labels", pod.labels), ("annotations", pod.annotations)):
        for name in names:
            if name.startswith(RESERVED_LABEL_PREFIXES):
                yield Problem(f"{path}.{what}", f"found {name!r}, which the operator sets itself")


def _misnamed(path: str, pod: PodSettings) -> Iterator[Problem]:
    """Names that the API server would refuse once the pod is made."""
    for what, names in (("labels", pod.labels), ("annotations", pod.annotations), ("nodeSelector", pod.node_selector)):
        for name in names:
            if not re.fullmatch(LABEL_NAME_PATTERN, name):
                yield Problem(f"{path}.{what}", f"found {name!r}, expected {LABEL_NAME_EXPECTED}")
    for what, items in (("volumes", pod.volumes), ("initContainers", pod.init_containers)):
        for index, item in enumerate(items):
            name = item.get("name")  # what is no text is a problem of its own
            if isinstance(name, str) and name and (len(name) > LONGEST_NAME or not re.fullmatch(NAME_PATTERN, name)):
                yield Problem(f"{path}.{what}[{index}].name", f"found {name!r}, expected {NAME_EXPECTED}")


def _named_twice(path: str, items: Sequence[JsonMap]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        name = str(item.get("name"))  # what is no text is a problem of its own
        if name in first:
            yield Problem(f"{path}[{index}].name", f"found {name!r} again, [{first[name]}] has it; they need different names")
        first.setdefault(name, index)


def _taken(path: str, items: Sequence[JsonMap], ours: Sequence[str], why: str, key: str = "name") -> Iterator[Problem]:
    for index, item in enumerate(items):
        if _without_slashes(item.get(key)) in ours:
            yield Problem(f"{path}[{index}].{key}", f"found {item[key]!r}, {why}")


def _without_slashes(path: object) -> object:
    """A path without the slashes at its end: `/tmp/` is `/tmp`, which the API server does not see, but the node."""
    return (path.rstrip("/") or path) if isinstance(path, str) else path
