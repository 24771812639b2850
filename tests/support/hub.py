"""A server on loopback that speaks the protocol of the Hugging Face hub, and serves plain files."""

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

LARGE = (".safetensors", ".bin", ".parquet", ".zip")  # files in LFS, whose sha256 is listed


class Hub:
    """Repositories and plain files.

    refs: (kind, repository) -> {revision: commit}.   commits: commit -> {path: content}.
    files: path of a plain file -> content.   requests: (method, path, Range) as they came.
    cut: name of a file -> byte at which every answer ends.   damaged: names of files that are sent
    with other bytes.   closed: repositories behind a gate.   pushed: commits by their repositories.
    """

    def __init__(self):
        self.refs, self.commits, self.files = {}, {}, {}
        self.requests, self.cut, self.damaged, self.closed = [], {}, set(), set()
        self.address = ""

    def put(self, repository, files, kind="model", revision="main"):
        """Adds a commit with these files; returns its hash."""
        text = repr((repository, sorted(files.items()), len(self.commits)))
        commit = hashlib.sha1(text.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.refs.setdefault((f"{kind}s", repository), {})[revision] = commit
        return commit

    def downloads(self):
        """Names of the files that were sent."""
        return [path.rsplit("/", 1)[1] for method, path, _ in self.requests
                if method == "GET" and "/resolve/" in path]  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, content, code=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, code, error):
        self.answer({"error": error}, code, X_Error_Code=error)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, self.headers.get("Range")))
        if path in hub.files:
            return self.send_file(hub.files[path], path)
        if path == "/api/whoami-v2":
            is_known = self.headers.get("Authorization") == "Bearer secret"
            return self.answer({"name": "me"}) if is_known else self.refuse(401, "InvalidToken")
        # other questions of the client, which it can do without
        if path.startswith("/api/") and path.count("/") < 6:
            return self.refuse(404, "NotFound")
        if path.startswith("/api/"):
            kind, owner, name, verb, revision, *rest = path.removeprefix("/api/").split("/")
        else:
            parts = path.strip("/").split("/")
            kind = parts.pop(0) if parts[0] == "datasets" else "models"
            owner, name, verb, revision, *rest = parts
        if verb == "revision":
            revision, rest = "/".join([revision, *rest]), []
        files = self.commit_of(kind, f"{owner}/{name}", revision)
        if files is None:
            return None
        commit, content = files
        if verb == "revision":
            return self.answer({"id": f"{owner}/{name}", "sha": commit, "siblings": []})
        if verb == "tree":
            return self.answer(tree(content, "/".join(rest), "recursive=true" in self.path.lower()))
        if "/".join(rest) not in content:
            return self.refuse(404, "EntryNotFound")
        return self.send_file(content["/".join(rest)], rest[-1], X_Repo_Commit=commit)

    def commit_of(self, kind, repository, revision):
        hub = self.server.hub
        refs = hub.refs.get((kind, repository))
        if repository in hub.closed:
            return self.refuse(403, "GatedRepo")
        if refs is None:
            return self.refuse(401, "RepoNotFound")
        commit = revision if revision in hub.commits else refs.get(revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        return commit, hub.commits[commit]

    def send_file(self, content, name, **headers):
        hub, start = self.server.hub, 0
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        if name in hub.damaged:
            content = bytes(byte ^ 1 for byte in content)
        asked = self.headers.get("Range")
        if asked and self.headers.get("If-Range", tag) == tag:
            start = int(asked.removeprefix("bytes=").split("-")[0])
        end = min(len(content), hub.cut.get(name, len(content)))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for key, value in {"ETag": tag, "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[start:end])
            if end < len(content):
                self.close_connection = True

    def do_POST(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path, None))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/api/repos/create":
            fields = json.loads(body)
            repository = fields["name"]
            if fields.get("organization"):
                repository = f"{fields['organization']}/{repository}"
            if repository in hub.closed:
                return self.refuse(403, "Forbidden")
            hub.refs.setdefault(("models", repository), {"main": "0" * 40})
            hub.commits.setdefault("0" * 40, {})
            hub.private = fields.get("private") or fields.get("visibility")
            return self.answer({"url": f"{hub.address}/{repository}", "id": repository})
        if path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        kind, owner, name, verb, revision = path.removeprefix("/api/").split("/")[:5]
        if verb == "paths-info":
            files = self.commit_of(kind, f"{owner}/{name}", revision)
            if files is None:
                return None
            (wanted,) = parse_qs(body.decode())["paths"]
            return self.answer([entry for entry in tree(files[1], "", True, folders=True)
                                if entry["path"] == wanted])  # fmt: skip
        if verb == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            return self.answer({"files": [
                {"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths
            ]})  # fmt: skip
        rows = [json.loads(line) for line in body.splitlines() if line]
        files = {row["value"]["path"]: base64.b64decode(row["value"]["content"])
                 for row in rows if row["key"] == "file"}  # fmt: skip
        commit = hub.put(f"{owner}/{name}", files)
        url = f"{hub.address}/{owner}/{name}/commit/{commit}"
        return self.answer({"commitUrl": url, "commitOid": commit, "success": True})


def tree(files, folder, is_recursive, folders=False):
    """Entries of a folder as the hub lists them."""
    at, entries, parents = f"{folder}/" if folder else "", [], set()
    for path, content in files.items():
        inner = path.removeprefix(at)
        if not path.startswith(at):
            continue
        parents |= {path.rsplit("/", depth + 1)[0] for depth in range(inner.count("/"))}
        if "/" in inner and not is_recursive:
            continue
        sha1 = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry = {"type": "file", "path": path, "size": len(content), "oid": sha1}
        if path.endswith(LARGE):
            sha256 = hashlib.sha256(content).hexdigest()
            entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
        entries.append(entry)
    if folders or not is_recursive:
        entries += [{"type": "directory", "path": path, "oid": "0"} for path in sorted(parents)]
    return entries


@contextlib.contextmanager
def serving():
    """A Hub that is served on loopback."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub, server.daemon_threads = hub, True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    # the default interval would make each shutdown wait for half a second
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub on loopback that vlc_jax and huggingface_hub use, with empty caches."""
    from huggingface_hub import constants, file_download

    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        monkeypatch.setenv("HF_TOKEN", "secret")
        monkeypatch.setenv("VLC_STORES", str(tmp_path / "copies"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "huggingface"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # by default 10 MB: of a piece that is cut off nothing is kept
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100)
        # it pauses a second before it resumes
        monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda seconds: None))
        forget()
        yield served
        forget()


def forget():
    """Forgets what this process has seen, as a new one would not know it."""
    from vlc_jax.input_pipeline.stores import hub as client

    client.pinned.cache_clear()
    client._copied.cache_clear()
