"""A StatefulProcessor of PySpark that does what its rows say, and emits what it saw. Nothing of ours is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, Row, StringType, StructField, StructType

PAIR = StructType([StructField("name", StringType()), StructField("n", LongType())])
OUTPUT = "k bigint, saw string"


class Scripted(StatefulProcessor):
    """Rows are (k, what, name, n): `what` is done to the state of k with `name` and `n`."""

    timed = True

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", PAIR)
        self.deep = handle.getValueState(
            "deep", "tags array<string>, counts map<string, bigint>, last struct<name: string, n: bigint>"
        )
        self.items = handle.getListState("items", PAIR)
        self.map = handle.getMapState("map", "name string", "n bigint, names array<string>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(k=key[0], saw=f"{row.what} {row['name']} {row.n}: {self._done(row.what, row['name'], row.n)}")
        yield Row(k=key[0], saw=self._state())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        timer = expiredTimerInfo.getExpiryTimeInMs()
        self.items.appendValue(("timer", timer))
        yield Row(k=key[0], saw=f"timer {timer}: {self._state()}")

    def _done(self, what: str, name: str, n: int) -> Any:
        if what == "update":
            return self.value.update((name, n))
        if what == "clear":
            return (self.value.clear(), self.items.clear())
        if what == "deepen":
            tags, counts, _ = self.deep.get() or ([], {}, None)
            tags.append(name)
            counts[name] = n
            return self.deep.update((tags, counts, Row(name=name, n=n)))
        if what == "append":
            return self.items.appendValue((name, n))
        if what == "put":
            return self.items.put([(name, n), (name, n + 1)])
        if what == "extend":
            return self.items.appendList([(name, n)] * 3)
        if what == "map":
            before = self.map.getValue((name,))
            names = [*(before[1] if before else []), name]
            return self.map.updateValue((name,), (n, names))
        if what == "unmap":
            return (self.map.containsKey((name,)), self.map.removeKey((name,)))
        if what == "register":
            return self.handle.registerTimer(n)
        if what == "unregister":
            return self.handle.deleteTimer(n)
        raise KeyError(what)

    def _state(self) -> str:
        deep = self.deep.get()
        seen = (
            self.value.exists(),
            self.value.get(),
            deep and (list(deep[0]), sorted(deep[1].items()), tuple(deep[2])),
            list(self.items.get()),
            sorted((key[0], value[0], list(value[1])) for key, value in self.map.iterator()),
            sorted(name for (name,) in list(self.map.keys())),
            sorted(self.handle.listTimers()) if self.timed else (),
        )
        return str(seen)

    def close(self) -> None:
        pass


class Untimed(Scripted):
    timed = False
