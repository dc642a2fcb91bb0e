"""A valid manifest, and mistakes in it: the changed value, the place of the problem and its message."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

GONE = object()
TWO_SMALL = {"name": "small", "minReplicas": 1, "maxReplicas": 2}

VALID = yaml.safe_load("""
apiVersion: streamtopology.dev/v1alpha1
kind: StreamTopology
metadata: {name: trips}
spec:
  sources:
    - name: rides
      format: csv
      schema: id BIGINT, city STRING, fare DOUBLE, at TIMESTAMP
      options: {path: data/rides, header: true, maxFilesPerTrigger: 1}
      select: [id, city, "fare * 2 AS doubled", at]
      where: fare > 0
      watermark: {column: at, delay: 10s}
  operators:
    - name: clean
      inputs: [rides]
      run: filter
      with: {where: city IS NOT NULL}
    - name: per-city
      inputs: [{from: clean, as: rows}]
      parallelism: 6
      grouping: {policy: mixed, key: city}
      run: quantiles
      with: {column: doubled, min: 0, max: 500, emit: tuples}
    - name: pairs
      inputs:
        - {from: clean, as: left}
        - {from: rides, as: right, key: [id]}
      grouping: {policy: fields, key: id}
      run: window-join
      with: {time: at, size: 10m}
  sinks:
    - {name: out, input: per-city, format: parquet, options: {path: build/out}}
  executors:
    - {name: large, replicas: 3, cpu: 450m, memory: 1Gi}
    - {name: small, cpu: 135m}
  rebalance: {interval: 5s, tolerance: 0.1}
  checkpoint: build/checkpoint
""")


def complete_manifest() -> dict[str, Any]:
    """The manifest in docs/guide/manifest.md, which has every field."""
    text = (Path(__file__).parents[2] / "docs" / "guide" / "manifest.md").read_text(encoding="utf-8")
    return yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])


def changed(*changes: tuple[str, object], of: dict[str, Any] = VALID) -> dict[str, Any]:
    """The manifest with the values at these paths replaced, added, or taken away (GONE)."""
    manifest = copy.deepcopy(of)
    for path, value in changes:
        *parents, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
        place: Any = manifest
        for step in parents:
            place = place[step] if isinstance(place, list) else place.setdefault(step, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return manifest


MISTAKES: list[tuple[str, object, str, str]] = [
    # (path to change, new value, path of the problem, sentence)
    ("apiVersion", "v1", "", "found 'v1', allowed: streamtopology.dev/v1alpha1"),
    ("kind", GONE, "", "is missing, expected one of StreamTopology"),
    ("metadata", GONE, "", "is missing, expected a mapping with name"),
    ("metadata.name", "Trips!", "", "found 'Trips!', expected a name of lower-case letters, digits and '-', at most 46"),
    ("spec", [], "", "found a list, expected a mapping with sources, operators"),
    ("spec.operatros", [], "", "unknown field: found 'operatros', allowed: sources, .*; did you mean 'operators'"),
    # sources
    ("spec.sources[0].name", GONE, "", "is missing, expected a name"),
    ("spec.sources[0].format", 7, "", "found 7, expected a format: parquet, csv, json, text, kafka"),
    ("spec.sources[0].schema", "a INT, b STRUCT<x: INT", "", "the schema ends before its closing '>'"),
    ("spec.sources[0].schema", "a INT, b", "", "found 'b' in the schema, expected `name TYPE`"),
    ("spec.sources[0].schema", "  ", "", "the schema is empty"),
    ("spec.sources[0].schema", [{"name": "a"}], "spec.sources[0].schema[0].type", "is missing, expected a type"),
    ("spec.sources[0].schema", [{"name": "a", "type": "INT"}, {"name": "A", "type": "INT"}], "spec.sources[0].schema",
     "the schema names the column 'A' twice"),
    ("spec.sources[0].schema", GONE, "", "is missing, expected Spark DDL such as"),
    ("spec.sources[0].options.path", GONE, "", "is missing, expected the folder or pattern of csv files"),
    ("spec.sources[0].options.header", [1], "", "found a list, expected a text, number, true or false"),
    ("spec.sources[0].select[2]", "fare * 2", "", r"found 'fare \* 2', expected a column or `expression AS name`"),
    ("spec.sources[0].watermark", GONE, "", "is missing, expected column and delay: 'pairs' closes windows"),
    ("spec.sources[0].watermark.column", GONE, "", "is missing, expected the column with the time of the event"),
    ("spec.sources[0].watermark.delay", "ten", "", "found 'ten', expected a duration such as"),
    ("spec.sources[0].watermark.maxAhead", "far", "", "found 'far', expected a duration such as"),
    # paths
    ("spec.sources[0].options.path", "~/rides", "", "found '~/rides', where only a shell fills in ~ .* write the path in full"),
    ("spec.sources[0].options.path", "file:///data/${DAY}/*.csv", "", "where only a shell fills in ~ and variables"),
    ("spec.sources[0].options.basePath", "~ada/rides", "", "where only a shell fills in ~"),
    ("spec.sinks[0].options.path", "$HOME/out", "", r"found '\$HOME/out', where only a shell"),
    ("spec.checkpoint", "~/checkpoint", "", "write the path in full"),
    ("spec.restore", {"from": "~/backup"}, "spec.restore.from", "write the path in full"),
    ("spec.operators[0].run", "~/mine.py:Mine", "", "write the path in full"),
    # operators
    ("spec.operators[2].late", "nowhere", "", "found 'nowhere', expected a sink whose input is 'pairs'; allowed: nothing"),
    ("spec.operators[1].late", "out", "", "found 'out', but 'quantiles' leaves out no row as late; of the built-ins window-"),
    ("spec.operators", [], "", "needs at least one of its operators, found none"),
    ("spec.operators[2].name", "clean", "", r"found 'clean' again, spec.operators\[0\] has it"),
    ("spec.operators[1].inputs", "clean", "", "found 'clean', expected a list of inputs; did you mean \\[clean\\]"),
    ("spec.operators[1].inputs", [], "", "needs at least one of its inputs, found none"),
    ("spec.operators[1].inputs", ["claen"], "spec.operators[1].inputs[0]",
     "unknown input: found 'claen', allowed: rides, clean, pairs; did you mean 'clean'"),
    ("spec.operators[0].inputs[0]", "clean", "", "operator 'clean' reads from itself"),
    ("spec.operators[0].inputs[0]", "per-city", "spec.operators[0].inputs", "form a cycle: clean -> per-city -> clean"),
    ("spec.operators[2].inputs[1].as", "left", "spec.operators[2].inputs[1]", "found the alias 'left' again"),
    ("spec.operators[2].inputs[1].key", ["id", "city"], "", "found 2 columns, grouping.key has 1: one for each"),
    ("spec.operators[2].inputs", ["clean"], "", "found 1 inputs, 'window-join' takes 2 or more"),
    ("spec.operators[1].parallelism", 0, "", "found 0, expected a whole number from 1 to 1024"),
    ("spec.operators[1].parallelism", 1025, "", "found 1025, expected a whole number from 1 to 1024"),
    ("spec.operators[1].parallelism", True, "", "found true, expected a whole number"),
    ("spec.operators[1].grouping.policy", "mixd", "", "found 'mixd', installed: .*mixed.*; did you mean 'mixed'"),
    ("spec.operators[1].grouping.policy", "hash", "", "found 'hash', installed: .*; a fixed hash of the key is fields"),
    ("spec.operators[1].grouping.policy", "round-robin", "", "found 'round-robin', installed: .*; tuples in turn are shuffle"),
    ("spec.operators[1].grouping.key", ["city", "city"], "", "found 'city' twice; name each column of the key once"),
    ("spec.operators[1].grouping.policy", "partial-key", "",
     "found 'partial-key', which sends one key to several instances, before 'quantiles', with emit: tuples, which .*; "
     "allowed: .*mixed"),
    ("spec.operators[2].grouping.policy", "partial-key", "",
     "found 'partial-key', which .*, before 'window-join', whose state cannot be combined; allowed: .*mixed"),
    ("spec.operators[1].grouping.options", {"bta": 1}, "spec.operators[1].grouping.options.bta",
     "is no option of the grouping 'mixed'; allowed: beta"),
    ("spec.operators[1].grouping.key", GONE, "", "is missing, expected columns: the policy 'mixed' routes by key"),
    ("spec.operators[1].grouping.key", [1], "spec.operators[1].grouping.key[0]", "found 1, expected columns"),
    ("spec.operators[0].run", "count", "spec.operators[0].grouping.key",
     "is missing, expected columns: 'count' keeps state per key"),
    ("spec.operators[1].run", "quantile", "",
     "found 'quantile', allowed: count, .*; did you mean 'quantiles'.*or module:Class"),
    ("spec.operators[1].run", GONE, "", "is missing, expected a built-in operator, module:Class"),
    ("spec.operators[1].with", "k=3", "", "found 'k=3', expected a mapping of options"),
    ("spec.operators[1].aggregateEvery", 0, "", "found 0, expected a whole number from 1"),
    # sinks
    ("spec.sinks[0].input", "per-ctiy", "", "unknown operator: found 'per-ctiy', allowed: .*; did you mean 'per-city'"),
    ("spec.sinks[0].input", "rides", "",
     "unknown operator: found 'rides', allowed: clean, per-city, pairs; it is a source, and a sink takes the rows of"),
    ("spec.sinks[0].format", "hudi", "", "found 'hudi', allowed: parquet, .*; write format: delta or iceberg, or parquet"),
    ("spec.sinks[0]",
     {"name": "out", "input": "per-city", "format": "iceberg", "options": {"table": "a.b", "catalog.type": "sql"}},
     "spec.sinks[0].options.catalog.uri", "is missing, format iceberg needs it"),
    ("spec.sinks[0].format", "foreachBatch", "", "found 'foreachBatch', allowed: .*; format: function calls your function"),
    ("spec.trigger", {"once": True}, "spec.trigger.once", "found .once., .*; Spark.s once is availableNow: true"),
    ("spec.trigger", {"processingTime": "5 s"}, "spec.trigger.processingTime", "Spark's processingTime is interval here"),
    ("spec.sinks[0].format", "parqet", "", "found 'parqet', allowed: parquet, .*; did you mean 'parquet'"),
    ("spec.sinks[0].options", GONE, "spec.sinks[0].options.path", "is missing, format parquet needs it"),
    # executors
    ("spec.executors", GONE, "", "needs at least one of its executor classes, found none"),
    ("spec.executors", [{"name": "large", "replicas": 0}], "", "all classes together have 0 replicas"),
    ("spec.executors[1].name", "large", "", r"found 'large' again, spec.executors\[0\] has it"),
    ("spec.executors[1].cpu", 0, "", "found 0, expected a positive number of cores .*: an executor without CPU"),
    ("spec.executors[1].cpu", "-1", "", "found '-1', expected a positive number of cores .*: it is negative"),
    ("spec.executors[1].cpu", 2000, "", "found 2000, expected a positive number of cores .*: at most 1024 cores"),
    ("spec.executors[1].cpu", "2c", "", "found '2c', expected a positive number of cores .*: the units are"),
    ("spec.executors[1].cpu", -0.5, "", "found -0.5, expected a positive number of cores .*: it is negative"),
    ("spec.executors[1].cpu", [1], "", "found another kind, expected a positive number of cores"),
    ("spec.executors[1].memory", "lots", "", "found 'lots', expected an amount of memory"),
    ("spec.executors[1].memory", 1e6, "", "found 1000000 bytes, an executor needs at least 512Mi"),
    ("spec.executors[1].cpu", "500 m", "", "found '500 m', expected a positive number of cores"),
    ("spec.rebalance.interval", "5 s", "", "found '5 s', expected a duration"),
    ("spec.executors[1].memory", "1GB", "", "found '1GB', expected an amount of memory .*: the units are"),
    ("spec.executors[1].memory", "64Mi", "", "found 67108864 bytes, an executor needs at least 512Mi"),
    ("spec.executors[1].storage", "lots", "", "found 'lots', expected an amount of storage such as 10Gi"),
    ("spec.executors[1].storage", "10GB", "", "found '10GB', expected an amount of storage .*: the units are"),
    ("spec.executors[1].storage", "-1Gi", "", "found '-1Gi', expected an amount of storage .*: it is negative"),
    ("spec.executors[1].storage", 1e6, "", "found 1000000 bytes, a pod needs at least 64Mi of its node's disk"),
    # the rest
    ("spec.rebalance.mode", "auto", "", "found 'auto', allowed: Auto, Recommend, Off; did you mean 'Auto'"),
    ("spec.rebalance.mode", False, "", "YAML reads a bare Off as false, write 'Off' with quotes"),
    ("spec.rebalance.interval", "0s", "", "found '0s', expected a duration above 0"),
    ("spec.rebalance.interval", 5, "", "found 5, expected a duration .*: a number alone has no unit"),
    ("spec.rebalance.tolerance", -0.1, "", "found -0.1, expected a number above 0 and at most 1"),
    ("spec.rebalance.maxTableEntries", -1, "", "found -1, expected a whole number from 0"),
    ("spec.rebalance.windowIntervals", 0, "", "found 0, expected a whole number from 1"),
    ("spec.trigger", {"interval": "1s", "availableNow": True}, "", "found interval and availableNow together"),
    ("spec.operators[1].state", "disk", "", "found 'disk', expected a mapping with backend, memory"),
    ("spec.operators[1].state", {"backend": "rocksdb"}, "spec.operators[1].state.backend",
     "found 'rocksdb', allowed: memory, disk"),
    ("spec.operators[1].state", {"backend": "disk", "memory": "much"}, "spec.operators[1].state.memory",
     "found 'much', expected"),
    ("spec.trigger.latency", "0s", "", "found '0s', expected a duration above 0 such as 10s"),
    ("spec.trigger", {"availableNow": "yes"}, "spec.trigger.availableNow", "found 'yes', expected true or false"),
    ("spec.checkpoint", "gs://bucket/x", "", "found the scheme 'gs' in 'gs://bucket/x', allowed: a path .*, s3://"),
    ("spec.restore", {}, "spec.restore.from", "is missing, expected Empty, or the checkpoint to copy"),
    ("spec.restore", {"from": "backup"}, "spec.restore.from", "found 'backup', expected Empty, or the checkpoint to copy"),
    ("spec.checkpoint", "s3://bucket/../x", "", "found 's3://bucket/../x', expected s3://BUCKET/PREFIX"),
    ("spec.restore", {"from": "s3://bucket"}, "spec.restore.from", "found 's3://bucket', expected s3://BUCKET/PREFIX"),
    ("spec.restore", {"from": "a/b", "mode": "Claim"}, "spec.restore.mode", "found 'Claim', allowed: Clone, Own"),
    ("spec.snapshots", {"to": "/b"}, "spec.snapshots.schedule", "is missing, expected a time in UTC as cron writes it"),
    ("spec.snapshots", {"schedule": "daily", "to": "/b"}, "spec.snapshots.schedule", "found 'daily', expected a time in UTC"),
    ("spec.snapshots", {"schedule": "0 3 * * *"}, "spec.snapshots.to", "is missing, expected an absolute path"),
    ("spec.snapshots", {"schedule": "0 3 * * *", "to": "b/c"}, "spec.snapshots.to", "found 'b/c', expected an absolute path"),
    ("spec.snapshots", {"schedule": "0 3 * * *", "to": "s3://B"}, "spec.snapshots.to", "found 's3://B', expected s3://BUCKET"),
    ("spec.snapshots", {"schedule": "0 3 * * *", "to": "/b", "keep": 0}, "spec.snapshots.keep", "found 0, expected a whole"),
    ("spec.onBadTuple", "skip", "", "found 'skip', allowed: fail, deadLetter"),
    ("spec.onRemove", "forget", "", "found 'forget', allowed: fail, drop"),
    # on Kubernetes
    ("metadata.name", "t" * 47, "", "found 't+', expected a name of .*, at most 46 characters"),
    ("metadata.name", "2trips", "", "found '2trips', expected a name of .*, the first a letter"),
    ("metadata.name", "trips.eu", "", r"found 'trips\.eu', expected a name of .*, without dots"),
    ("spec.executors[0].name", "l" * 47, "", "found 'trips-l+' for its pods, expected at most 52 characters"),
    ("spec.image", 3, "", "found 3, expected the name of an image"),
    ("spec.imagePullPolicy", "always", "", "found 'always', allowed: Always, IfNotPresent, Never; did you mean 'Always'"),
    ("spec.imagePullSecrets", [{}], "spec.imagePullSecrets[0].name", "is missing, expected the name of a Secret"),
    ("spec.imagePullSecrets", [{"name": "x"}, {"name": "x"}], "spec.imagePullSecrets[1].name", "found 'x' again"),
    ("spec.sparkConf", {"jars": "x.jar"}, "", "found 'jars', expected a name that begins with spark."),
    ("spec.sparkConf", {"spark.executor.memory": "4g"}, "", "found 'spark.executor.memory', which the driver sets itself"),
    ("spec.sparkConf", {"spark.hadoop.fs.s3a.secret.key": "x"}, "",
     r"found 'spark.hadoop.*', expected \$\{env:NAME\}, a variable"),
    ("spec.sparkConf", {"spark.jars.packages": "${env:X}"}, "", r"found 'spark.jars.packages', expected no \$\{env:NAME\}"),
    ("spec.sparkConf", {"spark.jars.repositories": "https://a:b@host/"}, "", "found 'spark.jars.repositories', expected no"),
    ("spec.sparkConf", {"spark.hadoop.fs.azure.account.key.a.net": "x"}, "",
     r"found 'spark.hadoop.fs.azure.account.key.a.net', expected \$\{env:NAME\}, a variable of the driver"),
    ("spec.suspend", "yes", "", "found 'yes', expected true or false"),
    ("spec.driver.memory", "512Mi", "", "found 536870912 bytes, the driver needs at least 1Gi"),
    ("spec.driver.storage", "10M", "", "found 10000000 bytes, a pod needs at least 64Mi of its node's disk"),
    ("spec.migration.resources.storage", "1Mi", "", "found 1048576 bytes, a pod needs at least 64Mi of its node's disk"),
    ("spec.migration.resources.storage", "1 Gi", "", "found '1 Gi', expected an amount of storage"),
    ("spec.driver.cpu", 0, "", "found 0, expected a positive number of cores"),
    ("spec.driver.pods", {}, "", "unknown field: found 'pods', allowed: cpu, memory, storage, pod; did you mean 'pod'"),
    ("spec.migration.threshold", "64MB", "", "found '64MB', expected an amount of memory .*: the units are"),
    ("spec.migration.resources.cpu", "0m", "", "found '0m', expected a positive number of cores"),
    ("spec.autoscale", {}, "spec.autoscale.class", "is missing, expected the name of an executor class"),
    ("spec.autoscale", {"class": "big"}, "spec.autoscale.class", "unknown executor class: found 'big', allowed: large, small"),
    ("spec.autoscale", {"class": "large"}, "spec.executors[0].replicas", "found 3 and spec.autoscale for the class 'large'"),
    ("spec.autoscale", {"class": "small", "by": "me"}, "spec.autoscale.by", "found 'me', allowed: Operator, External, Nobody"),
    ("spec.autoscale", {"class": "small", "by": "Operator"}, "spec.autoscale.maxReplicas", "is missing, expected the most"),
    ("spec.autoscale", {"class": "small", "minReplicas": 3, "maxReplicas": 2}, "spec.autoscale.minReplicas",
     "found 3, expected at most maxReplicas, 2"),
    ("spec.autoscale", {"class": "small", "by": "Operator", "classes": [TWO_SMALL]}, "spec.autoscale.classes",
     "found class and classes together, allowed is one of them"),
    ("spec.autoscale", {"classes": [TWO_SMALL]}, "spec.autoscale.by", "found 'External', expected Operator: only our own"),
    ("spec.autoscale", {"classes": [TWO_SMALL], "by": "Operator", "replicas": 2}, "spec.autoscale.replicas",
     "found 2 and classes, allowed is one of them: each of the classes"),
    ("spec.autoscale", {"classes": [TWO_SMALL], "by": "Operator", "minReplicas": 0}, "spec.autoscale.minReplicas",
     "found 0 and classes, allowed is one of them"),
    ("spec.autoscale", {"classes": [TWO_SMALL], "by": "Operator", "maxReplicas": 3}, "spec.autoscale.maxReplicas",
     "found 3 and classes, allowed is one of them"),
    ("spec.autoscale", {"classes": [{**TWO_SMALL, "minReplicas": 0}], "by": "Operator"}, "spec.autoscale.classes",
     "found minReplicas 0 for each of them, expected at least 1 for one"),
    ("spec.autoscale", {"classes": [{**TWO_SMALL, "minReplicas": 3}], "by": "Operator"},
     "spec.autoscale.classes[0].minReplicas", "found 3, expected at most maxReplicas, 2"),
    ("spec.autoscale", {"classes": [{"name": "small", "minReplicas": 1}], "by": "Operator"},
     "spec.autoscale.classes[0].maxReplicas", "is missing, expected the most executors of this class"),
    ("spec.autoscale", {"classes": [{**TWO_SMALL, "name": "big"}], "by": "Operator"}, "spec.autoscale.classes[0].name",
     "unknown executor class: found 'big', allowed: large, small"),
    ("spec.autoscale", {"classes": [TWO_SMALL, TWO_SMALL], "by": "Operator"}, "spec.autoscale.classes[1].name",
     "found 'small' again"),
    ("spec.autoscale", {"classes": [TWO_SMALL, {"name": "large", "maxReplicas": 2}], "by": "Operator"},
     "spec.executors[0].replicas", "found 3 and spec.autoscale for the class 'large', .*spec.autoscale.classes has them"),
    ("spec.autoscale", {"class": "small", "targetUtilisation": 70}, "spec.autoscale.targetUtilisation", "found 70, expected a"),
    ("spec.executors[0].pod.volumes", [{"emptyDir": {}}], "spec.executors[0].pod.volumes[0].name", "is missing, expected a"),
    ("spec.executors[0].pod.volumes", [{}], "spec.executors[0].pod.volumes[0].name", "is missing, expected a"),
    ("spec.executors[0].pod.volumes", [{"name": {}}], "spec.executors[0].pod.volumes[0].name", "found a mapping, expected a"),
    ("spec.executors[0].pod.volumes", [None], "spec.executors[0].pod.volumes[0]", "is missing, expected a mapping of what"),
    ("spec.executors[0].pod.volumeMounts", [{"name": "x", "mountPath": "/x"}], "spec.executors[0].pod.volumeMounts[0].name",
     "unknown volume: found 'x', allowed: nothing"),
    ("spec.executors[0].pod.env", [{"name": "A"}, {"name": "A"}], "spec.executors[0].pod.env[1].name", "found 'A' again"),
    ("spec.driver.pod.env", [{"name": "A", "value": 1}], "spec.driver.pod.env[0].value", "found 1, expected a text: write it"),
    ("spec.driver.pod.tolerations", [{"key": "spot", "value": True}], "spec.driver.pod.tolerations[0].value", "expected a"),
    ("spec.executors[0].pod.initContainers", [{"name": "a", "image": "x", "env": [{"name": "A", "value": 1.5}]}],
     "spec.executors[0].pod.initContainers[0].env[0].value", "found 1.5, expected a text: write it with quotes"),
    ("spec.driver.pod.env", [{"name": "STREAMTOPOLOGY_NAME"}], "spec.driver.pod.env[0].name", "which the operator sets itself"),
    ("spec.driver.pod.labels", {"streamtopology.dev/class": "x"}, "", "which the operator sets itself"),
    ("spec.driver.pod.labels", {"team": "a b"}, "", "found 'a b' for 'team', expected a label's value"),
    ("spec.driver.pod.labels", {"my team": "a"}, "", "found 'my team', expected a label's name"),
    ("spec.executors[0].pod.annotations", {"a/b/c": "a"}, "", "found 'a/b/c', expected a label's name"),
    ("spec.executors[0].pod.nodeSelector", {"-disk": "a"}, "", "found '-disk', expected a label's name"),
    ("spec.executors[0].pod.volumes", [{"name": "My_cache", "emptyDir": {}}], "spec.executors[0].pod.volumes[0].name",
     "found 'My_cache', expected a name of lower-case letters"),
    ("spec.driver.pod.initContainers", [{"name": "a.b", "image": "x"}], "spec.driver.pod.initContainers[0].name",
     "found 'a.b', expected a name of lower-case letters"),
    ("spec.driver.pod", {"volumes": [{"name": "x"}], "volumeMounts": [{"name": "x", "mountPath": "/tmp/"}]},
     "spec.driver.pod.volumeMounts[0].mountPath", "found '/tmp/', where the operator mounts a volume of its own"),
    ("spec.executors[0].pod.nodeSelector", {"disk": "-fast"}, "", "found '-fast' for 'disk', expected a label's value"),
    ("spec.executors[0].pod.volumes", [{"name": "scratch", "emptyDir": {}}], "spec.executors[0].pod.volumes[0].name",
     "found 'scratch', the name of a volume that the operator adds: choose another"),
    ("spec.driver.pod.volumes", [{"name": "spark-secret", "emptyDir": {}}], "spec.driver.pod.volumes[0].name",
     "found 'spark-secret', the name of a volume that the operator adds"),
    ("spec.driver.pod", {"volumes": [{"name": "x"}], "volumeMounts": [{"name": "x", "mountPath": "/tmp"}]},
     "spec.driver.pod.volumeMounts[0].mountPath", "found '/tmp', where the operator mounts a volume of its own"),
    ("spec.driver.pod", {"volumes": [{"name": "x"}], "volumeMounts": [{"name": "x", "mountPath": "/x"}] * 2},
     "spec.driver.pod.volumeMounts[1].mountPath", "found '/x' again; they need different paths"),
    ("spec.driver.pod.initContainers", [{"name": "migrate", "image": "x"}], "spec.driver.pod.initContainers[0].name",
     "found 'migrate', the name of the operator's own container"),
    ("spec.driver.pod.initContainers", [{"name": "x"}], "spec.driver.pod.initContainers[0].image",
     "is missing, expected a text"),
    ("spec.driver.pod.terminationGracePeriodSeconds", 60, "",
     "found 60, expected at least 75: the driver finishes its batch in that time"),
    ("spec.executors[0].pod.terminationGracePeriodSeconds", 10, "",
     "found 10, expected at least 30: an executor hands over in that time"),
    ("spec.driver.pod.schedulerName", 1, "", "found 1, expected a name"),
    ("spec.driver.pod.nodeSelector", {"ssd": True}, "spec.driver.pod.nodeSelector.ssd", "found true, expected a text"),
]  # fmt: skip
