"""Nexmark's queries of an auction house, on the events of its own generator.

streamtopology nexmark build/nexmark --events 1000000     # the events
python examples/nexmark/queries.py q5                     # one query, on executors of which one is slow
python examples/nexmark/queries.py q5 --manifest          # as a manifest, for kubectl or streamtopology run

A query whose answer changes with each event in SQL (q4, q6, q9) is answered here when the watermark says that an auction is
over.
"""

import sys
from pathlib import Path

from streamtopology import Topology

DATA = "build/nexmark"
PEOPLE = (
    "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime TIMESTAMP, extra STRING"
)
AUCTIONS = (
    "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING"
)
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING"
WATERMARK = {"column": "dateTime", "delay": "4s", "idleTimeout": "1m"}
# How long an auction may last; a bid is joined with its auction that long.
LONGEST = "1h"
DOLLARS = "(0.908 * price)"
CHANNEL = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"


def people(topology, **options):
    return topology.read.parquet("person", f"{DATA}/person", PEOPLE, maxFilesPerTrigger=1, **options)


def auctions(topology, **options):
    return topology.read.parquet("auction", f"{DATA}/auction", AUCTIONS, maxFilesPerTrigger=1, **options)


def bids(topology, **options):
    return topology.read.parquet("bid", f"{DATA}/bid", BIDS, maxFilesPerTrigger=1, **options)


def q0(topology):
    """Every bid as it is."""
    return bids(topology).map("out", select=["auction", "bidder", "price", "dateTime", "extra"])


def q1(topology):
    """Every bid in euros."""
    return bids(topology).map("out", select=["auction", "bidder", f"{DOLLARS} AS price", "dateTime", "extra"])


def q2(topology):
    """The bids on some auctions."""
    return bids(topology).map("out", select=["auction", "price"], where="auction % 123 = 0")


def q3(topology):
    """Who sells in three states, in one category. Both sides are kept for ever."""
    sold = auctions(topology, select=["id AS auction", "seller"], where="category = 10")
    sellers = people(topology, where="state IN ('OR', 'ID', 'CA')")
    columns = ["p.name AS name", "p.city AS city", "p.state AS state", "a.auction AS id"]
    both = sold.alias("a", "seller").union(sellers.alias("p", "id")).key_by("seller")
    return both.window_join("out", select=columns)


def bids_in_time(topology):
    """Each bid with its auction, if it came while the auction was open."""
    wanted = ["id", "itemName", "category", "seller", "expires", "dateTime AS opened"]
    sold = auctions(topology, select=wanted, watermark={**WATERMARK, "column": "opened"}).alias("a", "id")
    columns = ["auction", "bidder", "price", "dateTime"]
    bidding = bids(topology, select=columns, watermark=WATERMARK).alias("b", "auction")
    return (
        sold.union(bidding)
        .key_by("id")
        .window_join(
            "bids-in-time",
            time={"a": "opened", "b": "dateTime"},
            within=["0s", LONGEST],
            where="b.dateTime <= a.expires",
            select=[
                "a.id AS id",
                "a.itemName AS itemName",
                "a.category AS category",
                "a.seller AS seller",
                "a.expires AS expires",
                "b.bidder AS bidder",
                "b.price AS price",
                "b.dateTime AS dateTime",
                # the greatest price first, and of several the earliest
                "b.price * 10000000 - date_diff('millisecond', a.opened, b.dateTime) AS rank",
            ],
        )
    )


def q4(topology):
    """The mean price at which the auctions of a category close."""
    final = (
        bids_in_time(topology)
        .key_by("id")
        .window_aggregate("closed", groupBy=["category", "expires"], closes="expires", aggregates={"final": "max(price)"})
    )
    return final.key_by("category").aggregate("out", aggregates={"mean": "mean(final)"})


def q5(topology):
    """The auctions with the most bids of the last ten seconds, every two seconds."""
    counts = (
        bids(topology, watermark=WATERMARK)
        .key_by("auction")
        .window_aggregate("counts", time="dateTime", size="10s", slide="2s", aggregates={"num": "count()"})
    )
    most = counts.key_by("window_end").window_aggregate("most", closes="window_end", aggregates={"num": "max(num)"})
    return (
        counts.alias("c")
        .union(most.alias("m"))
        .key_by("window_end")
        .window_join(
            "out", time="window_end", within="0s", where="c.num = m.num", select=["c.auction AS auction", "c.num AS num"]
        )
    )


def q6(topology):
    """The mean price of the last auctions of each seller."""
    auction = "{'at': {'dateTime': dateTime, 'id': id}, 'price': price}"
    last = winning_bids(topology).key_by("seller").aggregate("last", aggregates={"auctions": f"arg_max({auction}, 11)"})
    return last.map("out", select=["seller", "list_avg(list_transform(auctions, lambda one: one.price)) AS mean"])


def q7(topology):
    """The highest bids of each ten seconds."""
    bidding = bids(topology, watermark=WATERMARK)
    timed = bidding.map("timed", select=["price", "time_bucket(INTERVAL 10 SECOND, dateTime) + INTERVAL 10 SECOND AS ends"])
    most = timed.key_by("ends").window_aggregate("most", closes="ends", aggregates={"price": "max(price)"})
    return (
        bidding.alias("b")
        .union(most.alias("m"))
        .key_by("price")
        .window_join(
            "out",
            time={"b": "dateTime", "m": "ends"},
            within=["0s", "10s"],
            select=[
                "b.auction AS auction",
                "b.price AS price",
                "b.bidder AS bidder",
                "b.dateTime AS dateTime",
                "b.extra AS extra",
            ],
        )
    )


def q8(topology):
    """Who has registered and opened an auction within the same ten seconds."""
    new = people(topology, watermark=WATERMARK).key_by("id", "name")
    counted = {"time": "dateTime", "size": "10s", "aggregates": {"n": "count()"}}
    came = new.window_aggregate("came", **counted)
    sold = auctions(topology, watermark=WATERMARK).key_by("seller").window_aggregate("sold", **counted)
    both = came.alias("p", "id").union(sold.alias("a", "seller")).key_by("id")
    columns = ["p.id AS id", "p.name AS name", "p.window_start AS starttime"]
    return both.window_join("out", time="window_start", size="10s", select=columns)


def winning_bids(topology):
    """The bid that wins each auction, when that is over."""
    bid = "{'rank': rank, 'bidder': bidder, 'price': price, 'dateTime': dateTime}"
    auction = {"groupBy": ["seller", "expires"], "closes": "expires"}
    won = bids_in_time(topology).key_by("id").window_aggregate("won", aggregates={"bid": f"arg_max({bid})"}, **auction)
    columns = ["id", "seller", "bid.bidder AS bidder", "bid.price AS price", "bid.dateTime AS dateTime"]
    return won.map("winning", select=columns)


def q9(topology):
    """The bid that wins each auction."""
    return winning_bids(topology).map("out", select=["id", "bidder", "price", "dateTime"])


def q10(topology):
    """Every bid, in a file of its hour."""
    hour = ["strftime(dateTime, '%Y-%m-%d') AS day", "strftime(dateTime, '%H:%M') AS minute"]
    return bids(topology).map("out", select=["auction", "bidder", "price", "dateTime", "extra", *hour])


def q11(topology):
    """How many bids people make before they pause for ten seconds."""
    by_bidder = bids(topology, watermark=WATERMARK).key_by("bidder")
    return by_bidder.session_window("out", time="dateTime", gap="10s", aggregates={"bid_count": "count()"})


def q12(topology):
    """How many bids of each person are processed in each ten seconds."""
    by_bidder = bids(topology).key_by("bidder")
    return by_bidder.window_aggregate("out", time="now()", size="10s", aggregates={"bid_count": "count()"})


def q13(topology):
    """Every bid with a value of a small table."""
    keyed = bids(topology, select=["auction", "bidder", "price", "dateTime", "auction % 10000 AS key"])
    table = Path(DATA, "side_input.csv").absolute()
    table.write_text("key,value\n" + "".join(f"{key},{key}\n" for key in range(10_000)))
    return keyed.key_by(policy="shuffle").enrich(
        "out", lookup={"file": str(table), "on": "key", "schema": "key BIGINT, value STRING", "options": {"header": True}}
    )


def q14(topology):
    """Some bids, with the time of day and a count of letters."""
    hour = "hour(dateTime)"
    time = f"CASE WHEN {hour} BETWEEN 8 AND 18 THEN 'day' WHEN {hour} <= 6 OR {hour} >= 20 THEN 'night' ELSE 'other' END"
    letters = "length(extra) - length(replace(extra, 'c', ''))"
    return bids(topology).map(
        "out",
        select=[
            "auction",
            "bidder",
            f"{DOLLARS} AS price",
            f"{time} || 'Time' AS bidTimeType",
            "dateTime",
            "extra",
            f"{letters} AS c_counts",
        ],
        where=f"{DOLLARS} > 1000000 AND {DOLLARS} < 50000000",
    )


RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


DAY = "strftime(dateTime, '%Y-%m-%d') AS day"
BIDS_BY_RANK = {"total_bids": "count()"} | {
    f"{rank}_bids": f"count(CASE WHEN {where} THEN 1 END)" for rank, where in RANKS.items()
}
DISTINCT = {
    f"{rank}_{of}s": f"count(DISTINCT CASE WHEN {where} THEN {of} END)"
    for of in ("bidder", "auction")
    for rank, where in {"total": "true", **RANKS}.items()
}


def q15(topology):
    """How many bids, bidders and auctions a day has, by price."""
    rows = bids(topology, select=["auction", "bidder", "price", DAY])
    return rows.key_by("day").aggregate("out", aggregates={**BIDS_BY_RANK, **DISTINCT})


def q16(topology):
    """The same of each channel."""
    rows = bids(topology, select=["auction", "bidder", "price", "channel", "dateTime", DAY])
    minute = {"minute": "max(strftime(dateTime, '%H:%M'))"}
    return rows.key_by("channel", "day").aggregate("out", aggregates={**minute, **BIDS_BY_RANK, **DISTINCT})


def q17(topology):
    """Prices of each auction by day."""
    prices = {"min_price": "min(price)", "max_price": "max(price)", "avg_price": "mean(price)", "sum_price": "sum(price)"}
    rows = bids(topology, select=["auction", "price", DAY])
    return rows.key_by("auction", "day").aggregate("out", aggregates={**BIDS_BY_RANK, **prices})


def q18(topology):
    """The newest bid of each person on each auction."""
    bid = "{'at': dateTime, 'price': price, 'channel': channel, 'url': url, 'extra': extra}"
    return bids(topology).key_by("bidder", "auction").aggregate("out", aggregates={"bid": f"arg_max({bid})"})


def q19(topology):
    """The ten highest bids on each auction."""
    bid = "{'price': price, 'bidder': bidder, 'channel': channel, 'url': url, 'at': dateTime, 'extra': extra}"
    return bids(topology).key_by("auction").aggregate("out", aggregates={"bids": f"arg_max({bid}, 10)"})


def q20(topology):
    """Each bid on an auction of one category with that auction. Both are kept for ever."""
    sold = auctions(topology, where="category = 10")
    both = bids(topology).alias("b", "auction").union(sold.alias("a", "id")).key_by("auction")
    of_bid = [f"b.{name} AS {name}" for name in ("auction", "bidder", "price", "channel", "url", "dateTime")]
    of_auction = [f"a.{name} AS {name}" for name in ("itemName", "initialBid", "reserve", "expires", "seller", "category")]
    return both.window_join("out", select=[*of_bid, *of_auction])


def q21(topology):
    """The channel of each bid that has one."""
    known = {"apple": 0, "google": 1, "facebook": 2, "baidu": 3}
    cases = " ".join(f"WHEN lower(channel) = '{name}' THEN '{number}'" for name, number in known.items())
    named = ", ".join(f"'{name}'" for name in known)
    return bids(topology).map(
        "out",
        select=["auction", "bidder", "price", "channel", f"CASE {cases} ELSE {CHANNEL} END AS channel_id"],
        where=f"{CHANNEL} <> '' OR lower(channel) IN ({named})",
    )


def q22(topology):
    """The folders of each bid's address."""
    folders = [f"split_part(url, '/', {place + 1}) AS dir{place - 2}" for place in (3, 4, 5)]
    return bids(topology).map("out", select=["auction", "bidder", "price", "channel", *folders])


QUERIES = {name: query for name, query in globals().items() if name[0] == "q" and name[1:].isdigit()}


def topology_of(name):
    """The topology of a query, whose rows go to build/nexmark/results."""
    topology = Topology(f"nexmark-{name}", trigger={"availableNow": True})
    topology.executors("large", replicas=3, cpu="450m").executors("small", replicas=1, cpu="135m")
    QUERIES[name](topology).write.parquet("results", f"{DATA}/results/{name}")
    return topology


if __name__ == "__main__":
    asked = topology_of(sys.argv[1])
    print(asked.to_yaml()) if "--manifest" in sys.argv else asked.run(drain=True)
