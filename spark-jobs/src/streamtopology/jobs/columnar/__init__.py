"""Vectorised work on Arrow columns: keys, expressions, the IPC form. Knows nothing of topologies."""
