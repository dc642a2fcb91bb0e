"""CPU, memory and durations: read as Kubernetes and people write them, written so that they are read back."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.quantities import Quantity, quantities

from streamtopology.topology import (
    QuantityError,
    format_cpu,
    format_duration,
    format_memory,
    parse_cpu,
    parse_duration,
    parse_memory,
    parse_storage,
)


@pytest.mark.parametrize(
    ("value", "cores"),
    [
        ("450m", 0.45),
        (0.45, 0.45),
        (1, 1.0),
        ("2", 2.0),
        ("0.135", 0.135),
        ("1500m", 1.5),
        (1.0, 1.0),
        (".5", 0.5),
        ("+1", 1.0),
        ("5.", 5.0),
        ("1e-1", 0.1),
        ("500000u", 0.5),
        ("1k", 1000.0),
        ("1.5m", 0.002),
        (1e-7, 0.001),
    ],
)
def test_cpu(value: object, cores: float) -> None:
    assert parse_cpu(value) == cores


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        ("1Gi", 2**30),
        ("512Mi", 2**29),
        ("1.5G", 1_500_000_000),
        (2**30, 2**30),
        ("64Ki", 2**16),
        ("2k", 2000),
        (1e9, 10**9),
        ("1e9", 10**9),
        ("1Pi", 2**50),
        ("1E", 10**18),
        ("1E3", 1000),
        ("128974848000m", 128974848),
        ("1.5", 2),
        ("-0", 0),
        ("10E", 2**63 - 1),
        ("1e999999999", 2**63 - 1),
        ("1e-999999999", 1),
    ],
)
def test_memory(value: object, amount: int) -> None:
    assert parse_memory(value) == parse_storage(value) == amount


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("10us", 1e-5), ("250ms", 0.25), ("1.5s", 1.5), ("10m", 600.0), ("1h", 3600.0), ("0", 0.0), (0, 0.0)],
)
def test_durations(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


CPU = "a positive number of cores such as 450m, 0.45 or 2"
MEMORY = "an amount of memory such as 512Mi, 1Gi or 2G"
STORAGE = "an amount of storage such as 10Gi, 512Mi or 20G"
UNITS = "the units are n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"
DURATION = "a duration such as 10us, 250ms, 10s, 5m, 1h or 0"


@pytest.mark.parametrize(
    ("parser", "value", "sentence"),
    [
        (parse_cpu, 0, f"found 0, expected {CPU}: an executor without CPU does no work"),
        (parse_cpu, "0m", f"found '0m', expected {CPU}: an executor without CPU does no work"),
        (parse_cpu, "2c", f"found '2c', expected {CPU}: {UNITS}"),
        (parse_cpu, -1, f"found -1, expected {CPU}: it is negative"),
        (parse_cpu, 5000, f"found 5000, expected {CPU}: at most 1024 cores; did you mean 5000m, 5 of them?"),
        (parse_cpu, 2500, f"found 2500, expected {CPU}: at most 1024 cores; did you mean 2500m, 2.5 of them?"),
        (parse_cpu, 2_000_000, f"found 2000000, expected {CPU}: at most 1024 cores"),
        (parse_cpu, "2000000m", f"found '2000000m', expected {CPU}: at most 1024 cores"),
        (parse_cpu, "500 m", f"found '500 m', expected {CPU}: spaces are not allowed; did you mean 500m?"),
        (parse_cpu, " 1 ", f"found ' 1 ', expected {CPU}: spaces are not allowed; did you mean 1?"),
        (parse_memory, "1 Gi", f"found '1 Gi', expected {MEMORY}: spaces are not allowed; did you mean 1Gi?"),
        (parse_duration, "5 s", f"found '5 s', expected {DURATION}: spaces are not allowed; did you mean 5s?"),
        (parse_cpu, True, f"found another kind, expected {CPU}"),
        (parse_cpu, float("nan"), f"found nan, expected {CPU}"),
        (parse_cpu, [1], f"found another kind, expected {CPU}"),
        (parse_memory, "1GB", f"found '1GB', expected {MEMORY}: {UNITS}"),
        (parse_memory, "-1Gi", f"found '-1Gi', expected {MEMORY}: it is negative"),
        (parse_memory, "1e", f"found '1e', expected {MEMORY}: {UNITS}"),
        (parse_memory, "1" * 300, f"found '{'1' * 300}', expected {MEMORY}"),
        (parse_memory, "lots", f"found 'lots', expected {MEMORY}"),
        (parse_storage, "lots", f"found 'lots', expected {STORAGE}"),
        (parse_storage, "10 Gi", f"found '10 Gi', expected {STORAGE}: spaces are not allowed; did you mean 10Gi?"),
        (parse_storage, "10GB", f"found '10GB', expected {STORAGE}: {UNITS}"),
        (parse_storage, "-1Gi", f"found '-1Gi', expected {STORAGE}: it is negative"),
        (parse_duration, 10, f"found 10, expected {DURATION}: a number alone has no unit"),
        (parse_duration, "10", f"found '10', expected {DURATION}: a number alone has no unit"),
        (parse_duration, "3 days", f"found '3 days', expected {DURATION}: the units are us, ms, s, m, h"),
        (parse_duration, "-1s", f"found '-1s', expected {DURATION}: it is negative"),
        (parse_duration, "0.0001us", f"found '0.0001us', expected {DURATION}: nothing is finer than 0.001us"),
        (parse_duration, "99999h", f"found '99999h', expected {DURATION}: at most a year, 8784h"),
    ],
)
def test_a_quantity_that_cannot_be_says_why(parser: object, value: object, sentence: str) -> None:
    assert callable(parser)
    with pytest.raises(QuantityError) as raised:
        parser(value)
    assert str(raised.value) == sentence


@given(quantities())
def test_amounts_are_rounded_up_as_a_pod_has_them(written: Quantity) -> None:
    """To a millicore and a byte; one that a pod takes is refused only for want of CPU or for more of it than there is."""
    assert parse_memory(written.text) == ceil(min(written.amount, Fraction(2**63 - 1)))
    if 0 < written.amount <= 1024:
        assert parse_cpu(written.text) == ceil(written.amount * 1000) / 1000
    else:
        with pytest.raises(QuantityError):
            parse_cpu(written.text)


@given(st.floats(min_value=0, max_value=1024, exclude_min=True))
def test_numbers_that_yaml_has_read_are_taken(cores: float) -> None:
    assert parse_cpu(cores) == parse_cpu(repr(cores)) == ceil(Fraction(repr(cores)) * 1000) / 1000


@pytest.mark.parametrize(
    ("parser", "expected"), [(parse_cpu, CPU), (parse_memory, MEMORY), (parse_storage, STORAGE), (parse_duration, DURATION)]
)
def test_every_example_of_a_refusal_is_accepted(parser: Callable[[object], float], expected: str) -> None:
    """With and without the quotes of YAML."""
    examples = expected.split("such as ")[1].replace(" or ", ", ").split(", ")
    for example in examples:
        assert parser(example) == parser(yaml.safe_load(example))


@given(st.integers(1, 1_024_000))
def test_cpu_is_written_as_it_is_read(millicores: int) -> None:
    assert parse_cpu(format_cpu(millicores / 1000)) == millicores / 1000


@given(st.integers(0, 2**50))
def test_memory_is_written_as_it_is_read(amount: int) -> None:
    assert parse_memory(format_memory(amount)) == amount


@given(st.integers(0, 366 * 24 * 3600 * 10**9))
def test_durations_are_written_as_they_are_read(nanoseconds: int) -> None:
    seconds = float(Fraction(nanoseconds, 10**9))
    assert parse_duration(format_duration(seconds)) == seconds


def test_the_largest_unit_without_a_fraction_is_written() -> None:
    assert [format_duration(seconds) for seconds in (0.0, 1e-5, 0.25, 90.0, 600.0, 7200.0, 5e-7)] == [
        "0s",
        "10us",
        "250ms",
        "90s",
        "10m",
        "2h",
        "0.0000005s",
    ]
    assert [format_memory(amount) for amount in (2**30, 3 * 2**29, 1000)] == ["1Gi", "1536Mi", "1000"]
    assert [format_cpu(cores) for cores in (0.45, 2.0, 1.5)] == ["450m", "2", "1500m"]
