"""The Job of a StreamTopologySnapshot: it copies the topology's checkpoint as of its newest commit."""

from __future__ import annotations

from collections.abc import Iterable

from streamtopology.k8s import names
from streamtopology.k8s.resources.checkpoint_job import checkpoint_job, copying_container
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.topology import Topology

# The time that a copy may take, tries and waiting for room together: its hold on the checkpoint's files lasts as long.
DEADLINE_SECONDS = 86_400

# The pod's report of batch and bytes: the kubelet puts it into the pod's status.
REPORT = "/dev/termination-log"


def job(
    owner: Owner,
    topology: Topology,
    image: str,
    user: int | None,
    checkpoint: str,
    to: str,
    dropped: Iterable[tuple[str, str]] = (),
) -> Object:
    """The Job that copies `checkpoint` to `to`. `owner`: the snapshot; the Job goes with it.

    `dropped`: identity and place of the copies that it deletes once its own is whole.
    """
    run = owner.uid.replace("-", "")  # the copy of a Job that has to be made again is the same snapshot's
    copied = ["snapshot", "--checkpoint", checkpoint, "--to", to, "--run", run, "--report", REPORT]
    command = [*copied, *(argument for old, place in dropped for argument in ("--drop", old, place))]
    return checkpoint_job(
        owner,
        topology,
        user,
        names.snapshot(owner.name),
        "snapshot",
        copying_container(owner, topology, image, "snapshot", command),
        activeDeadlineSeconds=DEADLINE_SECONDS,
    )
