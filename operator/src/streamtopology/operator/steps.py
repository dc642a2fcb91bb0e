"""What a decision consists of: steps to take, in order, and events to tell. Values; `apply.py` carries them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streamtopology.operator.names import Kind
from streamtopology.operator.seen import Resources
from streamtopology.routing.topology import format_cpu, format_memory

Object = dict[str, Any]


@dataclass(frozen=True)
class Apply:
    """Server-side apply of a whole object."""

    body: Object

    def __str__(self) -> str:
        return f"apply {self.body['kind']} {self.body['metadata']['name']}"

    @property
    def point(self) -> str:
        return f"apply-{self.body['kind']}"


@dataclass(frozen=True)
class MakeSecret:
    """Make Spark's secret, of new random text, where there is none."""

    name: str

    def __str__(self) -> str:
        return f"make Secret {self.name}"

    @property
    def point(self) -> str:
        return "make-Secret"


@dataclass(frozen=True)
class Finalizer:
    """Put our finalizer on the topology, or take it off: by server-side apply, so that others' stay as they are."""

    present: bool

    def __str__(self) -> str:
        return "ask to be told before it is deleted" if self.present else "let it be deleted"

    @property
    def point(self) -> str:
        return "finalizer"


@dataclass(frozen=True)
class Patch:
    """Change a few fields of an owned object by a merge patch."""

    kind: Kind
    name: str
    body: Mapping[str, Any]
    what: str

    def __str__(self) -> str:
        return f"{self.what} ({self.kind.kind} {self.name})"

    @property
    def point(self) -> str:
        return f"patch-{self.kind.kind}"


@dataclass(frozen=True)
class Resize:
    """Change the limits of a running pod in place."""

    pod: str
    class_name: str
    resources: Resources

    def __str__(self) -> str:
        cpu, memory = self.resources
        return f"resize pod {self.pod} to {format_cpu(cpu)} CPU and {format_memory(memory)}"

    @property
    def point(self) -> str:
        return "resize-Pod"


@dataclass(frozen=True)
class Delete:
    """Delete an object; `uid` guards against deleting a namesake made since."""

    kind: Kind
    name: str
    uid: str
    why: str

    def __str__(self) -> str:
        return f"delete {self.kind.kind} {self.name}: {self.why}"

    @property
    def point(self) -> str:
        return f"delete-{self.kind.kind}"


Step = Finalizer | Apply | MakeSecret | Patch | Resize | Delete


@dataclass(frozen=True)
class Event:
    """An event of the topology, for `kubectl describe`."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
