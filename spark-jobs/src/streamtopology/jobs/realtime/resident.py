"""The life of a worker that outlives its drivers: it serves one after the other, and its state stays warm between them."""

from __future__ import annotations

from collections.abc import Callable

from streamtopology.jobs.realtime.summons import Summons

LOOK_SECONDS = 0.02


# Obeys the driver that summons, until it ends that. Asks the second argument again and again, which is True when all is over.
Serve = Callable[[Summons, Callable[[], bool]], None]


def live(
    find: Callable[[], Summons | None], serve: Serve, may_stay: Callable[[], bool], pause: Callable[[float], None]
) -> None:
    """Serve each driver that calls, as `find` says, until `may_stay` is no longer true.

    A summons that is not newer than the last one obeyed is of a driver that has been superseded.
    """
    obeyed: Summons | None = None

    def called() -> Summons | None:
        summons = find()
        return summons if summons is not None and summons.is_after(obeyed) else None

    while may_stay():
        summons = called()
        if summons is None:
            pause(LOOK_SECONDS)
            continue
        obeyed = summons
        serve(summons, lambda: called() is not None or not may_stay())
