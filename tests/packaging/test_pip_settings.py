"""pip's index settings, as pip reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from buildtools.errors import BuildError
from buildtools.pip_settings import config_files, read_pip_settings


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_default_is_the_public_index() -> None:
    settings = read_pip_settings({}, [])
    assert [urlsplit(url).scheme for url in settings.index_urls] == ["https"]
    assert settings.find_links == ()
    assert not settings.no_index


def test_files_then_environment_and_later_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "a", "[global]\nindex-url = https://a/simple\ntimeout = 3\n[install]\ncert = /c.pem\n")
    second = write(
        tmp_path / "b",
        "[global]\nindex_url = https://b/simple\nextra-index-url =\n    https://x/1\n    https://x/2\n",
    )
    settings = read_pip_settings({}, [first, second])
    assert settings.index_urls == ("https://b/simple", "https://x/1", "https://x/2")
    assert settings.timeout == 3
    assert settings.cert == "/c.pem"
    environ = {
        "PIP_INDEX_URL": "https://e/simple",
        "PIP_EXTRA_INDEX_URL": "https://y",
        "PIP_TRUSTED_HOST": "e y",
    }
    settings = read_pip_settings(environ, [first, second])
    assert settings.index_urls == ("https://e/simple", "https://y")
    assert settings.trusted_hosts == ("e", "y")


def test_settings_of_other_commands_are_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "[download]\nindex-url = https://other\n[wheel]\nno-index = true\n")
    assert read_pip_settings({}, [path]) == read_pip_settings({}, [])


def test_no_index_leaves_links(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "[global]\nno-index = yes\nfind-links = /one /two\n")
    settings = read_pip_settings({}, [path])
    assert settings.index_urls == ()
    assert settings.find_links == ("/one", "/two")


def test_broken_file_raises_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"broken\.conf"):
        read_pip_settings({}, [write(tmp_path / "broken.conf", "index-url = nowhere\n")])


def test_bad_number_raises() -> None:
    with pytest.raises(BuildError, match="timeout is 'soon'"):
        read_pip_settings({"PIP_TIMEOUT": "soon"}, [])


def test_null_config_file_reads_none() -> None:
    assert config_files({"PIP_CONFIG_FILE": os.devnull}) == []


def test_describe_hides_passwords() -> None:
    settings = read_pip_settings({"PIP_INDEX_URL": "https://me:secret@host/simple"}, [])
    assert settings.describe() == "https://****@host/simple"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
def test_config_files_are_those_pip_reads(tmp_path: Path) -> None:
    """pip itself is the reference: it lists every file that it would read."""
    environ = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": f"{tmp_path / 'x'}:{tmp_path / 'y'}",
        "PIP_CONFIG_FILE": str(tmp_path / "own.conf"),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "debug"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("this Python has no pip")
    theirs = [Path(line.strip().rsplit(", exists:", 1)[0]) for line in done.stdout.splitlines() if ", exists:" in line]
    assert set(theirs) <= set(config_files(environ))
