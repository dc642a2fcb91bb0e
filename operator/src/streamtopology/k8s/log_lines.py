"""The operator's log lines: for people, or as JSON objects."""

from __future__ import annotations

import json
import logging

from streamtopology.k8s.instants import format_instant


class JsonLines(logging.Formatter):
    """A record as a JSON object in one line: time, level, logger, message, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {
            "time": format_instant(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Log to the standard error from now on. `form`: text or json."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(level=level, handlers=[handler])
