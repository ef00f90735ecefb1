"""Compares the stubs of compiled modules with the modules: `python -m buildtools.stub_check`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from buildtools import paths

#: What a compiled module has and no stub needs to name.
_ALLOWED = r"""
.*\.__test__
.*\.__pyx_.*
.*\.__reduce_cython__
.*\.__setstate_cython__
.*\.__reduce__
.*\.__getstate__
.*\.__buffer__
.*\.__release_buffer__
"""


def main() -> int:
    modules = [
        ".".join(path.relative_to(paths.SOURCE).with_suffix("").parts)
        for path in sorted(paths.PACKAGE.glob("core/*.pyi"))
        if path.with_suffix(".pyx").is_file()
    ]
    with tempfile.TemporaryDirectory() as folder:
        allowed = Path(folder, "allowed.txt")
        allowed.write_text(_ALLOWED, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "mypy.stubtest",
            "--concise",
            "--ignore-unused-allowlist",
            "--allowlist",
            str(allowed),
        ]
        command += ["--mypy-config-file", str(paths.ROOT / "pyproject.toml")]
        return subprocess.run([*command, *modules], check=False, cwd=paths.ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
