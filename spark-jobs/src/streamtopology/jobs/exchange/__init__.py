"""Data between the stages of an attempt: routing on the way out, envelopes, reports to the driver."""
