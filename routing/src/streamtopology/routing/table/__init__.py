"""Routing tables: hashing, explicit entries, buckets, vectorised lookup."""
