"""The demo's check finds what it looks for: flights that were lost or doubled, figures that are wrong, state that is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from support.stages import SLOTS, Flow, random_table

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology.lab.bench.flights_data import make_flights
from streamtopology.lab.demo.check import Expected, check_destinations, check_tails, compare, count_flights, kept_histograms
from streamtopology.topology import parse

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights.yaml"
BATCHES, ROWS = 3, 2_000

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Ran:
    """The results of a run of the demo's topology, and a group-by of its flights."""

    expected: Expected
    checkpoint: Checkpoint
    results: Path


def ran(folder: Path, change: Change = lambda flights: flights) -> Ran:
    """The demo's topology over some flights, re-routed after each batch; of the last batch it is given what `change` makes."""
    files = make_flights(folder / "data", BATCHES, ROWS)
    given = yaml.safe_load(FLIGHTS.read_text())
    given["spec"]["executors"] = [{"name": "slot", "replicas": SLOTS, "cpu": "1"}]
    given["spec"]["sinks"][0]["options"]["path"] = str(folder / "results")
    (sink,) = parse(given).sinks
    flow = Flow(folder, given, sink=lambda name, checkpoint: open_sink(sink, Writer("flow", checkpoint.run)))
    random = np.random.default_rng(0)
    for file in files:
        flights = pq.read_table(file)
        flow.batch(flights=change(flights) if file == files[-1] else flights)
        flow.router.reroute({"tail": random_table(random, SLOTS), "destination": random_table(random, SLOTS)})
    return Ran(count_flights(folder / "data"), flow.checkpoint, folder / "results")


def arrived(flights: pa.Table) -> pa.Table:
    return flights.filter(pc.field("arr_delay").is_valid())


def later(flights: pa.Table) -> pa.Table:
    """The first flight comes a minute later."""
    delays = flights["arr_delay"].to_pylist()
    delays[0] += 1
    index = flights.schema.get_field_index("arr_delay")
    return flights.set_column(index, flights.schema.field(index), pa.array(delays, pa.int32()))


def test_a_run_that_is_right_is_equal_in_both_operators(tmp_path: Path) -> None:
    done = ran(tmp_path)
    tails, destinations = check_tails(done.expected, done.checkpoint), check_destinations(done.expected, done.results)
    assert tails == destinations
    assert tails.equal
    assert (tails.lost, tails.duplicated) == (0, 0)
    rows = [arrived(pq.read_table(file)).num_rows for file in (tmp_path / "data").glob("*.parquet")]
    assert tails.rows_expected == tails.rows_seen == sum(rows)


@pytest.mark.parametrize(
    ("change", "lost", "duplicated"),
    [
        (lambda flights: arrived(flights).slice(1), 1, 0),
        (lambda flights: pa.concat_tables([flights, arrived(flights).slice(0, 2)]), 0, 2),
        (lambda flights: later(arrived(flights)), 0, 0),
    ],
    ids=["lost", "doubled", "altered"],
)
def test_a_flight_that_is_lost_doubled_or_altered_on_its_way_is_found(
    tmp_path: Path, change: Change, lost: int, duplicated: int
) -> None:
    done = ran(tmp_path, change)
    tails, destinations = check_tails(done.expected, done.checkpoint), check_destinations(done.expected, done.results)
    assert not tails.equal
    for check in (tails, destinations):
        assert (check.lost, check.duplicated) == (lost, duplicated)
        assert check.rows_seen == check.rows_expected - lost + duplicated
    assert destinations.equal == (lost == duplicated == 0), "a minute is in the histogram of an aircraft, in no quantile here"


def test_a_quantile_that_is_wrong_is_found(tmp_path: Path) -> None:
    done = ran(tmp_path)
    newest = max(done.results.glob("*.parquet"))
    published = pq.read_table(newest)
    medians = published["q50"].to_pylist()
    medians[0] += 1
    pq.write_table(published.set_column(published.schema.get_field_index("q50"), "q50", pa.array(medians)), newest)
    check = check_destinations(done.expected, done.results)
    assert not check.equal
    assert (check.lost, check.duplicated) == (0, 0)


def test_an_aircraft_whose_state_is_gone_or_kept_twice_is_found(tmp_path: Path) -> None:
    done = ran(tmp_path)
    kept = kept_histograms(done.checkpoint, "tail")
    flights = kept[0][1][0]
    gone = compare(done.expected.tails, kept[1:])
    assert (gone.lost, gone.duplicated, gone.equal) == (flights, 0, False)
    twice = compare(done.expected.tails, [*kept, kept[0]])
    assert (twice.lost, twice.duplicated, twice.equal) == (0, flights, False)
    nothing = compare(done.expected.tails, [*kept, (kept[0][0], (0,))])
    assert not nothing.equal, "of a key that was handed over nothing stays behind"
    strange = compare(done.expected.tails, [*kept, ("N-NONE", (3, *kept[0][1][1:]))])
    assert (strange.duplicated, strange.equal) == (3, False)


def test_a_run_that_never_committed_has_lost_everything(tmp_path: Path) -> None:
    make_flights(tmp_path / "data", 1, 100)
    expected = count_flights(tmp_path / "data")
    tails = check_tails(expected, Checkpoint.open(str(tmp_path / "checkpoint"), "flow"))
    destinations = check_destinations(expected, tmp_path / "results")
    assert tails == destinations
    assert tails.lost == tails.rows_expected > 0
    assert not tails.equal
