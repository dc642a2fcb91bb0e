"""Pods that admission has changed on their way from a template that is as we wrote it. Pure.

Nobody keeps account of who wrote which field of a pod, so it is compared with its template. Another pod in its place would be
changed as well: it is reported and left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.own_fields import Differences, pod_changes
from streamtopology.k8s.decide.owned_objects import Pod
from streamtopology.k8s.resources.objects import Object


def altered_pods(seen: Observation, workloads: Sequence[Object], newest: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each change of pods of the `workloads`. `newest`: class -> the revision of its StatefulSet."""
    pods: dict[str, list[str]] = {}
    for workload in workloads:
        for pod in _made_of(seen, workload, newest):
            for change in _changes(pod, workload["spec"]["template"]):
                pods.setdefault(change, []).append(pod.name)
    return tuple(
        f"Pod {first}: {change}{f' (and {len(more)} more pods)' if more else ''}" for change, (first, *more) in pods.items()
    )


def _made_of(seen: Observation, workload: Object, newest: Mapping[str, str]) -> list[Pod]:
    """The pods that were made of this template."""
    labels, content = workload["metadata"]["labels"], _content(workload["spec"]["template"])
    class_name = labels.get(names.CLASS)
    if class_name is None:
        return [pod for pod in seen.drivers if pod.pod_content == content]
    revision = newest.get(class_name)
    return [pod for pod in seen.pods("executor", class_name) if revision and pod.revision == revision]


def _changes(pod: Pod, template: Object) -> tuple[str, ...]:
    content = _content(template)
    if content not in pod.differences:
        pod.differences[content] = Differences(mutated=pod_changes(template["spec"], pod.values))
    return pod.differences[content].mutated


def _content(template: Object) -> str:
    return template["metadata"]["annotations"][names.POD_CONTENT]
