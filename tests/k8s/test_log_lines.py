"""The operator's log lines as JSON."""

from __future__ import annotations

import json
import logging
import sys

from streamtopology.k8s.__main__ import JsonLines


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("streamtopology.k8s", logging.WARNING, "file.py", 1, message, arguments, None)
    made.created = 1_700_000_000.25
    vars(made).update(more)
    return made


def test_record_is_one_object_in_one_line() -> None:
    line = JsonLines().format(record('space/flow: "%s"\nagain', "apply"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z", "level": "WARNING", "logger": "streamtopology.k8s",
        "message": 'space/flow: "apply"\nagain',
    }  # fmt: skip


def test_exception_has_its_traceback() -> None:
    try:
        raise ValueError("a cause")
    except ValueError:
        shown = json.loads(JsonLines().format(record("failed", exc_info=sys.exc_info())))
    assert shown["exception"].endswith("ValueError: a cause")
