"""A stand-in for 173 million associations of a location and a hashtag, week by week (the paper on locality, section 4.3).

Every tuple belongs to a region. Its hashtag is a stable one of the region, or one that trends there for some weeks and
then elsewhere (figure 10: #nevertrump in Florida, Virginia, Texas), or one that nobody used before. Its location is one
of the region, or anywhere. Popularity of regions wanders from week to week, so keys that belong together peak together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

# First ids of trending and of fresh hashtags; the stable ones begin at 0.
_TRENDING, _FRESH = 1 << 40, 1 << 41


@dataclass(frozen=True)
class Tweets:
    """The shape of the stand-in. Shares are of all tuples; pools grow with the tuples of a week, as vocabularies do.

    The defaults were set such that the stream has the paper's drift: METIS expects about 75 % of the collected week to
    be local, and a plan that is never renewed loses about a fifth of what it had.
    """

    # Per week.
    tuples: int
    regions: int = 60
    stable_share: float = 0.50
    trending_share: float = 0.29
    # Share of the trending hashtags that belong to another region from one week to the next.
    moving: float = 0.2
    # Share of tuples whose location is in the region of their hashtag.
    at_home: float = 0.60
    region_skew: float = 0.5
    tag_skew: float = 1.0
    location_skew: float = 0.7
    # Standard deviation of the logarithm of a region's popularity.
    wander: float = 0.6
    # Correlation of that logarithm from week to week.
    memory: float = 0.9

    def weeks(self, count: int, rng: np.random.Generator) -> Iterator[tuple[Hashes, Hashes]]:
        """(hashes of locations, hashes of hashtags) of each week: uint64[tuples] both."""
        tags, places = self.tuples // (20 * self.regions), self.tuples // (50 * self.regions)
        home = rng.permuted(np.tile(np.arange(self.regions)[:, None], (1, tags)), axis=0)
        log_popularity = rng.normal(0.0, self.wander, self.regions)
        usual = zipf_probabilities(self.regions, self.region_skew)
        for week in range(count):
            popularity = usual * np.exp(log_popularity)
            yield self._week(week, popularity / popularity.sum(), home, places, rng)
            self._move(home, rng)
            shock = rng.normal(0.0, self.wander, self.regions)
            log_popularity = self.memory * log_popularity + np.sqrt(1 - self.memory**2) * shock

    def _week(self, week: int, popularity: Floats, home: Ints, places: int, rng: np.random.Generator) -> tuple[Hashes, Hashes]:
        """`home` int64[regions, tags]: at [r, i] the region that first had the i-th hashtag that trends in r now."""
        n, tags = self.tuples, home.shape[1]
        region = draw(popularity, n, rng)
        rank = draw(zipf_probabilities(tags, self.tag_skew), n, rng)
        kind = rng.random(n)
        tag = region * tags + rank
        trending = kind < self.trending_share
        tag[trending] = _TRENDING + home[region[trending], rank[trending]] * tags + rank[trending]
        fresh = kind >= self.trending_share + self.stable_share
        tag[fresh] = _FRESH + week * n + np.flatnonzero(fresh)
        elsewhere = rng.random(n) >= self.at_home
        region[elsewhere] = draw(popularity, int(elsewhere.sum()), rng)
        location = region * places + draw(zipf_probabilities(places, self.location_skew), n, rng)
        return hash_int64(location), hash_int64(tag)

    def _move(self, home: Ints, rng: np.random.Generator) -> None:
        """Some of the hashtags of every rank change places with each other, in place."""
        for rank in range(home.shape[1]):
            moving = np.flatnonzero(rng.random(self.regions) < self.moving)
            home[moving, rank] = home[rng.permutation(moving), rank]
