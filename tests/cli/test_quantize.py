"""`llamacy quantize`: the new file against the gguf package."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from tests.helpers import data

from .conftest import Run, one_error_line

SOURCE = str(data("target.gguf"))


def types_of(path: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}


def test_file_has_the_type_asked_for(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "new.gguf"
    done = run("quantize", SOURCE, str(target), "q8_0", "-t", "1", "-q")
    assert done.stdout.decode().strip() == str(target)
    assert types_of(target)["blk.0.attn_q.weight"] == "Q8_0"
    assert "%" in done.stderr.decode()


def test_file_that_is_there_needs_force(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "new.gguf"
    target.write_bytes(b"mine")
    assert "--force" in one_error_line(run("quantize", SOURCE, str(target), "Q8_0", "-q", check=False))
    assert target.read_bytes() == b"mine"
    run("quantize", SOURCE, str(target), "Q8_0", "-q", "-t", "1", "--force")
    assert types_of(target)["blk.0.attn_q.weight"] == "Q8_0"


def test_dry_run_lists_types_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    done = run("quantize", SOURCE, str(tmp_path / "new.gguf"), "Q8_0", "--dry-run", "-t", "1")
    shown = dict(line.split() for line in done.stdout.decode().splitlines()[1:])
    assert shown["blk.0.attn_q.weight"] == "Q8_0"
    assert list(tmp_path.glob("*.gguf")) == []


def test_tensor_type_and_overrides_are_used(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "new.gguf"
    run(
        *("quantize", SOURCE, str(target), "Q8_0", "-t", "1", "-q"),
        *("--tensor-type", r"attn_q\.weight=f16", "--token-embedding-type", "f16"),
        *("--override-kv", "general.name=str:renamed", "--override-kv", "test.flag=bool:true"),
    )
    types = types_of(target)
    assert types["blk.0.attn_q.weight"] == "F16"
    assert types["token_embd.weight"] == "F16"
    assert types["blk.0.attn_k.weight"] == "Q8_0"
    fields = gguf.GGUFReader(target).fields
    assert fields["general.name"].contents() == "renamed"
    assert fields["test.flag"].contents() is True


def test_bar_is_shown_unless_quiet(run: Run, tmp_path: Path) -> None:
    done = run("quantize", SOURCE, str(tmp_path / "new.gguf"), "Q8_0", "-t", "1")
    assert "tensor" in done.stderr.decode()
    assert "100%" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Q9"], "there is no type 'Q9'"),
        (["Q8_0", "--token-embedding-type", "q4_k"], "multiple of 256"),
        (["Q8_0", "--copy", "--pure"], "--copy keeps all types"),
        (["Q8_0", "--leave-output-tensor", "--output-tensor-type", "f16"], "together with --leave-output-tensor"),
        (["Q8_0", "--prune-layers", "99"], "a layer of --prune-layers must be from 0 to "),
        (["F16", "--tensor-type", "attn_q=q8_0"], "--tensor-type has no effect"),
        (["Q8_0", "--tensor-type", "only_copy=i32"], "--tensor-type['only_copy']: "),
        (["Q8_0", "--imatrix", "no-such-file"], "no-such-file"),
    ],
)
def test_what_cannot_be_is_one_line(run: Run, tmp_path: Path, arguments: list[str], expected: str) -> None:
    done = run("quantize", SOURCE, str(tmp_path / "new.gguf"), *arguments, "-t", "1", check=False)
    assert expected in one_error_line(done)
    assert list(tmp_path.glob("*.gguf")) == []


def test_quantized_again_needs_permission(run: Run, tmp_path: Path) -> None:
    run("quantize", SOURCE, str(tmp_path / "a.gguf"), "Q8_0", "-q", "-t", "1")
    again = ("quantize", str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf"), "Q4_0", "-t", "1")
    message = one_error_line(run(*again, check=False))
    assert "--allow-requantize" in message
    assert "allow_requantize" not in message
    run(*again, "--allow-requantize")
    assert types_of(tmp_path / "b.gguf")["blk.0.attn_q.weight"] == "Q4_0"
