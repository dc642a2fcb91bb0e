"""The sum of what several runs of `simulate-faults` played at one state of the code, in a file that the next run continues."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.faults.tally import Tally

# The packages that a history depends on.
PLAYED_CODE = ("streamtopology.topology", "streamtopology.contract", "streamtopology.routing", "streamtopology.jobs",
               "streamtopology.lab.faults")  # fmt: skip


@dataclass(frozen=True)
class Record:
    """`code`: the digest of `PLAYED_CODE`; `seed`: of the first history. The next one has `seed + histories`. Seconds: CPU."""

    code: str
    seed: int
    histories: int = 0
    batches: int = 0
    lives: int = 0
    faults: int = 0
    seconds: float = 0.0

    @property
    def next_seed(self) -> int:
        return self.seed + self.histories

    def plus(self, tally: Tally) -> Record:
        """The record with what `tally` counted, whose first history had `next_seed`."""
        return Record(
            self.code,
            self.seed,
            self.histories + tally.histories,
            self.batches + tally.batches,
            self.lives + tally.lives,
            self.faults + sum(tally.covered.values()),
            self.seconds + tally.seconds,
        )

    def line(self) -> str:
        return (
            f"in all, from seed {self.seed}: {self.histories:,} histories, {self.batches:,} batches, "
            f"{self.lives:,} lives of a driver, {self.faults:,} faults, {self.seconds / 3600:.2f} hours of CPU"
        )

    def write(self, file: Path) -> None:
        """Replace the file as a whole: a run that is killed leaves the record of the runs before."""
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        draft.replace(file)


def open_record(file: Path, seed: int, code: str) -> Record:
    """The record in `file`, or a new one from `seed` where there is none.

    Raises `WrongUse` for a record of another state of the code: a count over two states would be one of neither.
    """
    if not file.exists():
        return Record(code, seed)
    try:
        record = Record(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise WrongUse(f"{file} is no record of simulated histories ({error}): name another file") from None
    if record.code != code:
        raise WrongUse(f"{file} counts histories of another state of the code: name another file to begin at 0")
    return record


def digest_of_code() -> str:
    """The digest of all source files of `PLAYED_CODE`."""
    digest = hashlib.sha256()
    for package in PLAYED_CODE:
        spec = find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for source in sorted(Path(folder).rglob("*.py")):
                digest.update(f"{package} {source.relative_to(folder)}\n".encode() + source.read_bytes())
    return digest.hexdigest()[:16]
