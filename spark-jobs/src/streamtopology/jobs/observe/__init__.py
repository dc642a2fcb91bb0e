"""What happens in a run: the outcome of each batch, the figures of them, and /stats, which controllers read."""
