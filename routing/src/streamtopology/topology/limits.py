"""Limits of the manifest's values; parsing and the CRD refuse values beyond them."""

from __future__ import annotations

# Instances of an operator, and executors of a class.
MOST_INSTANCES = 1024

MOST_SOURCES = MOST_OPERATORS = MOST_SINKS = 64
MOST_INPUTS = MOST_CLASSES = 32
MOST_POD_ITEMS = 64
MOST_VOLUMES = 32
MOST_CONTAINERS = 16
MOST_PULL_SECRETS = 16
MOST_SPARK_SETTINGS = 64
LONGEST_SPARK_SETTING = 4096
MOST_GRACE_SECONDS = 86_400
MOST_AGGREGATE_EVERY = 1_000_000
MOST_TABLE_ENTRIES = 10_000_000
MOST_WINDOW_INTERVALS = 1000
HIGHEST_PRICE = 1_000_000

# Bytes: Spark refuses to start a JVM with a heap below 450 MiB.
LEAST_EXECUTOR_MEMORY = 512 * 2**20

# Bytes: the driver's JVM, its Python and the plans.
LEAST_DRIVER_MEMORY = 2**30

# Bytes of a pod on its node's disk: its log, the files of the JVM and of compiled kernels.
LEAST_STORAGE = 64 * 2**20

# Characters: `NAME-migrate-EPOCH` must be a Job's name, of at most 63.
LONGEST_TOPOLOGY_NAME = 46

# Of the snapshots of a schedule.
MOST_KEPT_SNAPSHOTS = 1000

# Characters of `NAME-CLASS`: its pods bear it as a label, with a hash of 10 behind it.
LONGEST_STATEFUL_SET_NAME = 52
