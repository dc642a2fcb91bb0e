"""Attempts without a Spark job each: long-lived workers that the driver talks to, and that talk to each other, by ZeroMQ."""
