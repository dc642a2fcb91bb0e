"""What a stream of Nexmark is made by; imports nothing slow, as the command's `--help` loads it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

# Java's largest int, and a bound below which no product of two options and a time leaves an int64.
_MOST_A_SECOND, _MOST = 2**31 - 1, 1_000_000


def _option(default: int, help: str, lowest: int = 1, highest: int = _MOST) -> int:
    return field(default=default, metadata={"help": help, "lowest": lowest, "highest": highest})


@dataclass(frozen=True)
class NexmarkConfiguration:
    """The options of nexmark's class of the same name that change its events, with its defaults, and the seed.

    Raises `ValueError` for an option out of its range.
    """

    first_event_rate: int = _option(10_000, "Events in a second of event time.", highest=_MOST_A_SECOND)
    person_proportion: int = _option(1, "People among as many events as the three proportions add up to.", 0)
    auction_proportion: int = _option(3, "Auctions among them.", 0)
    bid_proportion: int = _option(46, "Bids among them.", 0)
    hot_auction_ratio: int = _option(2, "All bids but one in so many are for a hot auction.")
    hot_sellers_ratio: int = _option(4, "All auctions but one in so many are of a hot seller.")
    hot_bidders_ratio: int = _option(4, "All bids but one in so many are by a hot bidder.")
    num_in_flight_auctions: int = _option(100, "Latest auctions that bids are for.")
    num_active_people: int = _option(1000, "Latest people who bid and sell.")
    out_of_order_group_size: int = _option(1, "Events of a group that come out of order; 1: all come in order.")
    seed: int = _option(0, "Seed of all random numbers.", 0, 2**63 - 1)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, lowest, highest = getattr(self, each.name), each.metadata["lowest"], each.metadata["highest"]
            if not lowest <= value <= highest:
                name = each.name.replace("_", "-")
                raise ValueError(f"{name} is {value}: it has to be a whole number from {lowest} to {highest}")
        if not self.total_proportion:
            raise ValueError("person-proportion, auction-proportion and bid-proportion are all 0: at least one has to be more")

    @property
    def total_proportion(self) -> int:
        return self.person_proportion + self.auction_proportion + self.bid_proportion

    @property
    def proportions(self) -> tuple[int, int, int]:
        """Of people, of auctions and of all."""
        return self.person_proportion, self.auction_proportion, self.total_proportion
