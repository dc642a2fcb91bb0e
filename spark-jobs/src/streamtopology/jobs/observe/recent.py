"""A sequence that grows without end, of which only the newest items are kept."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Recent(Generic[Item]):
    """The newest `most` items, and the number of all that were ever appended; safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._items: deque[Item] = deque(maxlen=most)
        self._appended = 0
        self._lock = threading.Lock()

    def append(self, item: Item) -> None:
        with self._lock:
            self._items.append(item)
            self._appended += 1

    @property
    def appended(self) -> int:
        """The number of all items, those that are not kept any more included."""
        return self._appended

    def kept(self) -> tuple[Item, ...]:
        """The items that are kept, oldest first."""
        with self._lock:
            return tuple(self._items)

    def last(self) -> Item | None:
        """The newest item; None before the first."""
        with self._lock:
            return self._items[-1] if self._items else None

    def since(self, seen: int) -> tuple[int, tuple[Item, ...]]:
        """The number of all items, and those after the first `seen` as far as they are kept. Costs as much as it returns."""
        with self._lock:
            wanted = min(self._appended - seen, len(self._items))
            newest = list(islice(reversed(self._items), max(wanted, 0)))
            return self._appended, tuple(reversed(newest))

    def change(self, back: int, changed: Callable[[Item], Item]) -> None:
        """Replace the item `back` places before the newest one, if it is kept."""
        with self._lock:
            if back < len(self._items):
                self._items[-1 - back] = changed(self._items[-1 - back])

    def change_all(self, changed: Callable[[Item], Item]) -> None:
        """Replace each item that is kept."""
        with self._lock:
            for index, item in enumerate(self._items):
                self._items[index] = changed(item)
