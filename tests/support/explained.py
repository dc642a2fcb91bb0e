"""An epoch with all that was weighed for it, and the lines of its story."""

from __future__ import annotations

from streamtopology.contract.reasons import (
    Binding,
    BindingKind,
    EpochCause,
    EpochReason,
    KeyMove,
    RemedyKind,
    StageReason,
    Weighed,
    WeighedStage,
)
from streamtopology.jobs.observe.history import History
from support.histories import SLOTS, reconfiguration, run

KEY = f"{7:016x}"  # in the reports of `support.histories` it has the label N725MQ
WEIGHED = Weighed(
    stages=(
        WeighedStage("tail", RemedyKind.TABLE, 1.3, 0.7, 0.05),
        WeighedStage("(source)", RemedyKind.SHARES, 0.21, 0.2, 0.02, taken=False),
    ),
    batch_seconds=2.0,
    gain_seconds=0.6,
    cost_seconds=0.4,
    batches=30.0,
    trust=0.5,
    binding=Binding(BindingKind.INSTANCE, "tail", 1.3, 0.65, instance=3),
    keys=(KeyMove("tail", KEY, 12_000.0, 3, 1),),
)
REASON = EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "tail", 1.0, 0.05),), weighed=WEIGHED)
TAKEN_BACK = EpochReason(EpochCause.TAKEN_BACK, epoch=2, lost_seconds=0.2)
LINES = (
    "epoch 2, from batch 8 on: tail: imbalance 100.0%, planned 5.0%",
    "before it, tail is bounded by instance 3: it takes 1.3 s, all together would take 650 ms",
    "tail: kept as it was 1.3 s, by another table 700 ms: taken",
    "the source: kept as it was 210 ms, in other shares 200 ms: left, as less than 20 ms is noise",
    "saves 600 ms of a batch of 2.0 s, over 30 batches, 50 % of it believed; costs 400 ms once",
    "key N725MQ of tail, 12.0 k rows a batch, moves from instance 3 to 1",
    "gain: predicted 30 %, not measured yet",
)


def rerouted(hides_keys: bool = False) -> History:
    history = History("flights", SLOTS, {"tail": "mixed"}, hides_keys=hides_keys)
    for batch in run(9).batches:
        history.batch_done(batch)
    history.rerouted(reconfiguration(epoch=2, batch=8, reason=REASON, predicted_gain=0.3))
    return history
