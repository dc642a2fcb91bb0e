"""Policies of a cluster that refuse changes in one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client

from support.kube.running_operator import Topologies
from support.waiting import eventually


@contextmanager
def refusing(topologies: Topologies, group: str, resources: list[str]) -> Iterator[None]:
    """Inside, nobody may change objects of these kinds in the namespace, as a policy of the cluster has it.

    It is in force when the body begins: it refuses a change of a ConfigMap, too, that nobody else looks at.
    """
    admission = client.AdmissionregistrationV1Api(topologies.core.api_client)
    name = f"frozen-{topologies.namespace}"
    rules = [
        {"apiGroups": [api_group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": kinds}
        for api_group, kinds in ((group, resources), ("", ["configmaps"]))
    ]
    others = f"request.resource.resource == 'configmaps' && object.metadata.name != '{name}'"
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": others, "message": "frozen by the cluster's owner"}],
        },
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": topologies.namespace}}}
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": here},
    }
    admission.create_validating_admission_policy(policy)
    admission.create_validating_admission_policy_binding(binding)
    probe = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))
    topologies.core.create_namespaced_config_map(topologies.namespace, probe)
    try:
        eventually(lambda: _is_refused(topologies, name))
        yield
    finally:
        admission.delete_validating_admission_policy_binding(name)
        admission.delete_validating_admission_policy(name)


def _is_refused(topologies: Topologies, probe: str) -> bool:
    try:
        topologies.core.patch_namespaced_config_map(probe, topologies.namespace, {"data": {"changed": "yes"}}, dry_run="All")
    except client.ApiException as refusal:
        return refusal.status == 422 or "frozen by" in str(refusal.body)
    return False
