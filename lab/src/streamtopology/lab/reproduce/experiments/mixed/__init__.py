"""The experiments of mixed-routing; the stream and the loop are in `adaptation`. mixed-throughput runs on Spark."""

from streamtopology.lab.reproduce.experiments.mixed.against_readj import MIXED_DYNAMICS, MIXED_SCALEOUT
from streamtopology.lab.reproduce.experiments.mixed.hash_skew import MIXED_HASH
from streamtopology.lab.reproduce.experiments.mixed.plans import MIXED_INSTANCES, MIXED_KEYS, MIXED_THETA, MIXED_WINDOW
from streamtopology.lab.reproduce.experiments.mixed.representation import MIXED_COMPACT
from streamtopology.lab.reproduce.experiments.mixed.table_size import MIXED_BETA, MIXED_TABLE

MIXED = (
    MIXED_HASH,
    MIXED_INSTANCES,
    MIXED_THETA,
    MIXED_KEYS,
    MIXED_COMPACT,
    MIXED_DYNAMICS,
    MIXED_TABLE,
    MIXED_BETA,
    MIXED_WINDOW,
    MIXED_SCALEOUT,
)
