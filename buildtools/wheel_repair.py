"""Builds a wheel in the dynamic-backend layout and repairs it: `python -m buildtools.wheel_repair [--out
dist]`.

On Linux auditwheel gives the wheel its manylinux tag. The package's own libraries stay where they are: ggml
opens its backends by name, in the folder that libggml lies in.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from buildtools import paths
from buildtools.errors import BuildError


def build_wheel(target: Path, isolated: bool = True) -> Path:
    """Build an unrepaired wheel of the checkout into an empty folder."""
    environment = {**os.environ, "LLAMACY_WHEEL": "1"}
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(target), str(paths.ROOT)]
    if not isolated:
        command.insert(-1, "--no-build-isolation")
    _run(command, environment, "building the wheel")
    return _only_wheel(target)


def repair(wheel: Path, target: Path) -> Path:
    """Give a wheel its manylinux tag.

    Raises
    ------
    BuildError
        auditwheel is missing or refuses, or a library got lost or was renamed on the way.
    """
    before = library_names(wheel)
    if not sys.platform.startswith("linux"):
        shutil.copy(wheel, target)
        return target / wheel.name
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(target)]
    for pattern in ("libllamacy-*", "libggml-*"):
        command += ["--exclude", pattern]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    _run([*command, str(wheel)], environment, "repairing the wheel")
    repaired = _only_wheel(target)
    after = library_names(repaired)
    if before != after:
        raise BuildError(
            f"{repaired.name} has other libraries than {wheel.name}: lost {sorted(before - after)}, new "
            f"{sorted(after - before)}; a library that ggml opens by name must keep it."
        )
    return repaired


def library_names(wheel: Path) -> set[str]:
    """Names of the shared libraries in a wheel, beside its extension modules."""
    with zipfile.ZipFile(wheel) as content:
        return {
            name
            for name in content.namelist()
            if (f"/{paths.LIBRARY_FOLDER}/" in name or ".libs/" in name) and not name.endswith((".json", "/"))
        }


def _only_wheel(folder: Path) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(
            f"{folder} holds {len(wheels)} wheels where one was expected: {[wheel.name for wheel in wheels]}."
        )
    return wheels[0]


def _run(command: list[str], environment: dict[str, str], what: str) -> None:
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"{what.capitalize()} failed with exit code {done.returncode}; the reason is above ({' '.join(command)})."
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m buildtools.wheel_repair", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=paths.ROOT / "dist", help="folder of the wheel (default: dist)")
    parser.add_argument("--no-repair", action="store_true", help="keep the linux_* tag")
    parser.add_argument("--no-isolation", action="store_true", help="use the build requirements installed here")
    wanted = parser.parse_args(arguments)
    try:
        wanted.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            for name in ("built", "repaired"):
                Path(work, name).mkdir()
            wheel = build_wheel(Path(work, "built"), not wanted.no_isolation)
            if not wanted.no_repair:
                wheel = repair(wheel, Path(work, "repaired"))
            final = wanted.out / wheel.name
            shutil.copy(wheel, final)
    except BuildError as error:
        print(f"llamacy: error: {error}", file=sys.stderr)
        return 1
    print(final)
    return 0


if __name__ == "__main__":
    sys.exit(main())
