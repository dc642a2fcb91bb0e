"""The conditions of a StreamTopology with their reasons, and the events. docs/run/operations.md says what to do."""

from __future__ import annotations

from streamtopology.contract.reasons import Documented


class ConditionType(Documented):
    """The conditions in `status.conditions`."""

    READY = "Ready", "batches run"
    BALANCED = "Balanced", "every operator is within the tolerance"
    RECONFIGURING = "Reconfiguring", "a change is under way"
    DEGRADED = "Degraded", "batches run, but not as asked for"
    RECONCILING = "Reconciling", "the manifest is not in force yet"
    STALLED = "Stalled", "the manifest does not come into force unless somebody acts"
    MUTATED = "MutatedByAdmission", "the cluster's webhooks change objects as they are written"


class ReadyReason(Documented):
    """Reasons of Ready."""

    RUNNING = "Running", "batches run"
    ASLEEP = "Asleep", "scaled to zero: the next rows start executors"
    INVALID_MANIFEST = "InvalidManifest", "the manifest has mistakes"
    NO_IMAGE = "NoImage", "neither spec.image nor the operator's --image is set"
    DRIVER_STARTING = "DriverStarting", "the driver has not committed a batch yet"
    EXECUTORS_STARTING = "ExecutorsStarting", "no executor is ready"
    DRIVER_NOT_CREATED = "DriverNotCreated", "the cluster does not create the driver's pod"
    DRIVER_NOT_SCHEDULED = "DriverNotScheduled", "no node takes the driver's pod"
    IMAGE_UNAVAILABLE = "ImageUnavailable", "the image cannot be pulled"
    DRIVER_FAILED = "DriverFailed", "the driver ended with an error and is started again"
    DRIVER_REFUSED = "DriverRefused", "the driver refuses the topology"
    DRIVER_SILENT = "DriverSilent", "the driver's /stats cannot be read"
    SUSPENDING = "Suspending", "spec.suspend is set: the driver finishes its batch, then the executors end"
    SUSPENDED = "Suspended", "(True) spec.suspend is set, and nothing runs any more"
    COMPLETED = "Completed", "(True) the input has ended and everything is committed"
    PAUSED = "Paused", "an annotation keeps the operator from making the driver"
    DELETING = "Deleting", "the topology is being deleted"


class BalancedReason(Documented):
    """Reasons of Balanced."""

    WITHIN_TOLERANCE = "WithinTolerance", "the imbalance is within the tolerance"
    NOT_MEASURED = "NotMeasured", "no batch has been measured"
    OUT_OF_TOLERANCE = "OutOfTolerance", "observed, or about to be re-routed"
    NOT_WORTH_IT = "NotWorthIt", "a better routing would cost more than it saves"
    NO_BETTER_PLAN = "NoBetterPlan", "no plan is noticeably better"
    NO_ROOM = "NoRoom", "a better routing needs more memory at an executor"
    RECOMMENDED = "Recommended", "mode is Recommend and a re-routing is recommended"
    REBALANCE_OFF = "RebalanceOff", "out of tolerance, and rebalance.mode is Off"


class ReconfiguringReason(Documented):
    """Reasons of Reconfiguring: the kinds of change, and two without any."""

    STARTING = "Starting", "the topology's objects are made"
    ROUTING = "Routing", "the manifest changes the routing"
    REROUTING = "Rerouting", "the controller changes the routing"
    MIGRATING = "Migrating", "a Job pre-copies state"
    RESIZING = "Resizing", "executors get other limits"
    SCALING = "Scaling", "executors are added or removed"
    RESTARTING = "Restarting", "the driver starts again from its checkpoint"
    UPDATING = "Updating", "objects are corrected"
    UPGRADING = "Upgrading", "the pods become those of this version of the operator"
    SUSPENDING = "Suspending", "the pods are stopped"
    COMPLETING = "Completing", "the pods are stopped, as the input has ended"
    SETTLED = "Settled", "(False) nothing changes"
    PAUSED = "Paused", "(False) an annotation keeps the operator from any change"


class DegradedReason(Documented):
    """Reasons of Degraded."""

    AS_EXPECTED = "AsExpected", "(False) nothing is wrong"
    EXECUTORS_MISSING = "ExecutorsMissing", "executors are not ready"
    PODS_EVICTED = "PodsEvicted", "a kubelet has evicted a pod in the last ten minutes"
    EXECUTORS_NOT_CREATED = "ExecutorsNotCreated", "the cluster does not create executors' pods"
    BATCH_LOST = "BatchLost", "a batch is tried again and again, since executors die or do not reach each other"
    MEMORY_CROWDED = "MemoryCrowded", "the state of an executor leaves little room in its memory"
    RESIZE_DEFERRED = "ResizeDeferred", "the node has no room now"
    RESIZE_INFEASIBLE = "ResizeInfeasible", "the node can never give so much"
    RESIZE_ERROR = "ResizeError", "the kubelet failed to resize"
    RESIZE_REFUSED = "ResizeRefused", "the API server does not resize the pods in place"
    APPLY_REFUSED = "ApplyRefused", "the API server refuses an object"
    CONTESTED = "Contested", "somebody keeps changing an object back"
    REPLICAS_CONTESTED = "ReplicasContested", "two writers change spec.autoscale.replicas back and forth"
    BEING_DELETED = "BeingDeleted", "an object of the topology is being deleted and waits for a finalizer"
    NAME_TAKEN = "NameTaken", "an object with the name of one of ours exists and is not the topology's"
    TOPOLOGY_REFUSED = "TopologyRefused", "the driver did not take the topology"
    EPOCH_REFUSED = "EpochRefused", "the driver did not take the epoch"
    MIGRATION_NOT_STARTED = "MigrationNotStarted", "the pod of the epoch's migration is not created, or cannot start"
    MIGRATION_FAILED = "MigrationFailed", "the epoch's migration failed"
    EPOCH_NOT_TAKEN = "EpochNotTaken", "the driver does not run under a ready epoch"
    API_FAILING = "ApiFailing", "calls of the API server fail, so that changes take longer"
    ROUTING_TOO_LARGE = "RoutingTooLarge", "the epoch does not fit into a ConfigMap"


class MutatedReason(Documented):
    """Reasons of MutatedByAdmission."""

    AS_WRITTEN = "AsWritten", "(False) the objects are as written"
    MUTATED = "Mutated", "a webhook has changed fields of them, which are left as they are"


class EventReason(Documented):
    """Events that are no reason of a condition."""

    REROUTED = "Rerouted", "an epoch runs: since when, and what moved"
    GAIN_MEASURED = "GainMeasured", "what an epoch brought, compared with the prediction"
    RECONFIGURED = "Reconfigured", "a change is done, and how long it took"
    RECOVERED = "Recovered", "a condition Degraded is over"
    NOT_SCALED = "NotScaled", "spec.autoscale.replicas was changed, and others decide, or it is out of bounds"
    SERVED_BY_ANOTHER = "ServedByAnother", "a second release of the operator leaves the topology to the first"
    WRITES_LIMITED = "WritesLimited", "the operator has written more for the topology than any change needs, and pauses"
    NOT_WATCHED = "NotWatched", "the release that serves the topology does not watch its namespace any more"
    WRITE_REFUSED = "WriteRefused", "the API server refuses what the operator writes to the topology itself"
    NODE_LOST = "NodeLost", "a pod of a node that is gone is removed, so that another takes its place"
