"""A pinned archive of a few small files, and places that serve it: a folder and a web server on this machine."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from buildtools.pin import Pin

NAME = "carrier-1.0"

FILES = {
    f"{NAME}/PKG-INFO": b"Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n",
    f"{NAME}/third/tree/CMakeLists.txt": b"project(tree)\n",
    f"{NAME}/third/tree/include/llama.h": b"// a header\n",
    f"{NAME}/third/tree/include/deep/er/one.h": b"// another\n",
    f"{NAME}/third/tree/models/vocab-a.gguf": b"GGUF" * 1000,
    f"{NAME}/third/tree/models/readme.txt": b"not kept",
    f"{NAME}/third/tree/tools/kept.cpp": b"int kept;\n",
    f"{NAME}/third/tree/tools/old/dropped.cpp": b"int dropped;\n",
    f"{NAME}/setup.py": b"raise SystemExit('never run')\n",
}

KEPT = {
    "CMakeLists.txt",
    "include/llama.h",
    "include/deep/er/one.h",
    "models/vocab-a.gguf",
    "tools/kept.cpp",
    ".llamacy-stamp",
}


def add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = mode
    tar.addfile(member, io.BytesIO(content))


def make_archive(path: Path, extra: Callable[[tarfile.TarFile], None] = lambda _: None) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in FILES.items():
            add_file(tar, name, content)
        extra(tar)


def pin_of(archive: Path) -> Pin:
    return Pin(
        tag="b1",
        build_number=1,
        package="carrier",
        version="1.0",
        file=f"{NAME}.tar.gz",
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        folder="third/tree",
        keep=("CMakeLists.txt", "include/", "models/vocab-*.gguf", "tools/"),
        drop=("tools/old/",),
    )


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Place:
    """A folder that pip's settings name as the only source, and a tree to fill from it."""

    links: Path
    tree: Path
    archive: Path
    pin: Pin

    def remake(self, extra: Callable[[tarfile.TarFile], None]) -> None:
        """Make the archive anew with more in it, and pin that."""
        make_archive(self.archive, extra)
        self.pin = pin_of(self.archive)

    def left_behind(self) -> set[str]:
        """What lies beside the tree, but for the lock."""
        return {path.name for path in self.tree.parent.iterdir()} - {
            self.tree.name,
            f".{self.tree.name}.lock",
        }


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    links = tmp_path / "links"
    links.mkdir()
    archive = links / f"{NAME}.tar.gz"
    make_archive(archive)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    return Place(links, vendor / "llama.cpp", archive, pin_of(archive))


@dataclass
class Index:
    """A web server with one project page; `cut` bytes are left off the end of every archive it serves."""

    url: str = ""
    cut: int = 0
    fail_first: int = 0
    requests: list[str] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, index: Index, folder: Path, *args: object) -> None:
        self.index = index
        self.folder = folder
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.index.requests.append(self.path)
        if self.path == "/simple/carrier/":
            page = f'<html><body><a href="/files/{NAME}.tar.gz">{NAME}.tar.gz</a></body></html>'.encode()
            self._answer(200, page, "text/html", len(page))
        elif self.path.startswith("/files/"):
            if self.index.fail_first:
                self.index.fail_first -= 1
                self._answer(503, b"busy", "text/plain", 4)
                return
            content = (self.folder / self.path.rsplit("/", 1)[1]).read_bytes()
            shown = content[: len(content) - self.index.cut]
            self._answer(200, shown, "application/gzip", len(content))
        else:
            self._answer(404, b"no such page", "text/plain", 12)

    def _answer(self, status: int, body: bytes, kind: str, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def index(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    index = Index()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, index, place.links)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "20")
        yield index
        server.shutdown()
        thread.join()
