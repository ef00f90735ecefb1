"""`llamacy devices` and `llamacy bench`."""

from __future__ import annotations

import json

from llamacy import Llama
from llamacy.cli.bench import random_tokens, run_llama
from tests.helpers import data

from .conftest import Run, one_error_line


def test_devices_lists_the_cpu(run: Run) -> None:
    out = run("devices").stdout.decode()
    assert out.splitlines()[0].split()[:3] == ["DEVICE", "TYPE", "BACKEND"]
    assert "CPU backend:" in out


def test_devices_json_has_memory_and_features(run: Run) -> None:
    shown = json.loads(run("devices", "--json").stdout)
    cpu = next(device for device in shown["devices"] if device["type"] == "CPU")
    assert cpu["memory_total"] > 0
    assert "CPU" in shown["backends"]


def test_bench_prints_both_loops(run: Run) -> None:
    done = run("bench", "-m", str(data("target.gguf")), "-t", "1", "-p", "16", "-n", "8", "-r", "1")
    lines = done.stdout.decode().splitlines()
    assert lines[1].split() == ["TOKENS", "LLAMA", "tok/s", "CORE", "tok/s", "RATIO"]
    assert lines[2].startswith("prompt 16 ")
    assert lines[3].startswith("generation 8 ")
    assert all(float(number) > 0 for line in lines[2:] for number in line.split()[2:])


def test_bench_computes_the_prompt_in_each_run() -> None:
    with Llama(data("target.gguf"), n_ctx=64, n_threads=1, n_threads_batch=1) as llama:
        prompt = random_tokens(llama.n_vocab(), 16)
        for _ in range(3):
            run_llama(llama, prompt, 2)
        assert (llama.stats.n_prompt, llama.stats.n_saved) == (48, 0)


def test_bench_context_too_small_is_one_line(run: Run) -> None:
    done = run("bench", "-m", str(data("target.gguf")), "-p", "64", "-n", "8", "-c", "16", check=False)
    assert "--ctx-size 16 has no room" in one_error_line(done)
