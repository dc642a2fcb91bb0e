"""What the file beside a script imports that `streamtopology run job.py --to-manifest` writes."""

from streamtopology.jobs.scripts.replayed import ScriptQuery

__all__ = ["ScriptQuery"]
