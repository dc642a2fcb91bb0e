"""Rows of the papers that are measured on Spark: on an embedded cluster whose executors differ (`reproduce --spark`).

An experiment here is what it is in the simulator, but for its measurement, which starts a cluster and runs topologies.
Figures depend on the machine; claims are about ratios within one run. In micro-batches throughput and latency are one figure,
the seconds of a batch: a batch's rows over them are the throughput, and what a row waits is up to one batch before its own and
then its own, so that twice the throughput is half the latency. Where a paper has a figure of each, there is one claim.

How long they take (`seconds`) was measured on two cores; `quick_seconds` is worked out from that.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.lab.reproduce.experiment import Experiment
from streamtopology.lab.reproduce.on_spark.consistent import CG_CLUSTER
from streamtopology.lab.reproduce.on_spark.locality import LOCALITY_CLUSTER
from streamtopology.lab.reproduce.on_spark.mixed import MIXED_THROUGHPUT
from streamtopology.lab.reproduce.on_spark.posg import POSG_CLUSTER

ON_SPARK: Mapping[str, Experiment] = {
    experiment.id: experiment for experiment in (POSG_CLUSTER, CG_CLUSTER, MIXED_THROUGHPUT, LOCALITY_CLUSTER)
}

# Rows of the claims marked "on Spark" that cannot be run there yet, and why; `locality-reconfigure` is `locality-cluster`.
NOT_BUILT: Mapping[str, str] = {
    "locality-synthetic": (
        "on one host the loopback is as fast as memory, so that padding and locality cost nothing: it needs network "
        "namespaces with a limited rate; the row runs on a model of the network, without --spark"
    ),
}
