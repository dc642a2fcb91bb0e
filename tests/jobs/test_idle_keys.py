"""The option `ttl`: which operators take it, and state from before it was given. That it forgets right: test_state_model.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import Flow, counting, counts

from streamtopology.api import BatchInfo, Field, KeyedState, KeyedStateSchema, Operator, Rows, RowStateSchema
from streamtopology.jobs.operators import preparing
from streamtopology.jobs.operators.idle_keys import forget_idle
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.operators.registry import load
from streamtopology.jobs.state import LAST_WRITTEN

ROWS = pa.schema({"user": pa.int64(), "at": pa.timestamp("us", "UTC"), "amount": pa.float64()})


def prepared(run: str, **options: Any) -> Operator:
    operator = preparing.make(load(run, Path()), options, Path())
    preparing.prepare(operator, {"rows": ROWS}, ("user",), {"rows": ("user",)})
    return operator


def state_of(operator: Operator) -> KeyedState:
    assert isinstance(operator.state, KeyedStateSchema)
    return KeyedState(operator.state)


def batch(operator: Operator, state: KeyedState, users: list[int], now: float) -> None:
    given = pa.record_batch({"user": users, "at": [None] * len(users), "amount": [1.0] * len(users)}, ROWS)
    info = BatchInfo(int(now), now=now)
    operator.begin(info)
    operator.accept(Rows.of(given, "rows", ("user",)), state)
    operator.finish(info, state)
    if operator.ttl is not None:
        forget_idle(state, now, operator.ttl)
    state.commit()


def users(state: KeyedState) -> list[int]:
    return sorted(state.snapshot()["user"].to_pylist())


@pytest.mark.parametrize(
    ("run", "options"),
    [
        ("count", {}),
        ("count", {"emit": "all"}),
        ("aggregate", {"aggregates": {"total": "sum(amount)", "kinds": "collect_set(amount)"}}),
        ("quantiles", {"column": "amount", "min": 0, "max": 9, "quantiles": [0.5]}),
    ],
)
def test_a_key_is_forgotten_after_its_ttl(run: str, options: dict[str, Any]) -> None:
    operator = prepared(run, ttl="10s", **options)
    state = state_of(operator)
    batch(operator, state, [1, 2], 100.0)
    batch(operator, state, [2], 105.0)
    batch(operator, state, [], 109.999)
    assert users(state) == [1, 2]
    batch(operator, state, [3], 110.0)
    assert users(state) == [2, 3]
    batch(operator, state, [2], 115.0)
    assert users(state) == [2, 3]


def test_a_key_that_was_seen_is_forgotten_so_long_after_its_first_tuple() -> None:
    operator = prepared("deduplicate", ttl="10s")
    state = state_of(operator)
    batch(operator, state, [1, 2], 100.0)
    batch(operator, state, [1], 105.0)
    batch(operator, state, [3], 110.0)
    assert users(state) == [3]


@pytest.mark.parametrize("policy", ["mixed", "auto", "partial-key", "shuffle"])
def test_a_key_is_forgotten_under_each_kind_of_grouping(tmp_path: Path, policy: str) -> None:
    given, clock = counting(policy), [0.0]
    given["spec"]["operators"][0]["with"] = {"ttl": "10s"}
    flow = Flow(tmp_path, given, wall_clock=lambda: clock[0])
    for clock[0], keys in ((100.0, [1, 2]), (105.0, [2]), (110.0, [3])):
        flow.batch(s=pa.table({"k": pa.array(keys, pa.int64())}))
    assert counts(flow) == {2: 2, 3: 1}


def test_what_a_person_is_shown_has_no_time_of_writing() -> None:
    operator = prepared("deduplicate", ttl="10s")
    state = state_of(operator)
    batch(operator, state, [1], 100.0)
    assert LAST_WRITTEN not in operator.shown(state, state.live()).schema.names


def test_keys_from_before_the_option_count_as_written_when_it_is_given() -> None:
    before, operator = prepared("count"), prepared("count", ttl="10s")
    old = state_of(before)
    batch(before, old, [1, 2], 100.0)
    state = state_of(operator)
    state.restore(state.schema.fitted(old.snapshot()))
    batch(operator, state, [2], 500.0)
    assert users(state) == [1, 2]
    batch(operator, state, [2], 510.0)
    assert users(state) == [2]


def test_state_is_kept_when_the_option_goes() -> None:
    before, operator = prepared("count", ttl="10s"), prepared("count")
    old = state_of(before)
    batch(before, old, [1, 1, 2], 100.0)
    state = state_of(operator)
    state.restore(state.schema.fitted(old.snapshot()))
    assert state.snapshot().to_pylist() == [{"user": 1, "count": 2}, {"user": 2, "count": 1}]


class Kept(Operator):
    def prepare(self, inputs: Any, key: tuple[str, ...]) -> None:
        self.state = RowStateSchema(inputs, key, "at")


class Late(Operator):
    fields = (Field("n", np.int64),)
    drops_late_rows = True


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (Kept, {"ttl": "1h"}, "option 'ttl' is for operators that keep fields for each key, which Kept does not"),
        (Late, {"ttl": "1h"}, "option 'ttl' is not for Late, which forgets by times of its own"),
        (Late, {"ttl": 0}, "option 'ttl' is 0; allowed: more, such as 1h"),
        (Late, {"ttl": "soon"}, "option 'ttl' is 'soon'; allowed: a duration"),
    ],
)
def test_ttl_that_means_nothing_is_refused(kind: type[Operator], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        preparing.prepare(kind(**options), {"rows": ROWS}, ("user",), {"rows": ("user",)})
    assert sentence in str(refused.value)
