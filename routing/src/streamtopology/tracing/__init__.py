"""Traces of batches and reconciliations, for a collector of OpenTelemetry: off unless the user names one."""
