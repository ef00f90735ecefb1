"""LoRA adapters and control vectors on the command line, against `Llama` in this process."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from llamacy import Llama
from tests.helpers import data, models

from .conftest import Run, one_error_line

MODEL = data("target.gguf")
TINY = ("--model", str(MODEL), "-t", "1", "-n", "8", "--temp", "0")
UTF8 = {"PYTHONIOENCODING": "utf-8"}


@pytest.fixture(scope="module")
def loras(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters whose files have the same name."""
    folders = [tmp_path_factory.mktemp("lora") for _ in range(2)]
    return [models.write_lora(folder / "a.gguf", MODEL, seed=seed, alpha=40) for seed, folder in enumerate(folders, 20)]


@pytest.fixture(scope="module")
def vector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.write_control_vector(tmp_path_factory.mktemp("vector") / "v.gguf", MODEL, scale=2.0)


def completion(loras: list[tuple[Path, float]], vector: tuple[Path, float] | None = None) -> str:
    with Llama(MODEL, n_threads=1, n_threads_batch=1) as llm:
        for number, (path, scale) in enumerate(loras):
            llm.load_lora(path, name=str(number), scale=scale)
        if vector is not None:
            llm.set_control_vector(*vector)
        return llm("hello", max_tokens=8, temperature=0)["choices"][0]["text"]


def test_generate_applies_adapters_at_their_scales(run: Run, loras: list[Path], vector: Path) -> None:
    one, other = loras
    cases = {
        (f"--lora={one}",): completion([(one, 1.0)]),
        (f"--lora={one}:-0.5",): completion([(one, -0.5)]),
        ("--lora", f"{one}:0.5", "--lora", f"{other}:2"): completion([(one, 0.5), (other, 2.0)]),
        ("--control-vector", str(vector)): completion([], (vector, 1.0)),
        (f"--control-vector={vector}:-1e0", f"--lora={one}"): completion([(one, 1.0)], (vector, -1.0)),
    }
    assert len({completion([]), *cases.values()}) == len(cases) + 1
    for options, expected in cases.items():
        assert run("generate", "hello", *TINY, *options, env=UTF8).stdout.decode() == expected + "\n"


def test_chat_applies_adapters(run: Run, loras: list[Path], vector: Path) -> None:
    command = ("chat", "hello", *TINY, "--chat-format", "chatml")
    with Llama(MODEL, n_threads=1, n_threads_batch=1, chat_format="chatml", lora_path=loras[0], lora_scale=2) as llm:
        llm.set_control_vector(vector, 0.5)
        chat = llm.create_chat_completion([{"role": "user", "content": "hello"}], max_tokens=8, temperature=0)
    done = run(*command, f"--lora={loras[0]}:2", f"--control-vector={vector}:0.5", env=UTF8)
    assert done.stdout.decode() == chat["choices"][0]["message"]["content"] + "\n"
    assert done.stdout != run(*command, env=UTF8).stdout


def test_colon_may_belong_to_the_name_of_a_file(run: Run, loras: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "a:3"
    path.write_bytes(loras[0].read_bytes())
    for option, scale in ((f"{path}", 1.0), (f"{path}:0.5", 0.5)):
        done = run("generate", "hello", *TINY, "--lora", option, env=UTF8)
        assert done.stdout.decode() == completion([(loras[0], scale)]) + "\n"


@pytest.mark.parametrize("option", ["--lora", "--control-vector"])
def test_what_is_no_adapter_is_told_in_one_line(run: Run, option: str, tmp_path: Path) -> None:
    for command in ("generate", "chat"):
        template = ("--chat-format", "chatml") if command == "chat" else ()
        for value in (tmp_path / "nowhere.gguf", f"{tmp_path / 'nowhere.gguf'}:0.5", MODEL):
            message = one_error_line(run(command, "hello", *TINY, *template, option, str(value), check=False))
            assert str(value).removesuffix(":0.5") in message


@pytest.mark.parametrize("kind", ["adapter", "model"])
def test_reason_of_llama_cpp_is_told(run: Run, tmp_path: Path, kind: str) -> None:
    # the words are those of src/llama-adapter.cpp
    key, value = {"adapter": ("adapter.type", "other"), "model": ("general.type", "model")}[kind]
    path = typed_gguf(tmp_path / "typed.gguf", {"general.type": "adapter", key: value})
    wanted = {"adapter": "expect adapter.type to be 'lora', but got: other"}.get(
        kind, "expect general.type to be 'adapter', but got: model"
    )
    assert one_error_line(run("generate", "hello", *TINY, "--lora", str(path), check=False)).endswith(wanted)


def typed_gguf(path: Path, strings: dict[str, str]) -> Path:
    """Write a GGUF file with nothing but texts as metadata, by the format's description."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    strings = {"general.architecture": "qwen3", **strings}
    pairs = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in strings.items())
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(strings)) + pairs)
    return path


@pytest.mark.parametrize("option", ["--lora", "--control-vector"])
def test_what_is_behind_the_colon_is_a_scale(run: Run, loras: list[Path], option: str) -> None:
    for path in ("poems.gguf", "Poems.GGUF", str(loras[0]), __file__):
        for last in ("x", "", "1,5", "0.5x"):
            done = run("generate", "hello", *TINY, option, f"{path}:{last}", check=False)
            assert f"what is behind the colon is the scale, a number, not {last!r}" in one_error_line(done, 2)


@pytest.mark.parametrize("value", ["a.gguf:nan", "a.gguf:inf", ":0.5"])
def test_scale_that_is_none_is_a_usage_error(run: Run, value: str) -> None:
    done = run("generate", "hello", *TINY, "--lora", value, check=False)
    assert done.returncode == 2
    assert b"FILE[:SCALE]" in done.stderr
    assert done.stdout == b""
