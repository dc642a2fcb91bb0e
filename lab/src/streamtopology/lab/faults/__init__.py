"""Whole lives of a topology in one process, from one seed, with faults at every operation: `simulate-faults`."""
