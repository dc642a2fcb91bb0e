"""The schema of `status`: reports for people, and the intent from which another operator resumes."""

from __future__ import annotations

from streamtopology.topology.crd.fields import Schema, choice, mapping, number, text, texts_by_name, whole


def status_schema() -> Schema:
    return mapping(
        "What the operator has seen and what it is about to do.",
        {
            "phase": text(
                "Where the topology is in its life: Starting, Running, Reconfiguring, Asleep, Paused, Suspending, "
                "Suspended, Completed, Draining, Failed or Invalid."
            ),
            "observedGeneration": whole("The metadata.generation that this status is about."),
            "conditions": conditions_schema(
                "What: Ready, Balanced, Reconfiguring, Degraded, Reconciling, Stalled, MutatedByAdmission."
            ),
            "epoch": whole("The epoch of routing that the last batch ran under."),
            "batch": whole("The last committed batch."),
            "imbalance": number("The worst stage's imbalance, as last judged; until then, of the last batch."),
            "throughput": whole("Rows a second, the median of the last batches."),
            "executors": mapping(
                "Executors of all classes.",
                {
                    "ready": whole("Those that take work."),
                    "wanted": whole("Those that there should be."),
                    "summary": text("ready/wanted, for the column."),
                },
            ),
            "policies": texts_by_name("The grouping of each operator."),
            "policy": text("The groupings in a line, for the column."),
            "bound": whole("The most rows a second that any routing could reach, by the capacities measured last."),
            "boundBy": _bound_by(),
            "checkpoint": text("Where the driver has committed the last batch: state and offsets."),
            "classes": _list("The executor classes.", _executor_class()),
            "lastRerouting": _rerouting("The last time that routing changed, and what that brought."),
            "reroutings": _list("The last re-routings, newest first.", _rerouting("One operator, re-routed.")),
            "recommendation": _recommendation(),
            "completed": whole("The metadata.generation under which the input came to its end."),
            "completedFor": text("That generation, the last one since that was only a scale, and digests of their manifest."),
            "intent": _intent(),
            "autoscale": _autoscale(),
            "asked": _asked(),
        },
    )


def _bound_by() -> Schema:
    return mapping(
        "The constraint that bounds the time of a batch, with the figures of when it was first seen.",
        {
            "kind": text("What: capacity, instance, key, fixed or elsewhere; others may follow."),
            "stage": text("The operator that takes longest, or (source); not of kind elsewhere."),
            "instance": whole("Of kind instance: which one is done last."),
            "key": text("Of kind key: the key, or its hash where keys are hidden."),
            "text": text("The sentence."),
            "at": _time("When it was first seen."),
        },
    )


def _recommendation() -> Schema:
    return mapping(
        "In mode Recommend: what would be re-routed now.",
        {
            "text": text("What, why and with which figures."),
            "stages": _list("The operators it is about.", text("An operator.")),
            "at": _time("When it was judged."),
        },
    )


def _intent() -> Schema:
    return {
        **mapping(
            "What the operator has begun and not yet seen done; absent when nothing is changing.",
            {
                "action": text(
                    "What: Starting, Routing, Rerouting, Migrating, Resizing, Scaling, Restarting, Updating, "
                    "Upgrading, Suspending or Completing, as the condition Reconfiguring says, or Deleting."
                ),
                "generation": whole("The metadata.generation it is about."),
                "target": text("The executors and the epoch that it leads to."),
                "reason": text("Why."),
                "at": _time("When it began."),
                "steps": _list("What is about to be done, in this order.", text("A step.")),
            },
            required=("action", "at"),
        ),
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _autoscale() -> Schema:
    return mapping(
        "What is scaled: the class, or the classes.",
        {
            "replicas": whole("Executors that the class has now, for the scale subresource."),
            "selector": text("The labels of its pods, for the scale subresource."),
            "class": text("The class that the numbers are of."),
            "desired": whole("Executors that were decided on, within the bounds."),
            "classes": _list(
                "Of several classes, in place of the four.",
                mapping(
                    "A class that is scaled.",
                    {
                        "name": text("Its name."),
                        "desired": whole("Executors of it that were decided on, within the bounds."),
                    },
                ),
            ),
            "unheeded": text("Why another number than spec.autoscale.replicas holds: others decide, or it is out of bounds."),
            "reason": text("The reason for this number, with the figures."),
            "at": _time("When that was decided."),
        },
    )


def _asked() -> Schema:
    return mapping(
        "What others have asked for in spec.autoscale.replicas.",
        {
            "class": text("The class."),
            "numbers": _list(
                "The last numbers, the present one last.",
                mapping("A number.", {"replicas": whole("Executors."), "at": _time("Since when.")}),
            ),
        },
    )


def _rerouting(description: str) -> Schema:
    return mapping(
        description,
        {
            "epoch": whole("The epoch that it made."),
            "batch": whole("Its first batch."),
            "operator": text("The operator, or (source)."),
            "reason": text("Why."),
            "keysMoved": whole("Keys whose state changed its owner."),
            "bytesMoved": whole("How much state that was."),
            "seconds": number("From its publication to its first batch."),
            "predictedGain": number("Share of a batch's time that it was to save."),
            "measuredGain": number("Share of a batch's time that it saved."),
            "at": _time("When it was seen to run."),
        },
    )


def _executor_class() -> Schema:
    return mapping(
        "One class.",
        {
            "name": text("Its name."),
            "replicas": whole("Executors that there should be."),
            "ready": whole("Those that take work."),
            "cpu": text("CPU limit of each."),
            "memory": text("Memory limit of each."),
            "refused": text("Why the API server does not resize its pods in place; they are replaced."),
            "refusedFor": text("The limits that it refused."),
            "refusedAt": _time("When; an hour later it is asked again, if a pod still has other limits."),
        },
    )


def conditions_schema(types: str) -> Schema:
    """The list of conditions. `types`: a sentence with those that there are."""
    condition = mapping(
        "One thing that is so or is not.",
        {
            "type": text(types, 316),
            "status": choice("Whether it is so.", ("True", "False", "Unknown")),
            "observedGeneration": whole("The metadata.generation that this is about.", 0),
            "lastTransitionTime": _time("When status last changed."),
            "reason": text("Why, in a word for programs.", 1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            "message": {"type": "string", "description": "Why, in a sentence for people.", "maxLength": 32768},
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    return {
        "type": "array",
        "description": "What is so and what is not, each with its reason.",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def _list(description: str, item: Schema) -> Schema:
    return {"type": "array", "description": description, "items": item}


def _time(description: str) -> Schema:
    return {"type": "string", "format": "date-time", "description": description}
