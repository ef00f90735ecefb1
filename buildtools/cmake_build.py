"""Configures, builds and installs ggml, llama and mtmd with CMake, once a key."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from buildtools import compiler as compilers
from buildtools import native_cache, paths
from buildtools.errors import BuildError
from buildtools.options import BuildOptions, ggml_options, is_on, unknown_option
from buildtools.pin import read_pin

#: File of a build that lists the processor features it was configured with.
_FEATURES = "cpu_features.txt"

#: Folders of a tree whose files decide what is built.
_SOURCE_FOLDERS = ("cmake", "ggml", "include", "src", "tools/mtmd", "vendor")


@dataclass(frozen=True)
class NativeBuild:
    """Built native libraries, ready to link against."""

    #: Folder of the libraries, and of nothing else.
    library_folder: Path
    #: Folder of the public headers.
    include_folder: Path
    #: Link names, by what they are in llama.cpp: llama, ggml, ggml-base, mtmd.
    link_names: dict[str, str]
    #: Whether the libraries go into the package (not so with an installed llama.cpp).
    bundled: bool
    #: Changes whenever the libraries change.
    key: str
    #: What `llamacy` may want to know about its libraries at run time.
    facts: dict[str, object]

    def libraries(self) -> list[Path]:
        """Files that belong into the package."""
        if not self.bundled:
            return []
        return sorted(path for path in self.library_folder.iterdir() if path.is_file() and path.suffix != ".json")


def native_build(options: BuildOptions, tree: Path) -> NativeBuild:
    """Build the native libraries of a tree, or take them from the cache.

    Raises
    ------
    BuildError
        CMake or the compiler failed, or the cache can't be written.
    """
    compiler = compilers.find_compiler()
    definitions = dict(default_definitions(options))
    definitions.update(options.definitions)
    native = is_on(definitions["GGML_NATIVE"])
    facts = build_facts(options, tree, definitions, compilers.fingerprint(compiler, native))
    name = f"{facts['tag']}-{native_cache.key(facts)}"

    def build(work: Path, staging: Path) -> None:
        _run_cmake(options, tree, definitions, work, staging)

    done = native_cache.fetch(paths.cache_folder(), name, facts, build)
    features = list(compiler.native_features()) if native else _configured_features(done)
    return NativeBuild(
        library_folder=done / "lib",
        include_folder=done / "include",
        link_names={target: f"llamacy-{target}" for target in ("llama", "ggml", "ggml-base", "mtmd")},
        bundled=True,
        key=name,
        facts={
            "llama_cpp": facts["tag"],
            "key": name,
            "layout": "dynamic" if is_on(definitions["GGML_BACKEND_DL"]) else "static",
            "native": native,
            "cpu_features": features,
            "options": {key: value for key, value in sorted(definitions.items()) if key.startswith("GGML_")},
            "build_type": definitions["CMAKE_BUILD_TYPE"],
            "sanitize": options.sanitize,
        },
    )


def _configured_features(done: Path) -> list[str]:
    path = done / _FEATURES
    # a build that is in the cache from before this list was made has none
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def default_definitions(options: BuildOptions) -> list[tuple[str, str]]:
    """The definitions of a build before CMAKE_ARGS."""
    wheel = options.wheel
    on_off = {True: "ON", False: "OFF"}
    return [
        ("CMAKE_BUILD_TYPE", "RelWithDebInfo" if options.debug or options.sanitize else "Release"),
        ("BUILD_SHARED_LIBS", "ON"),
        ("LLAMA_BUILD_MTMD", "ON"),
        ("LLAMA_BUILD_COMMON", "OFF"),
        ("LLAMA_BUILD_NUMBER", str(read_pin().build_number)),
        ("LLAMA_BUILD_COMMIT", read_pin().tag),
        ("LLAMA_ALL_WARNINGS", "OFF"),
        ("GGML_NATIVE", on_off[not wheel]),
        ("GGML_BACKEND_DL", on_off[wheel]),
        ("GGML_CPU_ALL_VARIANTS", on_off[wheel]),
        # ggml's own thread pool: no libgomp beside PyTorch's, thread pools and affinity work, and threads
        # that wait don't spin against each other when there are more of them than cores.
        ("GGML_OPENMP", "OFF"),
        ("GGML_CCACHE", "OFF"),
        ("LLAMACY_RELOCATABLE", on_off[wheel]),
        ("LLAMACY_SANITIZE", options.sanitize),
    ]


def build_facts(
    options: BuildOptions, tree: Path, definitions: dict[str, str], fingerprint: dict[str, str]
) -> dict[str, object]:
    """What the key of a native build is made of."""
    pin = read_pin()
    stamp = tree / ".llamacy-stamp"
    pinned = tree == paths.VENDORED_TREE and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == pin.stamp
    return {
        "tag": pin.tag if pinned else "own",
        "tree": pin.stamp if pinned else native_cache.hash_tree(tree, _SOURCE_FOLDERS),
        "definitions": dict(sorted(definitions.items())),
        "arguments": list(options.other_arguments),
        "recipe": native_cache.hash_files([p for p in paths.CMAKE_PROJECT.iterdir() if p.is_file()], paths.ROOT),
        **fingerprint,
    }


def find_program(name: str) -> str | None:
    """`cmake` or `ninja`: the one of the package of that name when it is installed, else one on the path."""
    if importlib.util.find_spec(name) is not None:
        suffix = ".exe" if sys.platform == "win32" else ""
        module = __import__(name)
        folder = getattr(module, "CMAKE_BIN_DIR" if name == "cmake" else "BIN_DIR", None)
        if folder and Path(folder, name + suffix).is_file():
            return str(Path(folder, name + suffix))
    return shutil.which(name)


def _run_cmake(options: BuildOptions, tree: Path, definitions: dict[str, str], work: Path, staging: Path) -> None:
    _check_toolkits(definitions)
    cmake = find_program("cmake")
    if cmake is None:
        raise BuildError("cmake is missing: pip install cmake ninja (a normal `pip install .` does that itself).")
    log = work.with_suffix(".log")
    _drop_foreign_work(work)
    configure = [cmake, "-S", str(paths.CMAKE_PROJECT), "-B", str(work), f"-DLLAMACY_TREE={tree.as_posix()}"]
    configure += [f"-D{name}={value}" for name, value in definitions.items()]
    # ggml asks git for its commit, which here would be llamacy's own.
    configure += ["-DGIT_EXE=", f"-DCMAKE_INSTALL_PREFIX={staging}"]
    configure += options.other_arguments
    ninja = find_program("ninja")
    if ninja and sys.platform != "win32" and not any(word.startswith("-G") for word in options.other_arguments):
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    print(
        f"llamacy: building llama.cpp ({definitions['CMAKE_BUILD_TYPE']}, {options.jobs} jobs), log in {log}",
        flush=True,
    )
    output = _step("configuring", configure, log)
    _refuse_unused(output, options, tree)
    cache = (work / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    (staging / _FEATURES).write_text("\n".join(compilers.configured_features(cache)) + "\n", encoding="utf-8")
    _step(
        "building",
        [
            cmake,
            "--build",
            str(work),
            "--config",
            definitions["CMAKE_BUILD_TYPE"],
            "--parallel",
            str(options.jobs),
        ],
        log,
        show_progress=True,
    )
    _step("installing", [cmake, "--install", str(work), "--config", definitions["CMAKE_BUILD_TYPE"]], log)
    include = staging / paths.INCLUDE_FOLDER
    include.mkdir()
    for header in paths.HEADERS:
        shutil.copyfile(tree / header, include / Path(header).name)


def _drop_foreign_work(work: Path) -> None:
    """Remove a half-done build that was configured from another copy of these sources."""
    cache = work / "CMakeCache.txt"
    if not work.exists():
        return
    wanted = f"CMAKE_HOME_DIRECTORY:INTERNAL={paths.CMAKE_PROJECT.as_posix()}"
    if not cache.is_file() or wanted not in cache.read_text(encoding="utf-8", errors="replace").splitlines():
        shutil.rmtree(work)


def _step(what: str, command: list[str], log: Path, show_progress: bool = False) -> str:
    """Run one CMake step, all its output into the log; the output is returned."""
    lines: list[str] = []
    with log.open("ab", buffering=0) as sink:
        sink.write(f"$ {' '.join(command)}\n".encode())
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
            text=True,
        ) as process:
            assert process.stdout is not None
            told = -1
            for line in process.stdout:
                sink.write(line.encode())
                lines.append(line)
                progress = re.match(r"\[\s*(\d+)(?:/(\d+)\]|%\])", line)
                if show_progress and progress:
                    told = _tell_progress(int(progress.group(1)), int(progress.group(2) or 100), told)
    if process.returncode != 0:
        raise BuildError(
            f"{what.capitalize()} llama.cpp failed with exit code {process.returncode}: "
            f"{_first_error(lines)} The full log is {log}."
        )
    return "".join(lines)


def _tell_progress(done: int, total: int, told: int) -> int:
    """Print every tenth part of the way once."""
    tenth = done * 10 // max(total, 1)
    if tenth > told:
        print(f"llamacy: {done} of {total} steps of the native build", flush=True)
        return tenth
    return told


def _first_error(lines: list[str]) -> str:
    """The first error of a log, as one line."""
    for position, line in enumerate(lines):
        if line.startswith("CMake Error"):
            text = " ".join(part.strip() for part in lines[position : position + 6] if part.strip())
            return text[:400].rstrip(".") + "."
        if re.search(r"(?:fatal error|error):|undefined reference|No space left", line):
            return line.strip()[:400].rstrip(".") + "."
    return (lines[-1].strip()[:400] if lines else "no output") + "."


def _refuse_unused(output: str, options: BuildOptions, tree: Path) -> None:
    """Refuse definitions of CMAKE_ARGS that no CMake file read: a mistyped GPU switch must not give a CPU build."""
    match = re.search(
        r"Manually-specified variables were not used by the project:\n(.*?)(?:\n\S|\n--|\Z)",
        output,
        re.DOTALL,
    )
    unused = set(match.group(1).split()) if match else set()
    for name, _ in options.definitions:
        # CMake's own variables may be read by some generators and languages only.
        if name in unused and not name.startswith("CMAKE_"):
            raise BuildError(unknown_option(name, ggml_options(tree)) + ".")


def _check_toolkits(definitions: dict[str, str]) -> None:
    """Say in one line that a GPU toolkit is missing, before CMake says it in fifty."""
    if is_on(definitions.get("GGML_CUDA", "OFF")) and "CMAKE_CUDA_COMPILER" not in definitions and not _find_nvcc():
        raise BuildError(
            f"CMAKE_ARGS asks for CUDA (GGML_CUDA={definitions['GGML_CUDA']}), but nvcc isn't found: install "
            "the CUDA toolkit, put nvcc on PATH, or name it in CUDACXX or with -DCMAKE_CUDA_COMPILER."
        )
    if is_on(definitions.get("GGML_HIP", "OFF")) and not (
        shutil.which("hipcc") or shutil.which("hipconfig") or os.environ.get("ROCM_PATH") or Path("/opt/rocm").exists()
    ):
        raise BuildError(
            f"CMAKE_ARGS asks for HIP (GGML_HIP={definitions['GGML_HIP']}), but no ROCm is found: install "
            "it, or name its folder in ROCM_PATH."
        )
    if is_on(definitions.get("GGML_VULKAN", "OFF")) and not (
        shutil.which("glslc") or "Vulkan_GLSLC_EXECUTABLE" in definitions
    ):
        raise BuildError(
            f"CMAKE_ARGS asks for Vulkan (GGML_VULKAN={definitions['GGML_VULKAN']}), but glslc isn't found: "
            "install the Vulkan SDK (Debian and Ubuntu: apt install libvulkan-dev glslc)."
        )


def _find_nvcc() -> bool:
    if os.environ.get("CUDACXX") or shutil.which("nvcc"):
        return True
    for variable in ("CUDA_PATH", "CUDA_HOME", "CUDAToolkit_ROOT"):
        folder = os.environ.get(variable)
        if folder and (Path(folder, "bin", "nvcc").exists() or Path(folder, "bin", "nvcc.exe").exists()):
            return True
    return Path("/usr/local/cuda/bin/nvcc").exists()
