"""Decisions about a topology, as pure functions of the observation."""
