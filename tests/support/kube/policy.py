"""Policies of a cluster that refuse changes in one namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client

from support.kube.running_operator import Topologies


@contextmanager
def refusing(topologies: Topologies, group: str, resources: list[str]) -> Iterator[None]:
    """Inside, nobody may change objects of these kinds in the namespace, as a policy of the cluster has it."""
    admission = client.AdmissionregistrationV1Api(topologies.core.api_client)
    name = f"frozen-{topologies.namespace}"
    rules = [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": resources}]
    policy = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "false", "message": "frozen by the cluster's owner"}],
        },
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": topologies.namespace}}}
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": here},
    }
    admission.create_validating_admission_policy(policy)
    admission.create_validating_admission_policy_binding(binding)
    try:
        yield
    finally:
        admission.delete_validating_admission_policy_binding(name)
        admission.delete_validating_admission_policy(name)
