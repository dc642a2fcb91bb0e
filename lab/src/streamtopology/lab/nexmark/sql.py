"""Nexmark's queries as DuckDB says them of all events at once: what each engine is held against."""

from __future__ import annotations

from collections.abc import Mapping

OPEN = "FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires"
COUNTS = """(SELECT auction, s AS starts, count(*) AS num FROM (
    SELECT auction, unnest(range(5)) AS n, time_bucket(INTERVAL 2 SECOND, dateTime) - n * INTERVAL 2 SECOND AS s FROM bid)
    GROUP BY ALL)"""
TUMBLE = "time_bucket(INTERVAL 10 SECOND, dateTime)"
BY_RANK = """count(*) AS total_bids, count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids, count(*) FILTER (price >= 1000000) AS rank3_bids"""
DISTINCT = ", ".join(
    f"count(DISTINCT {of}) {where} AS {name}_{of}s"
    for of in ("bidder", "auction")
    for name, where in {
        "total": "",
        "rank1": "FILTER (price < 10000)",
        "rank2": "FILTER (price >= 10000 AND price < 1000000)",
        "rank3": "FILTER (price >= 1000000)",
    }.items()
)
DAY = "strftime(dateTime, '%Y-%m-%d') AS day"
CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
SQL: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, avg(final) AS mean FROM (
        SELECT max(b.price) AS final, a.category AS category {OPEN} GROUP BY a.id, a.category) GROUP BY category""",
    "q5": f"""SELECT c.auction, c.num FROM {COUNTS} c
        JOIN (SELECT starts, max(num) AS num FROM {COUNTS} GROUP BY starts) m ON c.starts = m.starts AND c.num = m.num""",
    "q6": f"""SELECT seller, avg(price) AS mean FROM (
        SELECT * FROM (SELECT a.id AS id, a.seller AS seller, b.price AS price, b.dateTime AS dateTime {OPEN}
            QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1)
        QUALIFY row_number() OVER (PARTITION BY seller ORDER BY dateTime DESC, id DESC) <= 11) GROUP BY seller""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra FROM bid b JOIN (
        SELECT max(price) AS price, {TUMBLE} + INTERVAL 10 SECOND AS ends FROM bid GROUP BY {TUMBLE}) m
        ON b.price = m.price AND b.dateTime BETWEEN m.ends - INTERVAL 10 SECOND AND m.ends""",
    "q8": f"""SELECT DISTINCT p.id, p.name, p.starts AS starttime FROM (SELECT id, name, {TUMBLE} AS starts FROM person) p
        JOIN (SELECT seller, {TUMBLE} AS starts FROM auction) a ON p.id = a.seller AND p.starts = a.starts""",
    "q9": f"""SELECT a.id, b.bidder, b.price, b.dateTime {OPEN}
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) = 1""",
    "q10": f"""SELECT auction, bidder, price, dateTime, extra, {DAY}, strftime(dateTime, '%H:%M') AS minute FROM bid""",
    "q11": """WITH marked AS (SELECT bidder, dateTime AS t, t - lag(t) OVER w > INTERVAL 10 SECOND AS opens FROM bid
            WINDOW w AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (SELECT bidder, t, count(*) FILTER (opens) OVER (PARTITION BY bidder ORDER BY t) AS session FROM marked)
        SELECT bidder, min(t) AS session_start, max(t) + INTERVAL 10 SECOND AS session_end, count(*) AS bid_count
        FROM numbered GROUP BY bidder, session""",
    "q12": "SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
    "q13": "SELECT auction, bidder, price, dateTime, (auction % 10000)::VARCHAR AS value FROM bid",
    "q14": """SELECT auction, bidder, 0.908 * price AS price, CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidTimeType, dateTime,
        extra, length(regexp_replace(extra, '[^c]', '', 'g')) AS c_counts FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT {DAY}, {BY_RANK}, {DISTINCT} FROM bid GROUP BY day",
    "q16": f"""SELECT channel, {DAY}, max(strftime(dateTime, '%H:%M')) AS minute, {BY_RANK}, {DISTINCT} FROM bid
        GROUP BY channel, day""",
    "q17": f"""SELECT auction, {DAY}, {BY_RANK}, min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
        sum(price)::BIGINT AS sum_price FROM bid GROUP BY auction, day""",
    "q18": """SELECT bidder, auction, {'at': dateTime, 'price': price, 'channel': channel, 'url': url, 'extra': extra} AS bid
        FROM bid QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, event_id DESC) = 1""",
    "q19": "SELECT auction, list(price ORDER BY price DESC)[1:10] AS prices FROM bid GROUP BY auction",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, a.itemName, a.initialBid, a.reserve,
        a.expires, a.seller, a.category FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": f"""SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
        WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {CHANNEL_ID} END AS channel_id FROM bid
        WHERE {CHANNEL_ID} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] AS dir2,
        string_split(url, '/')[6] AS dir3 FROM bid""",
}
# Of those whose answer changes, the columns that say of what it is.
NEWEST = {
    "q6": ["seller"],
    "q4": ["category"],
    "q15": ["day"],
    "q16": ["channel", "day"],
    "q17": ["auction", "day"],
    "q18": ["bidder", "auction"],
    "q19": ["auction"],
}
