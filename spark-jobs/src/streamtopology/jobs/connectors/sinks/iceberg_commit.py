"""One try of a commit to a table of Iceberg."""

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Transaction


class OneTry(Transaction):
    """Raises CommitFailedException when another commit came first, which may be of the same batch.

    pyiceberg itself would append once more, after that one. It comes here once it has seen that this one is not there.
    """

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("another commit has changed the table")
