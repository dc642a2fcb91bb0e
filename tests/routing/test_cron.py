"""Times of schedules: they are what looking at every minute finds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.depth import deep

from streamtopology.topology.cron import CRON_PATTERN, Cron

BOUNDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
BEGIN = datetime(2027, 12, 30, tzinfo=UTC)  # over the end of a year, and February of a leap year


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> tuple[str, set[int]]:
    """A field, and the numbers that it names."""
    if draw(st.booleans()):
        return "*", set(range(least, most + 1))
    texts, numbers = list[str](), set[int]()
    for _ in range(draw(st.integers(1, 2))):
        first, last = sorted(draw(st.tuples(st.integers(least, most), st.integers(least, most))))
        step = draw(st.integers(1, 9))
        text, found = draw(
            st.sampled_from(
                [
                    (f"{first}", {first}),
                    (f"{first}-{last}", set(range(first, last + 1))),
                    (f"{first}-{last}/{step}", set(range(first, last + 1, step))),
                    (f"{first}/{step}", set(range(first, most + 1, step))),
                ]
            )
        )
        texts.append(text)
        numbers |= found
    return ",".join(texts), numbers


def is_time(given: list[tuple[str, set[int]]], moment: datetime) -> bool:
    minutes, hours, days, months, weekdays = (numbers for _, numbers in given)
    on_day, on_weekday = moment.day in days, moment.isoweekday() % 7 in weekdays
    both_given = given[2][0] != "*" and given[4][0] != "*"
    fits = on_day or on_weekday if both_given else on_day and on_weekday
    return fits and moment.month in months and moment.hour in hours and moment.minute in minutes


@deep(gate=40, long=400)
@given(
    st.tuples(*(fields(*bounds) for bounds in BOUNDS)).map(list),
    st.integers(0, 90 * 1440),
    st.integers(0, 5_000),
    st.integers(0, 59),
)
def test_times_are_found_as_by_looking_at_every_minute(
    given: list[tuple[str, set[int]]], end: int, minutes: int, seconds: int
) -> None:
    text, until = " ".join(text for text, _ in given), BEGIN + timedelta(minutes=end)
    every = (until - timedelta(minutes=back) for back in range(minutes))
    expected = [moment.timestamp() for moment in every if is_time(given, moment)]
    asked = (until - timedelta(minutes=minutes)).timestamp(), until.timestamp() + seconds
    assert list(Cron.parse(text).all(*asked)) == expected
    assert Cron.parse(text).newest(*asked) == next(iter(expected), None)


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *", "@daily",
     "0 3 * * MON", "0 3 * * *\n", "1- * * * *", "1,, * * * *", "-1 * * * *"],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"as 30 3 \* \* \*"):
        Cron.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *", "0 0 30-31 2 *", "0 0 29 2 *", "0 0 31 2,3 *", "0 0 31 2 1", "0 0 31 4,6,9,11 *", "0 0 */31 2 *",
        "0 0 31 2 */2", "0 0 * 2 6",
    ],
)  # fmt: skip
def test_schedule_of_no_day_has_no_time_in_nine_years(text: str) -> None:
    now = datetime(2031, 1, 1, tzinfo=UTC).timestamp()
    assert Cron.parse(text).is_of_no_day == (Cron.parse(text).newest(now - 9 * 365 * 86_400, now) is None)


@given(st.from_regex(CRON_PATTERN, fullmatch=True))
def test_whatever_the_pattern_takes_has_a_meaning(text: str) -> None:
    for numbers, (least, most) in zip(Cron.parse(text).fields, BOUNDS, strict=True):
        assert numbers
        assert numbers <= set(range(least, most + 1))


def test_range_may_go_over_its_end() -> None:
    assert Cron.parse("0 22-2 * * 5-1").fields[1::3] == (frozenset({22, 23, 0, 1, 2}), frozenset({5, 6, 0, 1}))


def test_pattern_is_one_that_the_api_server_knows() -> None:
    assert not re.search(r"\(\?|\\[dDwWsSbB]", CRON_PATTERN)
