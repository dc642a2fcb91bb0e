"""The declaration of the policy `blocks`. It loads no kernel: `validate` and the operator read it."""

from streamtopology.topology.groupings import BUILT_IN, GroupingSpec, Option
from streamtopology.topology.groupings.options import read_count

BLOCKS = GroupingSpec(
    name="blocks",
    kind="chooser",
    splits_keys=True,
    needs_key=False,
    summary="rows that follow each other stay together, in blocks",
    options={
        "rows": Option(64, read_count, "rows of a block"),
        "capacities": BUILT_IN["shuffle"].options["capacities"],
    },
    chooser="blocks.chooser:BlocksChooser",
)
