"""The installed wheel: what is in it, that it works anywhere, and Cython code of users compiled against it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cimport.conftest import Installation
from tests.helpers import REPO, data, toy_tokens
from tests.helpers.reference import Reference

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(1800)]


def test_wheel_has_what_a_user_needs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"llamacy"}
    for source in (REPO / "src" / "llamacy").rglob("*"):
        name = source.relative_to(REPO / "src").as_posix()
        if source.suffix == ".pyx":
            stem = name.removesuffix(".pyx")
            assert [n for n in names if n.startswith(stem + ".") and n.endswith((".so", ".pyd"))], (
                f"{name} is not built"
            )
        elif source.suffix in (".py", ".pyi", ".pxd") or source.name == "py.typed":
            assert name in names, f"{name} is missing"
    assert [name for name in names if name.startswith("llamacy/_lib/")]
    assert "llamacy/include/llama.h" in names
    assert "llamacy/include/llama-ext.h" in names


def test_ib_006_imports_and_runs_in_odd_folder_with_empty_environment(
    installation: Installation, tmp_path: Path
) -> None:
    code = (
        "import sys; from llamacy import Model; m = Model(sys.argv[1]);"
        "print(m.vocab.detokenize(m.vocab.tokenize('hello'), remove_special=True).decode());"
        "print(__import__('llamacy').__file__)"
    )
    copy = tmp_path / "a model.gguf"
    shutil.copy(data("llama.gguf"), copy)
    # isolated: neither the working directory nor any variable leads to this checkout
    output = installation.run("-I", "-c", code, copy, cwd=tmp_path, env={"LD_LIBRARY_PATH": "", "PATH": ""})
    assert output.split()[0] == "hello"
    assert str(installation.folder) in output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_LIBRARY_PATH")
def test_ib_006_copies_in_the_library_path_are_not_taken(installation: Installation, tmp_path: Path) -> None:
    for name in ("llama", "ggml", "ggml-base"):
        (tmp_path / f"libllamacy-{name}.so").write_bytes(b"another copy")
    code = "import llamacy; print(llamacy.system_info())"
    output = installation.run("-I", "-c", code, cwd=tmp_path, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert output.startswith("CPU")


def test_every_public_name_loads_from_the_wheel(installation: Installation) -> None:
    installation.run("-I", "-c", "import llamacy; [getattr(llamacy, name) for name in llamacy.__all__]")


def result_of(installation: Installation, consumers: Path, script: str, tmp_path: Path, prompt: list[int]) -> Any:
    """Return what a script among the consumers prints for a model and a prompt."""
    copy = tmp_path / "target.gguf"
    shutil.copy(data("target.gguf"), copy)
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    output = installation.run("-I", "-c", code, consumers, consumers / script, copy, json.dumps(prompt), cwd=tmp_path)
    return json.loads(output.splitlines()[-1])


def test_functions_on_rows_rule_what_is_written(installation: Installation, consumers: Path, tmp_path: Path) -> None:
    prompt = toy_tokens("the cat")
    result = result_of(installation, consumers, "use_rows.py", tmp_path, prompt)
    # from the letter after "t" on, until the text has so many tokens
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    expected = [alphabet[(alphabet.index("u") + number) % 26] for number in range(30)]
    assert result["text"] == "".join(expected)
    assert result["tokens"] == [261 + alphabet.index(letter) for letter in expected]
    assert result["reason"] == "stop"
    assert result["n_stopped"] == 1
    assert result["seen"] == [[0, 0], [5, 288]]


def test_consumers_give_what_the_reference_says(installation: Installation, consumers: Path, tmp_path: Path) -> None:
    prompt = toy_tokens("the cat")
    result = result_of(installation, consumers, "use.py", tmp_path, prompt)
    reference = Reference(data("target.gguf"))
    expected = reference.greedy(prompt, 12)
    assert result["generated"] == expected
    logits = reference.logits(prompt + expected)[len(prompt) - 1 :]
    np.testing.assert_allclose(result["total"], logits.sum(), atol=3e-2 * len(logits))
    assert result["facts"] == ["qwen3", 256, 288]
    assert result["errors"] == ["InvalidBatchError", "TypeError", "TypeError", "ClosedError"]
    assert result["raw"][0] == 288
    np.testing.assert_allclose(result["raw"][1], logits[0].sum(), atol=3e-1)
    assert result["home"].startswith(str(installation.folder))


def test_consumer_through_classes_links_no_native_library(installation: Installation, consumers: Path) -> None:
    if not sys.platform.startswith("linux") or not shutil.which("readelf"):
        pytest.skip("no readelf")
    from tests.cimport.conftest import run

    (module,) = consumers.glob("through_classes*.so")
    needed = run("readelf", "-d", module, cwd=consumers)
    assert "llama" not in needed
    assert "ggml" not in needed


def test_ib_008_missing_library_is_named(installation: Installation, tmp_path: Path) -> None:
    library = Path(installation.run("-I", "-c", "import llamacy; print(llamacy.get_library_dir())").strip())
    (victim,) = library.glob("libllamacy-llama.*")
    hidden = tmp_path / victim.name
    shutil.move(victim, hidden)
    try:
        output = installation.run(
            "-I",
            "-c",
            "import llamacy\ntry:\n    llamacy.Model\nexcept ImportError as error:\n    print(error)",
        )
    finally:
        shutil.move(hidden, victim)
    assert victim.name in output


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_installed_files_are_readable_by_all(installation: Installation) -> None:
    home = Path(installation.run("-I", "-c", "import llamacy; print(llamacy.__path__[0])").strip())
    for path in home.rglob("*"):
        assert path.stat().st_mode & 0o444 == 0o444, path
