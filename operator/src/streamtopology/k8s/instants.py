"""Instants as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_instant(seconds: float) -> str:
    """A time to the millisecond, for durations measured from it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
