"""Fills vendor/llama.cpp from the pinned archive: `python -m buildtools.vendor_sync [--force]`.

The archive is found and downloaded with unearth, from where the user's pip would take it. Nothing of it is
run.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from buildtools import paths
from buildtools.errors import BuildError
from buildtools.locks import file_lock
from buildtools.pin import Pin, read_pin
from buildtools.pip_settings import PipSettings, read_pip_settings
from buildtools.unpack import unpack

STAMP = ".llamacy-stamp"

_BY_HAND = "Or put a llama.cpp checkout of the pinned version somewhere and name it in LLAMACY_LLAMA_CPP_DIR."


def is_current(tree: Path, pin: Pin) -> bool:
    """Whether a tree is the pinned one, whole: the stamp is written last."""
    stamp = tree / STAMP
    return stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == pin.stamp


def sync(tree: Path = paths.VENDORED_TREE, pin: Pin | None = None, force: bool = False) -> bool:
    """Make `tree` the pinned llama.cpp.

    Parameters
    ----------
    tree : Path
        Where it goes.
    pin : Pin, optional
        What goes there; `vendor/PIN.toml` by default.
    force : bool
        Fetch it anew also when it is there.

    Returns
    -------
    bool
        Whether anything was done.

    Raises
    ------
    BuildError
        No network, wrong digest, no room, an archive that can't be trusted. The tree is then as it was
        before.
    """
    pin = read_pin() if pin is None else pin
    if not force and is_current(tree, pin):
        return False

    def waiting() -> None:
        _say(f"another process fills {tree}; waiting for it")

    try:
        with file_lock(tree.with_name(f".{tree.name}.lock"), waiting):
            if not force and is_current(tree, pin):
                return False
            _remove_leftovers(tree)
            with tempfile.TemporaryDirectory(dir=tree.parent, prefix=f".{tree.name}.new-") as work:
                archive = Path(work, pin.file)
                _fetch(pin, archive)
                _check_digest(pin, archive)
                fresh = Path(work, "tree")
                _unpack(pin, archive, fresh)
                _publish(fresh, tree, Path(work, "old"))
    except OSError as error:
        raise BuildError(_os_message(tree, error)) from error
    return True


def _remove_leftovers(tree: Path) -> None:
    """Remove what a killed run left beside the tree; the lock says that none is running."""
    for leftover in tree.parent.glob(f".{tree.name}.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fetch(pin: Pin, archive: Path) -> None:
    settings = read_pip_settings()
    warnings = _Warnings()
    logger = logging.getLogger("unearth")
    logger.addHandler(warnings)
    try:
        session, url = _find(pin, settings, warnings)
        for attempt in range(settings.retries + 1):
            try:
                _download(session, url, archive)
                return
            except _network_errors() as error:
                if attempt == settings.retries:
                    raise BuildError(
                        f"Downloading {pin.file} failed ({_reason(error)}): check the network and run this "
                        f"again. {_BY_HAND}"
                    ) from error
                _say(f"downloading {pin.file} failed ({_reason(error)}); trying again")
                time.sleep(min(0.25 * 2**attempt, 4.0))
    finally:
        logger.removeHandler(warnings)


def _find(pin: Pin, settings: PipSettings, warnings: _Warnings) -> tuple[Any, str]:
    """A client and the address of the archive."""
    try:
        from unearth import PackageFinder
        from unearth.auth import MultiDomainBasicAuth
        from unearth.fetchers.sync import PyPIClient
    except ImportError as error:
        raise BuildError(
            f"{paths.VENDORED_TREE} is absent, and filling it needs unearth: pip install 'unearth>=0.17' "
            f"tqdm (a normal `pip install .` does that itself). {_BY_HAND}"
        ) from error
    client: dict[str, Any] = {
        "timeout": settings.timeout,
        "trusted_hosts": settings.trusted_hosts,
        "follow_redirects": True,
    }
    if settings.cert:
        client["verify"] = _ssl_context(settings.cert)
    if settings.client_cert:
        client["cert"] = settings.client_cert
    if settings.proxy:
        client["proxy"] = settings.proxy
    session: Any = PyPIClient(**client)
    session.auth = MultiDomainBasicAuth(index_urls=list(settings.index_urls))
    _say(f"looking for {pin.file}")
    if not settings.index_urls and not settings.find_links:
        # A finder without any source would fall back to the public index, offline or not.
        raise BuildError(
            f"{pin.file} is needed, but pip is set to use no index (no-index) and no find-links: allow an "
            f"index, or add a folder that holds the archive (PIP_FIND_LINKS). {_BY_HAND}"
        )
    failures: list[str] = []
    errors: tuple[type[Exception], ...] = (*_network_errors(), ValueError)
    # One source after the other: an index that is down must not hide the others. The digest decides, not the source.
    sources: list[dict[str, Any]] = [{"find_links": [place]} for place in settings.find_links]
    sources += [{"index_urls": [url]} for url in settings.index_urls]
    for source in sources:
        finder = PackageFinder(session=session, no_binary=[pin.package], ignore_compatibility=True, **source)
        try:
            for package in finder.find_all_packages(pin.package, allow_yanked=True):
                if package.version == pin.version and package.link.filename == pin.file:
                    return session, package.link.normalized
        except errors as error:
            failures.append(_reason(error))
    told = "; ".join([*failures, *warnings.lines][:3])
    raise BuildError(
        f"{pin.file} wasn't found (asked {settings.describe()}{': ' + told if told else ''}): check the "
        f"network and pip's settings (`pip config list`), then run this again. {_BY_HAND}"
    )


def _ssl_context(cert: str) -> Any:
    import ssl

    try:
        if Path(cert).is_dir():
            return ssl.create_default_context(capath=cert)
        return ssl.create_default_context(cafile=cert)
    except (OSError, ssl.SSLError) as error:
        raise BuildError(
            f"pip's setting cert names {cert}, which can't be used ({error}): mend it in `pip config`."
        ) from error


def _network_errors() -> tuple[type[Exception], ...]:
    """What unearth's client raises; the library under it has changed its name once."""
    import importlib

    kinds: list[type[Exception]] = [ConnectionError, TimeoutError]
    for name in ("httpx2", "httpx"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            kinds += [module.HTTPError, module.InvalidURL, module.StreamError]
    return tuple(kinds)


def _download(session: Any, url: str, archive: Path) -> None:
    with session.get_stream(url) as response:
        response.raise_for_status()
        total = int(response.headers.get("Content-Length") or 0)
        with _progress("downloading", total) as advanced, archive.open("wb") as sink:
            for block in response.iter_bytes(1 << 18):
                sink.write(block)
                advanced(len(block))


def _check_digest(pin: Pin, archive: Path) -> None:
    digest = hashlib.sha256()
    with archive.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != pin.sha256:
        raise BuildError(
            f"{pin.file} has the sha256 {digest.hexdigest()} ({archive.stat().st_size} bytes), not "
            f"{pin.sha256} as pinned in vendor/PIN.toml: the download was cut short or the index serves "
            "another file. Nothing of it was unpacked; run this again, from another index if it stays so. "
            f"{_BY_HAND}"
        )


def _unpack(pin: Pin, archive: Path, fresh: Path) -> None:
    fresh.mkdir()
    top = PurePosixPath(pin.file.removesuffix(".tar.gz"), pin.folder)
    with _progress("unpacking", archive.stat().st_size) as advanced:
        count = unpack(archive, top, pin.keeps, fresh, advanced)
    if not (fresh / "CMakeLists.txt").is_file():
        raise BuildError(
            f"{pin.file} has no {top}/CMakeLists.txt ({count} files fit): the folder in vendor/PIN.toml is wrong."
        )
    (fresh / STAMP).write_text(pin.stamp + "\n", encoding="utf-8")
    _say(f"unpacked {count} files of llama.cpp {pin.tag}")


def _publish(fresh: Path, tree: Path, old: Path) -> None:
    """Put the new tree in place; the old one goes only once the new one is there."""
    had_old = tree.exists()
    if had_old:
        tree.rename(old)
    try:
        fresh.rename(tree)
    except OSError:
        if had_old:
            old.rename(tree)
        raise


def _os_message(tree: Path, error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return (
            f"No room to unpack llama.cpp in {tree.parent} ({error.strerror}): it needs about 200 MB while "
            "unpacking and 150 MB after. Make room and run this again."
        )
    where = error.filename or tree.parent
    return f"{tree} can't be filled ({error.strerror or error}: {where}): mend that and run this again."


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip(": ")


def _say(text: str) -> None:
    print(f"llamacy: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on a terminal, one line otherwise."""
    try:
        from tqdm import tqdm
    except ImportError:
        _say(f"{what} {total / 1e6:.0f} MB")
        yield lambda _: None
        return
    with tqdm(total=total or None, desc=f"llamacy: {what}", unit="B", unit_scale=True, mininterval=0.5) as bar:
        yield bar.update


class _Warnings(logging.Handler):
    """Keeps what unearth only logs: why an index gave nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m buildtools.vendor_sync", description="Fill vendor/llama.cpp.")
    parser.add_argument("--force", action="store_true", help="fetch it anew, also when it is there")
    wanted = parser.parse_args(arguments)
    try:
        done = sync(force=wanted.force)
    except BuildError as error:
        print(f"llamacy: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("llamacy: interrupted; the tree is as it was", file=sys.stderr)
        return 130
    if not done:
        _say(f"{paths.VENDORED_TREE} is the pinned llama.cpp already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
