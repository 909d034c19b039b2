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
        for name, value in (headers | {"content_length": len(body)}).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, {"error": code}, X_Error_Code=code, X_Error_Message=code)

    @property
    def token(self):
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    def do_POST(self):
        content, address = self.rfile.read(int(self.headers.get("content-length", 0))), f"http://{self.headers['host']}"
        path = self.path.partition("?")[0].split("/")
        if self.token not in WRITERS:
            self.answer(401, {"error": "Invalid username or password."})
        elif path[-1] == "create":
            asked = json.loads(content)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            private = bool(asked.get("private")) or asked.get("visibility") == "private"
            status = 409 if name in REPOS else 200
            REPOS.setdefault(name, {"private": private, "commits": [("0" * 40, {})]})
            self.answer(status, {"url": f"{address}/{name}", "name": name})
        elif path[-1] == "validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif path[-2] == "preupload":
            names = [file["path"] for file in json.loads(content)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self.answer(200, {"files": files})
        else:  # /api/models/USER/NAME/commit/main
            name = "/".join(path[3:5])
            commits = REPOS[name]["commits"]
            entries = [entry["value"] for entry in map(json.loads, content.splitlines()) if entry["key"] == "file"]
            files = {entry["path"]: base64.b64decode(entry["content"]) for entry in entries}
            oid = hashlib.sha1(str(len(commits)).encode() + content).hexdigest()
            commits.append((oid, commits[-1][1] | files))
            self.answer(200, {"success": True, "commitOid": oid, "commitUrl": f"{address}/{name}/commit/{oid}"})

    def do_GET(self):
        path = self.path.partition("?")[0]
        is_file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name, revision = is_file.group(1, 2) if is_file else ("/".join(path.split("/")[3:5]), "main")
        known = REPOS.get(name)
        if known is None or (known["private"] and self.token not in READERS):
            return self.refuse(401 if self.token not in READERS else 404, "RepoNotFound")
        commits = [one for one in known["commits"] if revision == "main" or one[0].startswith(revision)]
        if not commits:
            return self.refuse(404, "RevisionNotFound")
        oid, files = commits[-1]
        if is_file is None:
            return self.answer(
                200, [{"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40} for name in files]
            )
        content = files[is_file[3]]
        return self.answer(200, content, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=oid)

    do_HEAD = do_GET


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(server.server_address[1], flush=True)
    server.serve_forever()
