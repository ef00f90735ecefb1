"""A wheel of this checkout, installed in a clean environment far away from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers import REPO


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command with next to no environment, and return its output; a failure shows both streams."""
    keep = ("PATH", "HOME", "TMPDIR", "LANG", "SYSTEMROOT", "CC", "CXX", "CFLAGS", "LDFLAGS")
    keep += tuple(name for name in os.environ if name.startswith(("PIP_", "LLAMACY_", "SSL_", "REQUESTS_", "HTTP")))
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    environment |= {"GGML_NO_BACKTRACE": "1", "PYTHONUTF8": "1"} | (env or {})
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed\nstdout:\n{done.stdout}\nstderr:\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Installation:
    """A Python environment with llamacy installed from a wheel."""

    folder: Path
    python: Path

    def run(self, *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
        return run(self.python, *arguments, cwd=cwd or self.folder, env=env)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest wheel in LLAMACY_WHEEL_DIR, or one that is built here."""
    given = os.environ.get("LLAMACY_WHEEL_DIR")
    folder = Path(given) if given else tmp_path_factory.mktemp("dist")
    if not given:
        build = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, REPO]
        run(sys.executable, *build, cwd=folder)
    found = sorted(folder.glob("llamacy-*.whl"), key=lambda path: path.stat().st_mtime)
    assert found, f"there is no wheel of llamacy in {folder}"
    return found[-1]


@pytest.fixture(scope="session")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel in an environment of its own, whose path has spaces and letters of other alphabets."""
    folder = tmp_path_factory.mktemp("elsewhere") / "ein Ort für Möglichkeiten 模型"
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    run(python, "-m", "pip", "install", "-q", wheel, "cython>=3.1", "setuptools>=77", cwd=folder)
    return Installation(folder, python)


@pytest.fixture(scope="session")
def consumers(installation: Installation) -> Path:
    """The compiled consumers, in a folder with none of this checkout in reach."""
    folder = installation.folder / "consumers"
    shutil.copytree(Path(__file__).parent / "consumers", folder)
    installation.run("setup.py", "-q", "build_ext", "--inplace", cwd=folder)
    return folder
