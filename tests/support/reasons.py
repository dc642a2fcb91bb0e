"""Reasons for tests that need one, whichever it is."""

from __future__ import annotations

from streamtopology.contract.reasons import EpochCause, EpochReason, RemedyKind, ScalingReason, Sizing, StageReason

BY_TEST = EpochReason.of_text("the test says so")
REBALANCED = EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "counts", 0.5, 0.02),))
BUSY = Sizing(ScalingReason.LOAD, 9, needed=9, executors=2, utilisation=0.95, target=0.7)
