"""A stand-in of the Hugging Face hub: python hub_stand_in.py. Prints its port; what is pushed is kept in memory.

It speaks as much of the hub's interface as one model takes. The token hf_goodtokengood may write, and
hf_readtokenread may read private repositories.
"""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REPOS: dict[str, dict] = {}  # name -> {"private", "commits": [(oid, {file: bytes})]}
WRITERS, READERS = {"hf_goodtokengood"}, {"hf_goodtokengood", "hf_readtokenread"}


class Hub(BaseHTTPRequestHandler):
    """One request."""

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header(
            "content-length", str(len(body)) if "content_length" not in headers else headers["content_length"]
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, {"error": code}, X_Error_Code=code, X_Error_Message=code)

    @property
    def token(self):
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.token not in WRITERS:
            return self.answer(401, {"error": "Invalid username or password."})
        if self.path == "/api/repos/create":
            asked = json.loads(content)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if name in REPOS:
                return self.answer(
                    409,
                    {"error": "You already created this model repo", "url": f"http://{self.headers['host']}/{name}"},
                )
            REPOS[name] = {
                "private": bool(asked.get("private")) or asked.get("visibility") == "private",
                "commits": [("0" * 40, {})],
            }
            return self.answer(200, {"url": f"http://{self.headers['host']}/{name}", "name": name})
        if self.path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if found := re.fullmatch(r"/api/models/(.+)/preupload/main", self.path.partition("?")[0]):
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(content)["files"]
            ]
            return self.answer(200, {"files": files})
        if found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path.partition("?")[0]):
            held = dict(REPOS[found[1]]["commits"][-1][1])
            for line in content.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    held[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            number = len(REPOS[found[1]]["commits"])
            oid = hashlib.sha1(f"{number}".encode() + content).hexdigest()
            REPOS[found[1]]["commits"].append((oid, held))
            url = f"http://{self.headers['host']}/{found[1]}/commit/{oid}"
            return self.answer(200, {"success": True, "commitOid": oid, "commitUrl": url})
        return self.answer(404, {"error": f"no such route: {self.path}"})

    def do_GET(self):
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(tree|revision)/(.+))?", path):
            if (files := self.files(found[1], "main")) is not None:
                listed = [{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in files]
                if found[2] == "tree":
                    return self.answer(200, listed)
                siblings = [{"rfilename": name} for name in files]
                return self.answer(
                    200, {"id": found[1], "sha": REPOS[found[1]]["commits"][-1][0], "siblings": siblings}
                )
            return None
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            files = self.files(found[1], found[2])
            if files is None:
                return None
            if found[3] not in files:
                return self.refuse(404, "EntryNotFound")
            content = files[found[3]]
            commits = REPOS[found[1]]["commits"]
            oid = next(oid for oid, held in reversed(commits) if held is files)
            etag = hashlib.sha256(content).hexdigest()
            return self.answer(200, content, ETag=f'"{etag}"', X_Repo_Commit=oid)
        return self.answer(404, {"error": f"no such route: {self.path}"})

    do_HEAD = do_GET

    def files(self, name, revision):
        """The files of a version; None where the request was answered."""
        known = REPOS.get(name)
        if known is None or (known["private"] and self.token not in READERS):
            self.refuse(401 if self.token not in READERS else 404, "RepoNotFound")
            return None
        if revision == "main":
            return known["commits"][-1][1]
        match = [held for oid, held in known["commits"] if oid.startswith(revision)]
        if not match:
            self.refuse(404, "RevisionNotFound")
            return None
        return match[-1]


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(server.server_address[1], flush=True)
    server.serve_forever()
