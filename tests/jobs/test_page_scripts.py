"""The scripts of the page, read as text: they fit each other, the markup, the style and the value that they draw."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from streamtopology.contract.page import PAGE_FORMAT, Page, VerdictState
from streamtopology.contract.wire_values import wire_name
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.view import http_server
from streamtopology.jobs.view.page.state import MOST_BATCHES
from streamtopology.web import page_http

FOLDER = Path(http_server.__file__).parent / "page"
LOOK = Path(page_http.__file__).parent / "look"
SCRIPTS = {file.name: file.read_text() for folder in (FOLDER, LOOK) for file in folder.glob("*.js")}
MARKUP = (FOLDER / "index.html").read_text()
STYLE = (FOLDER / "page.css").read_text() + (LOOK / "look.css").read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_import_what_others_export(name: str):
    for names, module in re.findall(r"^import \{([^}]*)\} from '\./([^']*)';$", SCRIPTS[name], re.MULTILINE):
        exported = set(re.findall(r"^export (?:async )?(?:const|function) (\w+)", SCRIPTS[module], re.MULTILINE))
        imported = {one.strip() for one in names.split(",")}
        assert imported <= exported, module
        body = SCRIPTS[name].split(f"'./{module}';", 1)[1]
        assert {one for one in imported if not re.search(rf"\b{one}\b", body)} == set(), "imported and not used"


def test_scripts_read_fields_that_the_value_has():
    known = {"format", *(wire_name(field) for field in fields(Page))}
    for name, text in SCRIPTS.items():
        read = set(re.findall(r"(?<![.\w])page\.(\w+)", text))
        assert read - known - {"js", "json"} == set(), name


def test_scripts_fill_places_that_the_markup_has():
    places = set(re.findall(r'id="([\w-]+)"', MARKUP))
    filled = {place for text in SCRIPTS.values() for place in re.findall(r"byId\('([\w-]+)'\)", text)}
    assert filled <= places
    labels = re.findall(r"aria-labelledby(?:=\"|': ')([\w-]+)", MARKUP + "".join(SCRIPTS.values()))
    assert set(labels) <= places


def test_scripts_and_contract_agree_on_version_and_length():
    assert f"const FORMAT = {PAGE_FORMAT};" in SCRIPTS["page.js"]
    assert f"const MOST_BATCHES = {MOST_BATCHES};" in SCRIPTS["page.js"]
    assert f"const END_OF_TIME = {END_OF_TIME:.0f};" in SCRIPTS["panels.js"]


def test_states_that_need_someone_have_a_mark_of_their_own():
    assert {".dot.act", ".dot.wait"} <= set(re.findall(r"\.dot\.\w+", STYLE))
    assert {state.value for state in VerdictState} == {"good", "watch", "act", "wait"}


def test_polling_stops_in_a_hidden_tab():
    assert len(re.findall(r"\bsetTimeout\(", "".join(SCRIPTS.values()))) == 1
    assert "if (!document.hidden && !timer && !isAsking) timer = setTimeout(poll, after);" in SCRIPTS["polling.js"]
    assert re.findall(r"\bsetInterval\((\w+)", "".join(SCRIPTS.values())) == ["miss"], "only a notice comes by itself"
    assert [name for name, text in SCRIPTS.items() if "fetch(" in text] == ["polling.js"]


def test_lines_of_the_scripts_fit_the_projects_width():
    long = [
        f"{name}:{number}"
        for name, text in SCRIPTS.items()
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > 128
    ]
    assert long == []
