"""The `streamtopology` command."""
