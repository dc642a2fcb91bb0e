"""Files that do not hold what a manifest declares: one finding for each mistake, with the remedy that helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source


def findings(folder: Path, format_: str, schema: str, **options: str) -> list[tuple[str, str]]:
    found = check(Source("s", format_, schema, {"path": str(folder)} | options)).findings
    return [(finding.path, finding.message) for finding in found]


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_misfit_of_a_csv_without_header_is_one_finding(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "x,1,2\ny,z,3\n")
    (found,) = findings(tmp_path, "csv", "a INT, b STRING, c INT")
    assert "line 1: column 'a' is declared int32 but holds 'x'" in found[1]
    both = findings(tmp_path, "csv", "a INT, b INT, c INT")
    assert [message.split("but holds ")[1].split(";")[0] for _, message in both] == ["'x'", "'z'"]


def test_header_of_a_file_in_a_partition_folder_is_one_finding(tmp_path: Path) -> None:
    put(tmp_path / "dt=1/a.csv", "a,b\n1,x\n")
    (found,) = findings(tmp_path, "csv", "a INT, b STRING, dt INT")
    assert found[0] == "options.header"


@pytest.mark.parametrize("digits", [38, 39, 100, 240])
def test_decimal_of_a_folder_has_all_its_digits_or_is_refused(tmp_path: Path, digits: int) -> None:
    put(tmp_path / f"d={'9' * digits}/a.csv", "1\n")
    part = Descriptor("s", "csv", str(tmp_path / f"d={'9' * digits}/a.csv"), 0, 0, 2, 1)
    source = spec(tmp_path, "csv", "v INT, d DECIMAL(38, 0)")
    if digits == 38:
        assert str(rows_of([part], source)[0]["d"]) == "9" * 38
        return
    with pytest.raises(SchemaMismatchError, match=r"column 'd' is declared decimal128\(38, 0\) but its folder says '999"):
        rows_of([part], source)
    assert "but its folder says '999" in findings(tmp_path, "csv", "v INT, d DECIMAL(38, 0)")[0][1]
