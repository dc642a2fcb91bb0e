"""Asking an operator's probes."""

from __future__ import annotations

import socket
import urllib.request
from urllib.error import HTTPError, URLError


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def probed(port: str, path: str) -> tuple[int, str]:
    """Status and text of a probe; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()
    except URLError:
        return 0, ""
