"""`spec.sparkConf`: what is the driver's own is refused, secrets come from the environment, jars reach the driver's JVM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.mistakes import VALID, changed

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.spark_session import LOCAL_DRIVER
from streamtopology.jobs.pods.cluster import KubernetesCluster, Stopped
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.jobs.pods.spark_settings import driver_settings
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.spark.processes import SPARK_HOME
from streamtopology.jobs.spark.session import spark_conf, start_driver_jvm
from streamtopology.jobs.spark.user_settings import jars_of, missing_jar, missing_variables, user_settings
from streamtopology.jobs.variables import MissingVariable, without_values
from streamtopology.topology import ManifestError, parse, to_manifest
from streamtopology.topology.spark_conf import RESERVED_PATTERN, spark_conf_problems

POD = {"STREAMTOPOLOGY_NAME": "a", "STREAMTOPOLOGY_NAMESPACE": "b", "POD_NAME": "a-driver-5d", "POD_IP": "10.1.2.3"}
SECRET = {"spark.hadoop.fs.s3a.secret.key": "${env:S3_SECRET}", "spark.sql.extensions": "a.B"}


def test_every_setting_of_ours_is_refused() -> None:
    ours = {**spark_conf(2, 1 << 30, python="python"), **driver_settings(DriverEnvironment.read(POD)), **LOCAL_DRIVER}
    assert [name for name in ours if not re.fullmatch(RESERVED_PATTERN, name)] == []
    assert len(list(spark_conf_problems(ours))) == len(ours) > 40


def test_processes_of_spark_import_the_installed_pyspark_and_not_the_zip_that_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    ours = spark_conf(2, 1 << 30, python="python")["spark.executorEnv.PYTHONPATH"]
    path = os.pathsep.join([str(SPARK_HOME / "python" / "lib" / "pyspark.zip"), ours])
    printed = subprocess.run(
        [sys.executable, "-c", "from importlib.util import find_spec; print(find_spec('pyspark').origin)"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(printed.stdout.strip()) == SPARK_HOME / "__init__.py"
    assert ours.startswith("/users/own:")


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


def test_source_whose_option_lacks_its_variable_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULSAR_TOKEN", raising=False)
    options = ("spec.sources[0].options", {"token": "${env:PULSAR_TOKEN}"})
    topology = parse(changed(("spec.sources[0].format", "pulsar"), options, of=VALID))
    with pytest.raises(ManifestError, match=r"spec\.sources\[0\]\.options\.token: .*on Kubernetes give it to the driver: pod"):
        check_before_start(topology, tmp_path)


def test_longer_value_is_hidden_as_a_whole() -> None:
    environ = {"A": "key", "B": "key/2", "C": "", "D": "elsewhere"}
    hidden = without_values("key, key/2 and elsewhere", ["${env:A}:${env:B}", "${env:C}", "elsewhere"], environ)
    assert hidden == "${env:A}, ${env:B} and elsewhere"


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


def test_secret_that_spark_would_show_is_hidden_by_name() -> None:
    name = "spark.hadoop.fs.azure.account.key.a.net"
    settings = user_settings({name: "${env:KEY}", "spark.sql.extensions": "a.B"}, {"KEY": "k"})
    hidden = settings.pop("spark.redaction.regex")
    assert settings == {name: "k", "spark.sql.extensions": "a.B"}
    assert all(re.search(hidden, shown) for shown in (name, "fs.azure.account.key.a.net", "spark.a.Secret"))
    assert not re.search(hidden, "spark.sql.extensions")


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.defaultFS",  # Spark's offsets would not be in the checkpoint
        "spark.remote",
        "spark.redaction.regex",
        "spark.kryo.registrationRequired",
        "spark.io.encryption.enabled",
        "spark.ssl.enabled",
        "spark.memory.offHeap.enabled",
        "spark.sql.execution.pyspark.binaryAsBytes",
    ],
)
def test_setting_that_breaks_the_data_path_is_refused(name: str) -> None:
    (problem,) = spark_conf_problems({name: "x"})
    assert "which the driver sets itself" in problem.message


@pytest.mark.parametrize(
    "name", ["spark.hadoop.fs.s3a.aws.credentials.provider", "spark.hadoop.fs.azure.account.keyprovider.a"]
)
def test_class_that_gives_secrets_is_none(name: str) -> None:
    assert list(spark_conf_problems({name: "a.B"})) == []


def test_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "a b.jar").touch()
    there = f"{tmp_path}/a b.jar, {tmp_path.as_uri()}/a%20b.jar,https://host/c.jar,{tmp_path}/*.jar,,"
    assert missing_jar({"spark.jars": there}) is None
    assert missing_jar({"spark.jars": f"{there},d.jar"}) == "d.jar"
    with pytest.raises(WrongUse, match=r"spark\.jars names 'file:/e\.jar', and the driver has no such file"):
        start_driver_jvm({"spark.jars": "file:/e.jar"})


def test_jars_are_those_settings_alone() -> None:
    jars = {"spark.jars.packages": "g:a:1", "spark.jars": "b.jar"}
    assert jars_of({**SECRET, **jars}) == jars
