"""Nexmark's people, auctions and bids, as nexmark's own generator makes them (github.com/nexmark/nexmark, commit 6b3646c)."""
