"""As much of a wandb server as signing in, saving a view and `wandb sync` ask of one; it keeps what it is told."""

import json
from collections import defaultdict
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

KEY = "0123456789" * 4
ENTITY = {"id": "RQ==", "name": "me"}
USER = {"id": "VXNlcjox", "entity": "me", "username": "me", "email": "", "flags": "{}", "teams": {"edges": []}}


class WandbServer:
    """Listens on `url` inside `with`. refuse: it knows no key.

    views: what upsertView got. runs: by id, what upsertBucket got last of each variable. files: by run id and file
    name, the lines streamed.
    """

    def __init__(self, refuse: bool = False):
        self.refuse = refuse
        self.views: list[dict] = []
        self.runs: dict[str, dict] = defaultdict(dict)
        self.files: dict[tuple[str, str], list[dict]] = defaultdict(list)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"server_kept": self}))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self):
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self._http.shutdown()
        self._http.server_close()

    def answer(self, query: str, given: dict) -> dict | None:
        """The data of a GraphQL request; None for those about artifacts and files, which it does not take."""
        if "upsertView(" in query:
            self.views.append(given | {"spec": json.loads(given["spec"])})
            return {"upsertView": {"view": {"id": given.get("id", "VmlldzoxMjM="), "name": given["name"]}}}
        if "allViews(" in query:
            nodes = [
                {"id": "VmlldzoxMjM=", "displayName": view["displayName"], "spec": json.dumps(view["spec"])}
                for view in self.views
                if view["name"] == given["viewName"]
            ]
            return {"project": {"allViews": {"edges": [{"node": node} for node in nodes]}}}
        if "upsertBucket(" in query:
            self.runs[given["name"]] |= {key: value for key, value in given.items() if value is not None}
            project = {"id": "UA==", "name": given["project"], "entity": ENTITY}
            bucket = {"id": "Ug==", "name": given["name"], "project": project, "historyLineCount": 0}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "viewer" in query:
            return {"viewer": USER}
        return None

    def streamed(self, run: str, told: dict) -> None:
        """Keep the lines of a run's history, events and summary; its output is text."""
        for name, chunk in (told.get("files") or {}).items():
            if name != "output.log":
                self.files[run, name] += map(json.loads, chunk["content"])


class Handler(BaseHTTPRequestHandler):
    """Passes requests to the server that the class belongs to."""

    server_kept: WandbServer

    def do_POST(self):
        """GraphQL, the stream of a run's files, and telemetry, which is taken and forgotten."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, reply = 200, {}
        if self.path == "/graphql":
            asked = json.loads(body)
            if self.server_kept.refuse:
                status, reply = 401, {"errors": [{"message": "user is not logged in"}]}
            else:
                data = self.server_kept.answer(asked["query"], asked.get("variables") or {})
                reply = {"data": data} if data else {"errors": [{"message": "not spoken here"}]}
        elif self.path.endswith("/file_stream"):
            self.server_kept.streamed(self.path.split("/")[-2], json.loads(body))
        written = json.dumps(reply).encode()
        with suppress(ConnectionError):  # telemetry does not wait for its answer
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

    def log_message(self, *arguments):
        """Say nothing."""
