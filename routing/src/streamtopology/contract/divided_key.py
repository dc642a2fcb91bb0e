"""A key whose rows routers divide over several instances, and its sentence in the live view and in `streamtopology explain`."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.contract.formatting import count
from streamtopology.contract.reason_text import stage_name


@dataclass(frozen=True)
class DividedKey:
    """A heavy key of the newest batch, its `rows` there, and the number of instances that they came to."""

    operator: str
    key: str
    rows: int
    instances: int

    @property
    def text(self) -> str:
        """One line, without a full stop."""
        where = f"is divided over {self.instances} instances"
        return f"key {self.key} of {stage_name(self.operator)}, {count(self.rows)} rows a batch, {where}"
