"""A catalogue of Iceberg that speaks the REST protocol, over a SQL catalogue in a folder: it can refuse, and lose answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

TOKEN = "s3cret-token"


class RestCatalog:
    """`loses`: the answers of this many commits to come are lost, after `passes` of them. `fails`: those have status 500.

    `silent`: so many questions of any kind to come have no answer.
    """

    def __init__(self, folder: Path) -> None:
        self._catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/rest.db", warehouse=str(folder / "rest"))
        self.loses = self.fails = self.passes = self.silent = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[RestCatalog]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._catalog.close()

    def answer(self, method: str, path: list[str], body: bytes) -> tuple[int, str]:
        if self.silent:
            self.silent -= 1
            return 0, ""
        match method, path:
            case "GET", ["config"]:
                return 200, '{"defaults": {}, "overrides": {}}'
            case "GET", ["namespaces", name]:
                return (200, json.dumps({"namespace": [name]})) if self._catalog.namespace_exists(name) else _error(404)
            case "POST", ["namespaces"]:
                self._catalog.create_namespace(tuple(json.loads(body)["namespace"]))
                return 200, body.decode()
            case "POST", ["namespaces", space, "tables"]:
                asked = json.loads(body)
                staged = self._catalog._create_staged_table(f"{space}.{asked['name']}", Schema.model_validate(asked["schema"]))
                return 200, json.dumps({"metadata": json.loads(staged.metadata.model_dump_json())})
            case "GET", ["namespaces", space, "tables", name]:
                return self._loaded(f"{space}.{name}")
            case "POST", ["namespaces", space, "tables", name]:
                return self._committed(CommitTableRequest.model_validate_json(body), f"{space}.{name}")
            case _:
                return _error(404)

    def _loaded(self, name: str) -> tuple[int, str]:
        try:
            table = self._catalog.load_table(name)
        except NoSuchTableError:
            return _error(404)
        metadata = json.loads(table.metadata.model_dump_json())
        return 200, json.dumps({"metadata-location": table.metadata_location, "metadata": metadata})

    def _committed(self, asked: CommitTableRequest, name: str) -> tuple[int, str]:
        class Named:
            def name(self) -> tuple[str, ...]:
                return tuple(name.split("."))

        try:
            made: Any = self._catalog.commit_table(Named(), asked.requirements, asked.updates)  # type: ignore[arg-type]
        except (CommitFailedException, TableAlreadyExistsError) as error:
            return _error(409, str(error))
        if self.passes:
            self.passes -= 1
        elif self.fails:
            self.fails -= 1
            return _error(500)
        elif self.loses:
            self.loses -= 1
            return 0, ""
        return 200, made.model_dump_json(by_alias=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0].strip("/").split("/")[1:]
                is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                status, text = catalog.answer(self.command, path, body) if is_known else _error(403, "no rights")
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text.encode())))
                    self.end_headers()
                    self.wfile.write(text.encode())

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _error(code: int, message: str = "no such thing") -> tuple[int, str]:
    return code, json.dumps({"error": {"message": message, "type": "Refusal", "code": code}})
