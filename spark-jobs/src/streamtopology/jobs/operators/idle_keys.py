"""Keys whose state nothing has written for a while are forgotten: the option `ttl` of operators with state per key.

Time is the processing time of batches, so that all attempts at a batch agree.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.state import LAST_WRITTEN, Field, KeyedState, KeyedStateSchema

_TIME = Field(LAST_WRITTEN, np.dtype(np.int64), merge="max", added=True)


def with_time_of_writing(operator: Operator) -> KeyedStateSchema:
    """The operator's state, with the milliseconds since 1970 at which a key was last written; 0: nobody has noted it.

    Raises OptionError.
    """
    name = type(operator).__name__
    if not operator.ttl:
        raise OptionError("option 'ttl' is 0; allowed: more, such as 1h", about="ttl")
    if not isinstance(operator.state, KeyedStateSchema):
        raise OptionError(f"option 'ttl' is for operators that keep fields for each key, which {name} does not", about="ttl")
    if operator.drops_late_rows:
        raise OptionError(f"option 'ttl' is not for {name}, which forgets by times of its own", about="ttl")
    return replace(operator.state, fields=(*operator.state.fields, _TIME))


def forget_idle(state: KeyedState, now: float, ttl: float) -> None:
    """Note which keys this batch has written, and delete those that no batch has for `ttl` seconds. now: of the batch.

    Keys of which nobody has noted it count as written now.
    """
    written, live, now_millis = state.touched(), state.live(), round(now * 1000)
    unknown = live[state.column(LAST_WRITTEN)[live] == 0]
    state.touch(unknown)
    times = state.column(LAST_WRITTEN)
    times[written] = times[unknown] = now_millis
    state.delete(live[times[live] <= now_millis - round(ttl * 1000)])
