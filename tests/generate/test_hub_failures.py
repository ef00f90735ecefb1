"""Files of the Hugging Face Hub with its own client: fetched from a server here, kept for later, or not to be had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import data

pytest.importorskip("huggingface_hub")

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_MODEL = data("llama.gguf").read_bytes()
_FILES = ("m-q4.gguf", "m-q8.gguf", "big-00001-of-00002.gguf")
# what the Hub answers where there is nothing to fetch: status, and its own name of the error
_REFUSALS = {
    "org/absent": (401, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
    "org/private": (403, None),
    "org/broken": (501, None),
}


class _Hub(BaseHTTPRequestHandler):
    """As much of the Hub as its client asks for one file, or for the list of all."""

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(_MODEL)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, model: bytes) -> None:
        path = self.path.partition("?")[0]
        repository = "/".join(path.removeprefix("/api/models").split("/")[1:3])
        if repository in _REFUSALS:
            self._send(*_REFUSALS[repository])
        elif "/nowhere" in path:
            self._send(404, "RevisionNotFound")
        elif path.startswith("/api/models/"):
            files = [{"type": "file", "path": name, "rfilename": name, "size": 1, "oid": "0"} for name in _FILES]
            listed: Any = files if "/tree/" in path else {"id": repository, "sha": _COMMIT, "siblings": files}
            self._send(200, None, json.dumps(listed).encode())
        elif path.rsplit("/", 1)[1] in _FILES:
            self._send(200, None, model, len(_MODEL))
        else:
            self._send(404, "EntryNotFound")

    def _send(self, status: int, code: str | None, body: bytes = b"", length: int | None = None) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", _COMMIT)
        self.send_header("ETag", f'"{sha256(_MODEL).hexdigest()}"')
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)


# asks for each case, and prints what came; the client waits long between its tries
_PROGRAM = """
import json, logging, sys, time
time.sleep = lambda seconds: None
logging.disable()
import llamacy
answers = []
for kind, repository, filename, options in json.load(sys.stdin):
    try:
        with getattr(llamacy, kind).from_pretrained(repository, filename, **options) as model:
            answers.append({"path": model.model.path})
    except Exception as error:
        answers.append({"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error),
                        "cause": type(error.__cause__).__module__.partition(".")[0]})
print(json.dumps(answers))
"""


def _ask(cases: list[Any], endpoint: str, home: Path, **env: str) -> list[dict[str, Any]]:
    whole = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    whole |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*", **env}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=whole,
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()
        thread.join()


_ONLINE = {
    "absent file": ("org/model", "absent.gguf", {}, "the repository has no file 'absent.gguf'"),
    "absent part": ("org/model", "big-*.gguf", {}, "big-00002-of-00002.gguf of org/model can't be fetched"),
    "absent repository": ("org/absent", "m.gguf", {}, "there is no repository 'org/absent', or it is private"),
    "absent repository of a pattern": ("org/absent", "*.gguf", {}, "there is no repository 'org/absent', or it is"),
    "gated": ("org/gated", "m.gguf", {}, "the repository is gated: accept its terms"),
    "gated, by a pattern": ("org/gated", "*.gguf", {}, "the repository is gated: accept its terms"),
    "private": ("org/private", "m.gguf", {}, "the Hub refuses it (HTTP 403): log in"),
    "broken": ("org/broken", "m.gguf", {}, "the Hub answered with HTTP 501: try again later"),
    "revision": ("org/model", "m-q4.gguf", {"revision": "nowhere"}, "the repository has no revision 'nowhere'"),
}
_OFFLINE = {
    "file": ("org/other", "m.gguf", {}),
    "pattern": ("org/other", "*.gguf", {}),
    "other file": ("org/model", "m-q8.gguf", {}),
    "pattern of another file": ("org/model", "*q8.gguf", {}),
    "other revision": ("org/model", "m-*.gguf", {"revision": "other"}),
}


def _check(answer: dict[str, Any], kind: str, repository: str, filename: str) -> None:
    """An error that says which file, that is llamacy's and an OSError, and that has the client's as its cause."""
    assert {"DownloadError", "LlamacyError", "OSError"} <= set(answer["kinds"]), answer
    assert answer["cause"] in {"huggingface_hub", "httpx", "httpx2", "requests"}
    assert repository in answer["text"]
    assert filename.strip("*") in answer["text"]
    assert answer["text"].endswith(f"If you have the file, give its path to {kind}(…).")


@pytest.mark.parametrize("kind", ["Llama", "Embedding"])
def test_what_the_hub_refuses_is_told(kind: str, server: str, home: Path) -> None:
    cases = [[kind, *case[:3]] for case in _ONLINE.values()]
    for answer, (repository, filename, _, message) in zip(_ask(cases, server, home), _ONLINE.values(), strict=True):
        _check(answer, kind, repository, "big-" if filename == "big-*.gguf" else filename)
        assert message in answer["text"]


@pytest.mark.parametrize("offline", [True, False], ids=["HF_HUB_OFFLINE", "no network"])
def test_a_file_that_was_fetched_works_offline_and_others_are_told(
    offline: bool, server: str, home: Path, tmp_path: Path
) -> None:
    local = {"local_dir": str(tmp_path)}
    held = [["Llama", "org/model", "m-q4.gguf", {}], ["Llama", "org/model", "m-q4.gguf", local]]
    paths = [answer["path"] for answer in _ask(held, server, home)]
    assert [Path(path).read_bytes() for path in paths] == [_MODEL, _MODEL]
    nowhere = "http://127.0.0.1:9"  # nobody listens there
    held += [["Embedding", "org/model", "*q4*", {}], ["Llama", "org/model", "*q4*", local]]
    cases = [["Llama", *case] for case in _OFFLINE.values()]
    answers = _ask([*held, *cases], nowhere, home, **({"HF_HUB_OFFLINE": "1"} if offline else {}))
    assert [answer.get("path") for answer in answers[:4]] == [*paths, *paths]
    why = "may not be asked (HF_HUB_OFFLINE is set)" if offline else "can't be reached"
    for answer, (repository, filename, _) in zip(answers[4:], _OFFLINE.values(), strict=True):
        _check(answer, "Llama", repository, filename)
        assert f"it is not in the cache of the Hub on this machine, and the Hub {why}" in answer["text"]


def test_wrong_arguments_are_no_failed_downloads(server: str, home: Path) -> None:
    cases = [["Llama", "a/b/c", "m.gguf", {}], ["Llama", "org/model", "m-*.gguf", {}], ["Llama", "a/b/c", "*.gguf", {}]]
    wrong, several, wrong_too = _ask(cases, server, home)
    for answer in (wrong, several, wrong_too):
        assert "ValueError" in answer["kinds"]
        assert "OSError" not in answer["kinds"]
    for answer in (wrong, wrong_too):
        assert answer["text"] == "'a/b/c' is no name of a repository: give owner/name, as 'org/model-GGUF'"
    assert several["text"].startswith("2 files (m-q4.gguf, m-q8.gguf) of the repository match 'm-*.gguf'")
