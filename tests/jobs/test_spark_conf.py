"""`spec.sparkConf`: what is the driver's own is refused, secrets come from the environment, jars reach the driver's JVM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.mistakes import VALID, changed

from streamtopology.jobs.local.spark_session import LOCAL_DRIVER
from streamtopology.jobs.pods.cluster import KubernetesCluster, Stopped
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.jobs.pods.spark_settings import driver_settings
from streamtopology.jobs.runtime.preflight import check_before_start
from streamtopology.jobs.spark.session import spark_conf
from streamtopology.jobs.spark.user_settings import jars_of, missing_variables, user_settings
from streamtopology.jobs.variables import MissingVariable
from streamtopology.topology import ManifestError, parse, to_manifest
from streamtopology.topology.spark_conf import RESERVED_PATTERN, spark_conf_problems

POD = {"STREAMTOPOLOGY_NAME": "a", "STREAMTOPOLOGY_NAMESPACE": "b", "POD_NAME": "a-driver-5d", "POD_IP": "10.1.2.3"}
SECRET = {"spark.hadoop.fs.s3a.secret.key": "${env:S3_SECRET}", "spark.sql.extensions": "a.B"}


def test_every_setting_of_ours_is_refused() -> None:
    ours = {**spark_conf(2, 1 << 30, python="python"), **driver_settings(DriverEnvironment.read(POD)), **LOCAL_DRIVER}
    assert [name for name in ours if not re.fullmatch(RESERVED_PATTERN, name)] == []
    assert len(list(spark_conf_problems(ours))) == len(ours) > 40


@pytest.mark.parametrize("name", ["spark.jars", "spark.hadoop.fs.s3a.endpoint", "spark.sql.catalog.x", "spark.sql.extensions"])
def test_settings_of_connectors_are_taken_and_written(name: str) -> None:
    topology = parse(changed(("spec.sparkConf", {name: "x"})))
    assert topology.spark_conf == {name: "x"}
    assert parse(to_manifest(topology)) == topology


def test_secret_comes_from_the_environment() -> None:
    assert user_settings(SECRET, {"S3_SECRET": "s$1"}) == {**SECRET, "spark.hadoop.fs.s3a.secret.key": "s$1"}
    with pytest.raises(MissingVariable, match="needs the environment variable S3_SECRET, which is not set here"):
        user_settings(SECRET, {})
    (problem,) = missing_variables(SECRET, {})
    assert problem.path == "spec.sparkConf"
    assert "on Kubernetes give it to the driver: pod.env or pod.envFrom" in problem.message


def test_run_without_a_variable_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("S3_SECRET", raising=False)
    topology = parse(changed(("spec.sparkConf", SECRET), of=VALID))
    with pytest.raises(ManifestError, match=r"spec\.sparkConf: option spark\.hadoop\.fs\.s3a\.secret\.key needs"):
        check_before_start(topology, tmp_path)


def test_pods_have_the_settings_in_addition_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str] = {}

    def create(name: str, master: str, conf: dict[str, str]) -> None:
        made.update(conf)
        raise Stopped

    monkeypatch.setattr("streamtopology.jobs.pods.cluster.create_session", create)
    monkeypatch.setenv("S3_SECRET", "s")
    topology = parse(changed(("spec.sparkConf", SECRET)))
    with pytest.raises(Stopped), KubernetesCluster(DriverEnvironment.read(POD), topology, print, print, lambda: False):
        pass
    assert made["spark.hadoop.fs.s3a.secret.key"] == "s"
    assert made["spark.sql.extensions"] == "a.B"
    assert made["spark.driver.host"] == "a-driver.b.svc"


def test_jars_are_those_settings_alone() -> None:
    jars = {"spark.jars.packages": "g:a:1", "spark.jars": "b.jar"}
    assert jars_of({**SECRET, **jars}) == jars
