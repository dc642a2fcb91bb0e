"""Observation of a run: history, figures, /stats, metrics, live view, report."""
