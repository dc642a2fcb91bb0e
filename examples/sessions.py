"""Sessions, for sessions.yaml: rows of a key without a pause between them. The class runs on Spark as it is, too."""

from datetime import UTC, datetime

from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import Row

SECOND = 1_000_000  # microseconds


class Sessions(StatefulProcessor):
    """Emits start, end and number of rows of each session; a pause longer than `pause` seconds ends one."""

    def __init__(self, pause=20):
        self.pause = pause * SECOND

    def init(self, handle):
        self.handle = handle
        self.open = handle.getListState("open", "start bigint, last bigint, rows bigint")

    def handleInputRows(self, key, rows, timerValues):
        times = [round(row.at.timestamp() * SECOND) for row in rows]
        merged = []
        for start, last, count in sorted([*self.open.get(), *((at, at, 1) for at in times)]):
            if merged and start <= merged[-1][1] + self.pause:
                start, before, rows_before = merged.pop()
                last, count = max(last, before), count + rows_before
            merged.append((start, last, count))
        self.open.put(merged)
        for _, last, _ in merged:
            self.handle.registerTimer(self._ends(last))
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        now = expiredTimerInfo.getExpiryTimeInMs()
        sessions = list(self.open.get())
        still_open = [session for session in sessions if self._ends(session[1]) > now]
        if still_open:
            self.open.put(still_open)
        else:
            self.open.clear()
        for start, last, count in sessions:
            if self._ends(last) <= now:
                yield Row(symbol=key[0], start=as_time(start), end=as_time(last), rows=count)

    def _ends(self, last):
        """The millisecond after which no row can extend the session any more."""
        return -(-(last + self.pause) // 1000)

    def close(self):
        pass


def as_time(micros):
    return datetime.fromtimestamp(micros // SECOND, UTC).replace(microsecond=micros % SECOND)
