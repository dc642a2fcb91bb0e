"""The data plane on Spark and the `streamtopology` command."""
