"""The chart: what it refuses, what an API server says to what it makes, and what the operator may do by it."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.kube.apiserver import ApiServer
from support.kube.binaries import binary, require
from support.kube.neighbours import PROMETHEUS_OPERATOR
from support.kube.processes import ProcessFailed, run
from support.kube.rendering import CHART, MONITORED, Manifest, helm, only, render, rendered

from streamtopology.k8s.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]
CRD, SNAPSHOT_CRD = "streamtopologies.streamtopology.dev.yaml", "streamtopologysnapshots.streamtopology.dev.yaml"
MONITORS = {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
DEFAULT_MONITORS = MONITORS - {"ServiceMonitor"}


EVERY_POD_OPTION = {
    "replicas": 2,
    "image": {"registry": "registry.example.com:5000/team", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "sparkImage": {"tag": "next"},
    "commonLabels": {"example.com/cost": "streams"},
    "logLevel": "DEBUG",
    "workers": 4,
    "extraArgs": ["--upgrade-seconds=300"],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    "probes": {"startup": {"failureThreshold": 600}, "liveness": {"timeoutSeconds": 30}, "readiness": {"periodSeconds": 1}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "podSecurityContext": {"fsGroupChangePolicy": "OnRootMismatch", "supplementalGroups": [2000]},
    "securityContext": {"seLinuxOptions": {"level": "s0:c1"}},
    "revisionHistoryLimit": 2,
    "commonAnnotations": {"example.com/owner": "streams"},
    "deploymentAnnotations": {"reloader.example.com/auto": "true"},
    "envFrom": [{"secretRef": {"name": "proxy", "optional": True}}, {"configMapRef": {"name": "proxy"}, "prefix": "P_"}],
    "logFormat": "json",
    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["registry.example.com"]}],
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"example.com/team": "streams"},
    "podLabels": {"team": "streams"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}]}}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "serviceAccount": {"annotations": {"iam.example.com/role": "none"}},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "pageFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}],
    },
    "page": {"enabled": True, "hosts": ["stopo.example.com"]},
    "tracing": {"endpoint": "http://collector.observability:4318", "headersSecret": {"name": "collector", "key": "token"}},
}  # fmt: skip


def test_lint_has_nothing_to_say():
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    ("wrong", "output"),
    [
        ("replicas=-1", "replicas"),
        ("replicas=two", "replicas"),
        ("replicaCount=2", "replicaCount"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("image.name=x", "image"),
        ("watchNamespaces={Bad_Name}", "watchNamespaces"),
        ("watchNamespaces=one", "watchNamespaces"),
        ("metrics.interval=15", "interval"),
        ("fullnameOverride=Not_A_Name", "fullnameOverride"),
        ("rbac.create=maybe", "rbac"),
        ("image.digest=latest", "digest"),
        ("image.registry=https://registry.example.com", "registry"),
        ("commonLabels.app\\.kubernetes\\.io/name=x", "app.kubernetes.io/name"),
        ("podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
        ("extraArgs={streamtopology-operator}", "extraArgs"),
        ("probes.liveness.path=/", "path"),
        ("logLevel=loud", "logLevel"),
        ("crds.keep=false", "keep"),
        ("global.imagePullSecrets=registry", "imagePullSecrets"),
        ("podDisruptionBudget.minAvailable=0", "minAvailable"),
        ("logFormat=yaml", "logFormat"),
        ("podUser=root", "podUser"),
        ("disruptionBudget=maybe", "disruptionBudget"),
        ("nodeLossSeconds=-1", "nodeLossSeconds"),
        ("podUser=0", "podUser"),
        ("page.hosts={https://stopo.example.com}", "hosts"),
        ("tracing.endpoint=collector:4318", "endpoint"),
        ("tracing.endpoint=http://me:token@collector:4318", "endpoint"),
        ("tracing.headers=authorization=x", "headers"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(wrong: str, output: str):
    with pytest.raises(ProcessFailed, match=output):
        render("--set", wrong)


def paths(values: Manifest, above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


ODD = ("null", "{}", "{a,b}", "-1", "true", "a b", "Ä", "")


@pytest.mark.parametrize("path", list(paths(yaml.safe_load((CHART / "values.yaml").read_text()))))
def test_odd_value_is_taken_or_refused_by_its_name(path: str):
    """Refused by the schema, or by a sentence for a missing value: Helm's templates would name a line, the API server an
    object."""
    for odd in ODD:
        try:
            made = rendered("--skip-tests", *MONITORED, "--set", f"{path}={odd}")
        except ProcessFailed as refused:
            answer = str(refused).partition("ended with")[2]
            by_name = "is missing" if odd == "null" else "values don't meet the specifications of the schema"
            assert by_name in answer, f"{path}={odd}"
            assert path.rpartition(".")[2] in answer
        else:
            assert all(one["metadata"]["name"] for one in made)


@pytest.fixture
def another_release(api_server: ApiServer, namespace: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The namespace of a release that watches the namespaces of the parameter."""
    (other,) = [one for one in render(namespace=namespace) if one["kind"] == "Deployment"]
    environment = other["spec"]["template"]["spec"]["containers"][0]["env"]
    next(one for one in environment if one["name"] == "STREAMTOPOLOGY_WATCH_NAMESPACES")["value"] = request.param
    api_server.kubectl("apply", "-f", "-", stdin=yaml.dump(other))
    yield namespace
    api_server.kubectl("delete", "-f", "-", stdin=yaml.dump(other))


@pytest.mark.parametrize(
    ("another_release", "ours", "shared"),
    [("", "", True), ("one,two", "", True), ("", "{one}", True), ("one,two", "{two,three}", True), ("one", "{two}", False)],
    indirect=["another_release"],
)
def test_release_is_refused_where_another_one_serves_its_namespaces(
    api_server: ApiServer, another_release: str, ours: str, shared: bool
):
    seen = ["--skip-tests", "--kubeconfig", str(api_server.kubeconfig), "--dry-run=server"]
    if ours:
        seen += ["--set", f"watchNamespaces={ours}"]
    assert rendered(*seen, namespace=another_release), "the same release is upgraded"
    if not shared:
        assert rendered(*seen)
        return
    with pytest.raises(ProcessFailed, match=f"the operator in namespace {another_release} serves"):
        rendered(*seen)


def test_page_is_off_by_default_and_has_a_port_and_a_service_if_asked_for():
    assert all(made["kind"] != "Service" for made in rendered("--skip-tests"))
    asked = rendered("--skip-tests", "--set", "page.enabled=true", "--set", "page.hosts={a.example}")
    made = {one["kind"]: one for one in asked}
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    port = next(one["containerPort"] for one in container["ports"] if one["name"] == "page")
    assert environment["STREAMTOPOLOGY_PAGE_PORT"] == str(port)
    assert environment["STREAMTOPOLOGY_PAGE_HOSTS"] == "a.example"
    assert made["Service"]["spec"]["ports"] == [{"name": "page", "port": 80, "targetPort": "page"}]
    assert any(rule["ports"][0]["port"] == "page" for rule in made["NetworkPolicy"]["spec"]["ingress"])


def test_traces_are_off_by_default_and_their_headers_are_in_a_secret():
    def variables(*values: str) -> dict[str, Manifest]:
        [container] = only(rendered(*values), "Deployment")["spec"]["template"]["spec"]["containers"]
        return {one["name"]: one for one in container["env"] if one["name"].startswith("OTEL_")}

    assert variables() == {}
    assert variables("--set", "tracing.headersSecret.name=collector") == {}
    endpoint = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector:4318"}
    asked = ("--set", "tracing.endpoint=https://collector:4318")
    assert variables(*asked) == {endpoint["name"]: endpoint}
    headers = variables(*asked, "--set", "tracing.headersSecret.name=collector")["OTEL_EXPORTER_OTLP_HEADERS"]
    assert headers["valueFrom"] == {"secretKeyRef": {"name": "collector", "key": "headers"}}
    assert "value" not in headers


@pytest.fixture(scope="module")
def release_namespace(api_server: ApiServer) -> str:
    """The namespaces `operators` and `streams`; the CRD is served."""
    for name in ("operators", "streams"):
        api_server.kubectl("create", "namespace", name)
    for file in (CRD, SNAPSHOT_CRD):
        api_server.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / file))
    return "operators"


@pytest.mark.parametrize(
    "values",
    [{}, {"watchNamespaces": ["streams"]}, EVERY_POD_OPTION, {"replicas": 0, "rbac": {"create": False}}, {"podUser": ""}],
    ids=["default", "namespaced", "every pod option", "without rights", "without users"],
)
def test_an_api_server_takes_what_it_makes(api_server: ApiServer, release_namespace: str, tmp_path: Path, values: Manifest):
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(values))
    made = yaml.safe_dump_all(rendered("--skip-tests", "--values", str(given)))
    output = api_server.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=made)
    assert "deployment.apps/streamtopology serverside-applied" in output


def test_every_option_reaches_the_pod(tmp_path: Path):
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(EVERY_POD_OPTION))
    made = rendered("--values", str(given))
    assert all(each["metadata"]["labels"]["example.com/cost"] == "streams" for each in made)
    assert only(made, "PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    deployment = only(made, "Deployment")["spec"]
    assert deployment["strategy"] == EVERY_POD_OPTION["strategy"]
    [container] = deployment["template"]["spec"]["containers"]
    assert container["args"] == ["streamtopology-operator", "--upgrade-seconds=300"]
    assert container["startupProbe"]["failureThreshold"] == 600
    assert container["startupProbe"]["periodSeconds"] == 2, "one setting leaves the others"
    variables = {each["name"]: each.get("value") for each in container["env"]}
    settings = read_settings(container["args"][1:], {name: value for name, value in variables.items() if value})
    spark = "registry.example.com:5000/team/streamtopology/spark:next"
    expected = Settings(
        image=spark,
        identity=settings.identity,
        log_level="DEBUG",
        log_format="json",
        workers=4,
        upgrade_seconds=300,
        page_port=8081,
        page_hosts=("stopo.example.com",),
        release="streamtopology",
    )
    assert settings == expected
    test = only(made, "Pod", "streamtopology-test")
    for name in ("image", "imagePullPolicy", "securityContext"):
        assert test["spec"]["containers"][0][name] == container[name]
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName", "securityContext"):
        assert test["spec"][name] == deployment["template"]["spec"][name]
    assert not deployment["selector"]["matchLabels"].items() <= test["metadata"]["labels"].items()


ZEROS = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("values", "operator", "spark"),
    [
        ("image.registry=", "streamtopology/operator:0.1.0", "streamtopology/spark:0.1.0"),
        ("image.registry=r.io:5000", "r.io:5000/streamtopology/operator:0.1.0", "r.io:5000/streamtopology/spark:0.1.0"),
        ("image.tag=a,sparkImage.tag=b", "streamtopology/operator:a", "streamtopology/spark:b"),
        (
            f"image.registry=r.io/team,image.tag=a,image.digest={ZEROS},sparkImage.digest={ZEROS},sparkImage.repository=own",
            f"r.io/team/streamtopology/operator@{ZEROS}", f"r.io/team/own@{ZEROS}",
        ),
    ],
)  # fmt: skip
def test_registry_is_one_value_and_a_digest_wins_over_a_tag(values: str, operator: str, spark: str):
    [container] = only(render("--set", values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == operator
    assert {"name": "STREAMTOPOLOGY_IMAGE", "value": spark} in container["env"]


@pytest.mark.parametrize(("user", "ids"), [("10001", [10001] * 3), ("1000660000", [1000660000] * 3), ("", [None] * 3)])
def test_operator_and_topologies_run_as_the_given_user_or_the_platforms(user: str, ids: list[int | None]):
    pod = only(render("--set", f"podUser={user}"), "Deployment")["spec"]["template"]["spec"]
    assert [pod["securityContext"].get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")] == ids
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert read_settings([], {"STREAMTOPOLOGY_POD_USER": env["STREAMTOPOLOGY_POD_USER"]}).pod_user == ids[0]


def test_storage_is_that_of_the_operator_and_of_the_pod_that_tests_the_release():
    values = ("requests.ephemeral-storage=300Mi", "limits.ephemeral-storage=1Gi")
    made = rendered(*(each for value in values for each in ("--set", f"resources.{value}")))
    tester = only(made, "Pod", "streamtopology-test")["spec"]
    for spec in (only(made, "Deployment")["spec"]["template"]["spec"], tester):
        resources = spec["containers"][0]["resources"]
        assert [resources[kind]["ephemeral-storage"] for kind in ("requests", "limits")] == ["300Mi", "1Gi"]
    assert "ephemeral-storage" not in str(rendered())


def test_budget_and_node_loss_are_the_values():
    container = only(render("--set", "disruptionBudget=false,nodeLossSeconds=0"), "Deployment")["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in container["containers"][0]["env"]}
    settings = read_settings([], {name: value for name, value in env.items() if value is not None})
    assert (settings.disruption_budget, settings.node_loss_seconds) == (False, 0.0)


@pytest.mark.parametrize("user", ["10001", ""])
def test_its_pods_fit_the_restricted_pod_security_standard(api_server: ApiServer, user: str):
    namespace = api_server.new_namespace("restricted")
    api_server.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    made = rendered("--set", f"podUser={user}", namespace=namespace)
    operator = only(made, "Deployment")["spec"]["template"]
    for template in (operator, only(made, "Pod", "streamtopology-test")):
        template["spec"].pop("serviceAccountName")  # the namespace has none of that name
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "pod", "namespace": namespace}}
        api_server.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
        template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        with pytest.raises(ProcessFailed, match="restricted"):
            api_server.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_monitors_rules_and_dashboard_come_where_prometheus_operator_is():
    plain, monitored = render(), render(*MONITORED, "--set", "metrics.labels.release=prometheus")
    assert not MONITORS & {each["kind"] for each in plain}
    assert {each["kind"] for each in monitored} & MONITORS == DEFAULT_MONITORS
    assert only(monitored, "PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
    assert only(monitored, "PodMonitor", "streamtopology-drivers")["spec"]["namespaceSelector"] == {"any": True}
    board = only(monitored, "ConfigMap", "streamtopology-dashboard")["data"]["streamtopology.json"]
    assert json.loads(board)["title"] == "StreamTopology"
    off = render(*MONITORED, "--set", "metrics.rules=false,metrics.dashboard=false")
    assert {each["kind"] for each in off} - {each["kind"] for each in plain} == {"PodMonitor"}


@pytest.fixture(scope="module")
def prometheus_operator(api_server: ApiServer) -> Iterator[None]:
    """The definitions that its makers publish."""
    names = [f"crd/{kind.lower()}s.monitoring.coreos.com" for kind in MONITORS]
    for kind in MONITORS:
        definition = PROMETHEUS_OPERATOR.definition(f"monitoring.coreos.com_{kind.lower()}s.yaml")
        api_server.kubectl("apply", "--server-side", "-f", str(definition))
    api_server.served(*names)
    yield
    api_server.kubectl("delete", *names, "--timeout=30s")


@pytest.mark.parametrize("by_services", ["false", "true"])
def test_prometheus_operator_takes_what_the_chart_brings(
    api_server: ApiServer, namespace: str, prometheus_operator: None, by_services: str
) -> None:
    made = render(*MONITORED, "--set", f"metrics.serviceMonitor={by_services}", namespace=namespace)
    brought = [each for each in made if each["kind"] in MONITORS]
    assert {each["kind"] for each in brought} == MONITORS - {"PodMonitor" if by_services == "true" else "ServiceMonitor"}
    for each in brought:
        output = api_server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(each))
        assert "created (server dry run)" in output


OPERATOR = "system:serviceaccount:operators:streamtopology"
MAY = [
    ("patch", "streamtopologies.streamtopology.dev/status"), ("patch", "streamtopologies.streamtopology.dev"),
    ("patch", "configmaps"), ("create", "secrets"), ("patch", "pods/resize"), ("delete", "pods"),
    ("create", "statefulsets.apps"), ("create", "jobs.batch"), ("create", "events"),
    ("watch", "streamtopologysnapshots.streamtopology.dev"), ("patch", "streamtopologysnapshots.streamtopology.dev/status"),
    ("create", "streamtopologysnapshots.streamtopology.dev"), ("delete", "streamtopologysnapshots.streamtopology.dev"),
]  # fmt: skip
MAY_NOT = [
    ("list", "secrets"), ("delete", "secrets"), ("create", "pods"), ("create", "pods/exec"), ("get", "nodes"),
    ("create", "streamtopologies.streamtopology.dev"), ("delete", "streamtopologies.streamtopology.dev"),
    ("escalate", "roles.rbac.authorization.k8s.io"), ("bind", "roles.rbac.authorization.k8s.io"),
    ("create", "clusterroles.rbac.authorization.k8s.io"), ("patch", "streamtopologysnapshots.streamtopology.dev"),
]  # fmt: skip


def allowed(api_server: ApiServer, verb: str, resource: str, namespace: str) -> bool:
    """True if the operator may. kubectl fails when it may not."""
    kind, _, subresource = resource.partition("/")
    asked = ["auth", "can-i", verb, kind, f"--as={OPERATOR}", "-n", namespace]
    try:
        output = api_server.kubectl(*asked, *([f"--subresource={subresource}"] if subresource else []))
    except ProcessFailed:
        return False
    return output.strip() == "yes"


def may(api_server: ApiServer, namespace: str) -> dict[str, bool]:
    return {f"{verb} {resource}": allowed(api_server, verb, resource, namespace) for verb, resource in (*MAY, *MAY_NOT)}


EXPECTED = {f"{verb} {resource}": (verb, resource) in MAY for verb, resource in (*MAY, *MAY_NOT)}
NOTHING = dict.fromkeys(EXPECTED, False)


@pytest.fixture
def installed(api_server: ApiServer, release_namespace: str, request: pytest.FixtureRequest):
    """The chart's objects with the given values, on the API server."""
    made = yaml.safe_dump_all(render(*request.param))
    api_server.kubectl("apply", "--server-side", "-f", "-", stdin=made)
    yield
    api_server.kubectl("delete", "-f", "-", stdin=made)


@pytest.mark.parametrize("installed", [()], indirect=True)
def test_the_operator_may_do_what_it_needs_and_no_more(api_server: ApiServer, installed: None):
    assert may(api_server, "streams") == EXPECTED


@pytest.mark.parametrize("installed", [("--set", "watchNamespaces={streams}")], indirect=True)
def test_watching_namespaces_gives_rights_there_alone(api_server: ApiServer, installed: None):
    assert may(api_server, "streams") == EXPECTED
    assert may(api_server, "default") == NOTHING
    cluster_wide = [each for each in render("--set", "watchNamespaces={streams}") if each["kind"].startswith("ClusterRole")]
    assert not cluster_wide


DRIVER_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"], "resourceNames": ["flights-large-0"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"], "resourceNames": ["flights-routing"]},
]


@pytest.mark.parametrize("installed", [()], indirect=True)
def test_the_operator_grants_a_driver_its_rights_and_cannot_grant_others(api_server: ApiServer, installed: None):
    metadata = {"name": "flights-driver", "namespace": "streams"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata}
    create = ("create", "--dry-run=server", f"--as={OPERATOR}", "-f", "-")
    api_server.kubectl(*create, stdin=json.dumps({**role, "rules": DRIVER_RULES}))
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    with pytest.raises(ProcessFailed, match="attempting to grant RBAC permissions not currently held"):
        api_server.kubectl(*create, stdin=json.dumps({**role, "rules": [*DRIVER_RULES, secrets]}))


@pytest.mark.parametrize("installed", [()], indirect=True)
def test_only_its_own_lease_in_its_own_namespace(api_server: ApiServer, installed: None):
    assert allowed(api_server, "create", "leases.coordination.k8s.io", "operators")
    assert not allowed(api_server, "create", "leases.coordination.k8s.io", "streams")
    update = ("auth", "can-i", "update", f"--as={OPERATOR}", "-n", "operators")
    assert api_server.kubectl(*update, "leases.coordination.k8s.io/streamtopology-operator").strip() == "yes"
    with pytest.raises(ProcessFailed):
        api_server.kubectl(*update, "leases.coordination.k8s.io/another")


def test_derived_manifests_are_current(tmp_path: Path):
    """If this fails: scripts/render-manifests.sh, with helm on PATH or its path as argument."""
    copy = tmp_path / "checkout"
    for folder in ("crds", "charts", "deploy", "scripts"):
        shutil.copytree(ROOT / folder, copy / folder)
    require(["helm"])
    run([str(copy / "scripts" / "render-manifests.sh"), str(binary("helm"))], 60)
    for derived in (
        "charts/streamtopology/files/crd.yaml",
        "charts/streamtopology/files/crd-snapshots.yaml",
        "charts/streamtopology/files/admission-policy.yaml",
        "deploy/operator.yaml",
    ):
        assert (copy / derived).read_text() == (ROOT / derived).read_text(), f"{derived} is out of date"


def test_the_example_is_taken_as_it_is(api_server: ApiServer, release_namespace: str):
    example = ROOT / "examples" / "flights-k8s.yaml"
    dry = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", "streams")
    output = api_server.kubectl(*dry, "-f", str(example))
    assert "streamtopology.streamtopology.dev/flights serverside-applied" in output


def test_kustomize_makes_what_the_chart_makes(api_server: ApiServer):
    built = list(yaml.safe_load_all(api_server.kubectl("kustomize", str(ROOT / "deploy"))))
    by_chart = render(namespace="streamtopology")
    kinds = sorted(each["kind"] for each in built)
    assert kinds == sorted([*(each["kind"] for each in by_chart), *["CustomResourceDefinition"] * 2, "Namespace"])
    for file in (CRD, SNAPSHOT_CRD):
        name = file.removesuffix(".yaml")
        definition = only(built, "CustomResourceDefinition", name)
        assert definition["spec"] == only(rendered(), "CustomResourceDefinition", name)["spec"]
    applied = only(built, "Deployment")["spec"]["template"]["spec"]
    assert applied == only(by_chart, "Deployment")["spec"]["template"]["spec"]
    output = api_server.kubectl("apply", "--server-side", "-k", str(ROOT / "deploy"))
    assert "deployment.apps/streamtopology serverside-applied" in output
    api_server.kubectl("delete", "--wait=false", "-k", str(ROOT / "deploy"))
    for file in (CRD, SNAPSHOT_CRD):  # others bring theirs
        api_server.kubectl("wait", "--for=delete", f"crd/{file.removesuffix('.yaml')}", "--timeout=30s")


def test_versions_agree():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    projects = [tomllib.loads((ROOT / name / "pyproject.toml").read_text()) for name in ("routing", "spark-jobs", "operator")]
    images = re.findall(r"image: streamtopology/\w+:(\S+)", (ROOT / "examples" / "flights-k8s.yaml").read_text())
    assert {chart["version"], chart["appVersion"], *images} == {project["project"]["version"] for project in projects}
