"""Scripts of the peers. Each runs alone, in its engine's environment: see `arena/peer.py` for what it reads and prints."""
