"""The user's pip index settings, read as pip reads them: configuration files, then `PIP_*` variables."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from buildtools.errors import BuildError

#: Lists; every other key has one value.
_LISTS = {"extra-index-url", "find-links", "trusted-host"}
#: Later sections win, as in pip: what is set for `pip download` only is left alone.
_SECTIONS = ("global", "install")
_TRUE = {"1", "true", "yes", "on", "y", "t"}


@dataclass(frozen=True)
class PipSettings:
    """Where packages come from, as far as finding and downloading one archive needs it."""

    index_urls: tuple[str, ...]
    find_links: tuple[str, ...]
    trusted_hosts: tuple[str, ...]
    no_index: bool
    cert: str | None
    client_cert: str | None
    proxy: str | None
    timeout: float
    retries: int

    def describe(self) -> str:
        """Where was looked, for messages; without passwords."""
        places = [_without_password(url) for url in (*self.index_urls, *self.find_links)]
        return ", ".join(places) or "the default index"


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """Pip's configuration files, weakest first."""
    own = environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    files: list[Path] = []
    if sys.platform == "win32":
        files.append(Path(environ.get("PROGRAMDATA", r"C:\ProgramData"), "pip", name))
        files += [home / "pip" / name, Path(environ.get("APPDATA", home), "pip", name)]
    elif sys.platform == "darwin":
        support = home / "Library" / "Application Support" / "pip"
        files += [Path("/Library/Application Support/pip") / name, home / ".pip" / name]
        files.append(support / name if support.is_dir() else home / ".config" / "pip" / name)
    else:
        shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        files += [Path(folder, "pip", name) for folder in shared.split(os.pathsep) if folder]
        files += [Path("/etc") / name, home / ".pip" / name]
        files.append(Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip", name))
    files.append(Path(sys.prefix) / name)
    if own:
        files.append(Path(own))
    return files


def read_pip_settings(environ: Mapping[str, str] | None = None, files: list[Path] | None = None) -> PipSettings:
    """Read the settings.

    Parameters
    ----------
    environ : mapping, optional
        The environment; the process's own by default.
    files : list of Path, optional
        Configuration files, weakest first; pip's by default.

    Raises
    ------
    BuildError
        A configuration file, or a value in one, can't be read.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, str] = {}
    for path in config_files(environ) if files is None else files:
        for key, value in _read_file(path).items():
            values[key] = value
    for name, value in environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE" and value:
            values[name[4:].lower().replace("_", "-")] = value
    lists = {key: tuple(values.get(key, "").split()) for key in _LISTS}
    no_index = values.get("no-index", "").strip().lower() in _TRUE
    indexes: tuple[str, ...] = ()
    if not no_index:
        indexes = (
            values.get("index-url", "").strip() or _default_index(),
            *lists["extra-index-url"],
        )
    return PipSettings(
        index_urls=indexes,
        find_links=lists["find-links"],
        trusted_hosts=lists["trusted-host"],
        no_index=no_index,
        cert=values.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or None,
        client_cert=values.get("client-cert") or None,
        proxy=values.get("proxy") or None,
        timeout=_number(values, "timeout", environ.get("PIP_DEFAULT_TIMEOUT"), 15.0),
        retries=int(_number(values, "retries", None, 5.0)),
    )


def _read_file(path: Path) -> dict[str, str]:
    """One configuration file; empty when there is none."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise BuildError(
            f"pip's configuration file {path} can't be read ({error}): mend it, or set PIP_CONFIG_FILE={os.devnull}."
        ) from error
    values: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            for key, value in parser.items(section):
                values[key.lower().replace("_", "-")] = value
    return values


def _number(values: Mapping[str, str], key: str, fallback: str | None, default: float) -> float:
    text = values.get(key) or fallback
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise BuildError(f"pip's setting {key} is {text!r}, which isn't a number.") from None


def _without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if separator and "@" in rest.split("/", 1)[0]:
        rest = "****@" + rest.split("@", 1)[1]
    return scheme + separator + rest


def _default_index() -> str:
    """Return the index that is used when nobody names one: the one that unearth starts from."""
    from unearth import PackageFinder

    return str(PackageFinder().sources[0]["url"])
