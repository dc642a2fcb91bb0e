"""`fields`: plain key grouping. A key's bucket decides, and only rescaling changes who owns a bucket."""

from __future__ import annotations

from streamtopology.routing.groupings.spec import GroupingSpec

FIELDS = GroupingSpec(
    name="fields",
    kind="table",
    splits_keys=False,
    needs_key=True,
    summary="every tuple of a key goes to one instance, chosen by the key's hash",
)
