"""The parts of a decision, as values: steps to take in order, and events to post. `io/apply.py` carries them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamtopology.k8s import names
from streamtopology.k8s.decide.owned_objects import Resources
from streamtopology.k8s.names import Kind
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import format_cpu, format_memory


class _Step:
    """Something that is done to one object, `place`: its kind and name."""

    @property
    def content(self) -> str:
        """Equal for steps that bring about the same."""
        return str(self)


@dataclass(frozen=True)
class Apply(_Step):
    """Server-side apply of a whole object. `why`: the fields that make it necessary, where it is not a new content."""

    body: Object
    why: str = field(default="", compare=False)

    def __str__(self) -> str:
        text = f"apply {self.body['kind']} {self.body['metadata']['name']}"
        return f"{text}: {self.why}" if self.why else text

    @property
    def place(self) -> tuple[str, str]:
        return self.body["kind"], self.body["metadata"]["name"]

    @property
    def content(self) -> str:
        return f"apply {self.body['metadata']['annotations'][names.CONTENT]}"

    @property
    def point(self) -> str:
        return f"apply-{self.body['kind']}"


@dataclass(frozen=True)
class Finalizer(_Step):
    """Add our finalizer to the topology, or remove it, also if others have written it. Others' stay as they are."""

    present: bool

    def __str__(self) -> str:
        return "add the finalizer" if self.present else "remove the finalizer"

    @property
    def place(self) -> tuple[str, str]:
        return names.TOPOLOGY.kind, "finalizer"

    @property
    def point(self) -> str:
        return "finalizer"


@dataclass(frozen=True)
class Patch(_Step):
    """Change a few fields of an owned object by a strategic merge patch: containers and variables are found by their names."""

    kind: Kind
    name: str
    body: Mapping[str, Any]
    what: str

    def __str__(self) -> str:
        return f"{self.what} ({self.kind.kind} {self.name})"

    @property
    def content(self) -> str:
        return f"patch {json.dumps(self.body, sort_keys=True)}"

    @property
    def place(self) -> tuple[str, str]:
        return self.kind.kind, self.name

    @property
    def point(self) -> str:
        return f"patch-{self.kind.kind}"


@dataclass(frozen=True)
class Resize(_Step):
    """Change the limits of a running pod in place."""

    pod: str
    class_name: str
    resources: Resources

    def __str__(self) -> str:
        cpu, memory = self.resources
        return f"resize pod {self.pod} to {format_cpu(cpu)} CPU and {format_memory(memory)}"

    @property
    def place(self) -> tuple[str, str]:
        return names.POD.kind, self.pod

    @property
    def point(self) -> str:
        return "resize-Pod"


@dataclass(frozen=True)
class Delete(_Step):
    """Delete an object; `uid` keeps a namesake created since. `at_once`: without waiting for a pod's processes to end."""

    kind: Kind
    name: str
    uid: str
    why: str
    at_once: bool = False

    def __str__(self) -> str:
        return f"delete {self.kind.kind} {self.name}: {self.why}"

    @property
    def place(self) -> tuple[str, str]:
        return self.kind.kind, self.name

    @property
    def content(self) -> str:
        return f"delete {self.uid}{' at once' if self.at_once else ''}"

    @property
    def point(self) -> str:
        return f"delete-{self.kind.kind}"


@dataclass(frozen=True)
class MakeSecret(_Step):
    """Create Spark's secret, of new random text, where there is none.

    `restarts`: pods that know a previous one, which nobody can make again. They are deleted first, so that an operator killed
    in between finds the secret missing, and continues.
    """

    name: str
    restarts: tuple[Delete, ...] = ()

    def __str__(self) -> str:
        return f"create Secret {self.name}" + (f" and restart {len(self.restarts)} pods with it" if self.restarts else "")

    @property
    def place(self) -> tuple[str, str]:
        return names.SECRET.kind, self.name

    @property
    def content(self) -> str:
        return f"create Secret {self.name}"

    @property
    def point(self) -> str:
        return "make-Secret"


Step = Finalizer | Apply | MakeSecret | Patch | Resize | Delete


@dataclass(frozen=True)
class Event:
    """An event of a topology or a snapshot, for `kubectl describe`."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
