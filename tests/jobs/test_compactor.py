"""A worker's compactions in the background, and what the batches see of them."""

from __future__ import annotations

from streamtopology.jobs.checkpoint import StateRef
from streamtopology.jobs.worker.compactor import Compactor, InstanceKey, Work

HELD = StateRef(None, ("state/n/0/1-1.delta", "state/n/0/2-1.delta"), 1, 8)
HERE: InstanceKey = ("run", "n", 0)
ALSO: InstanceKey = ("run", "n", 1)


def snapshot(covered: StateRef) -> str:
    return covered.deltas[-1].replace(".delta", ".snapshot")


def test_a_compaction_that_ends_while_the_instances_are_looked_through_is_reported() -> None:
    works: list[Work] = []
    compactor = Compactor(works.append)
    assert compactor.compacted(HERE, HELD, 2, snapshot) is None
    works.pop()()  # done, and not asked for yet
    assert compactor.compacted(ALSO, HELD, 1, snapshot) is None

    def is_here(_: InstanceKey) -> bool:
        while works:
            works.pop()()  # as another thread would
        return True

    compactor.retain(is_here)
    done = [compactor.compacted(HERE, HELD, 2, snapshot), compactor.compacted(ALSO, HELD, 1, snapshot)]
    assert [each and each.snapshot for each in done] == ["state/n/0/2-1.snapshot", "state/n/0/1-1.snapshot"]
    assert works == [], "none is begun again"


def test_a_snapshot_of_an_instance_that_is_elsewhere_is_forgotten() -> None:
    works: list[Work] = []
    compactor = Compactor(works.append)
    assert compactor.compacted(HERE, HELD, 2, snapshot) is None
    works.pop()()
    compactor.retain(lambda key: key != HERE)
    assert compactor.compacted(HERE, HELD, 2, snapshot) is None
    assert len(works) == 1
