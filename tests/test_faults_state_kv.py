"""Public fault cases of the area state-kv, as users of `Llama` meet them; tests/checkpoint/test_faults.py has parts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamacy import Llama
from llamacy.errors import ContextCreateError, CorruptCheckpointError, MemoryOperationError, StateError
from tests.helpers import data, toy_tokens
from tests.helpers.models import LlamaShape, write_llama
from tests.helpers.process import rss_bytes, run_python

MakeLlama = Callable[..., Llama]
KINDS = ("llama", "gemma3", "mamba", "mamba2", "rwkv7", "qwen35")
# so that texts don't hang on the last bit of a sum
EXACT = {
    "n_threads": 1, "n_threads_batch": 1, "type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled",
}  # fmt: skip
SYSTEM = toy_tokens("you are a careful assistant and answer in one short sentence. ")
QUESTION = toy_tokens("where is the cat")
OTHER = toy_tokens("what does a dog eat")


@pytest.fixture
def make_llama(closing: Callable[[Any], Any]) -> MakeLlama:
    def make(model: Any = "llama", **params: Any) -> Llama:
        path = data(f"{model}.gguf") if isinstance(model, str) else model
        return closing(Llama(path, **({"n_ctx": 256} | EXACT | params)))

    return make


def answer(llama: Llama, prompt: list[int], n: int = 12) -> tuple[str, int]:
    """Return the likeliest continuation, and how many tokens of the prompt were not computed."""
    result = llama(prompt, max_tokens=n, temperature=0)
    return result["choices"][0]["text"], result["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("name", KINDS)
def test_kv_001_states_are_loaded_in_any_order(make_llama: MakeLlama, name: str) -> None:
    llama, cold = make_llama(name), make_llama(name)
    states, expected = [], []
    for prefix in (SYSTEM, OTHER):
        llama.reset()
        answer(llama, prefix)
        states.append(llama.save_state())
        cold.reset()
        answer(cold, prefix)
        expected.append(answer(cold, [*states[-1].prefix.tokens, 265], 24)[0])
    assert expected[0] != expected[1]
    for number in (0, 1, 0, 1, 1, 0):
        llama.load_state(states[number])
        held = states[number].prefix.tokens.tolist()
        assert answer(llama, [*held, 265], 24) == (expected[number], len(held))


@pytest.mark.parametrize("name", ["mamba", "mamba2", "rwkv7", "qwen35"])
@pytest.mark.parametrize("cache", [None, 1 << 24])
def test_kv_003_second_and_unrelated_chats_succeed(make_llama: MakeLlama, name: str, cache: int | None) -> None:
    llama = make_llama(name, n_ctx=512, chat_format="chatml", cache=cache)
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    first = [{"role": "user", "content": "where is the cat"}]
    reply = llama.create_chat_completion(first, **options)["choices"][0]["message"]
    second = [*first, {"role": "assistant", "content": reply["content"]}, {"role": "user", "content": "and the dog"}]
    unrelated = [{"role": "user", "content": "name three birds"}]
    for messages in (second, unrelated, first, second):
        cold = make_llama(name, n_ctx=512, chat_format="chatml")
        expected = cold.create_chat_completion(messages, **options)
        result = llama.create_chat_completion(messages, **options)
        assert result["choices"][0]["message"] == expected["choices"][0]["message"]


def test_kv_005_history_edited_in_the_middle_many_times_is_as_computed_at_once(make_llama: MakeLlama) -> None:
    params: dict[str, Any] = {"n_ctx": 1024, "n_batch": 32, "n_ubatch": 32}
    llama = make_llama("qwen35", checkpoint_interval=32, **params)
    chosen = random.Random(5)
    messages: list[list[int]] = []
    for _ in range(20):
        messages += [[chosen.randrange(261, 287) for _ in range(9)] + [2] for _ in range(2)]
        if len(messages) > 4:
            messages[len(messages) // 2] = toy_tokens("cut.")
        text, n_cached = answer(llama, [token for message in messages for token in message])
    assert n_cached > 0
    prompt = [token for message in messages for token in message]
    cold = make_llama("qwen35", ctx_checkpoints=0, **params)
    assert answer(llama, prompt, 64)[0] == answer(cold, prompt, 64)[0]
    assert answer(cold, prompt)[0] == text


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["state", "disk"])
def test_kv_006_saved_system_prompt_is_reused_by_another_process(
    make_llama: MakeLlama, tmp_path: Path, name: str, how: str
) -> None:
    llama, kept = make_llama(name, cache=tmp_path / "store" if how == "disk" else None), make_llama(name)
    for held in (llama, kept):
        held(SYSTEM, max_tokens=1, temperature=0)
    if how == "state":
        llama.save_state().save(tmp_path / "state")
    expected, n_cached = answer(kept, [*SYSTEM, *QUESTION])
    assert n_cached == len(SYSTEM)
    code = f"""
import json, sys
from llamacy import Llama
params = json.loads(sys.argv[1])
with Llama({str(data(f"{name}.gguf"))!r}, n_ctx=256, **params) as llama:
    if "cache" not in params:
        llama.load_state({str(tmp_path / "state")!r})
    result = llama(json.loads(sys.argv[2]), max_tokens=12, temperature=0)
    print(json.dumps([result["choices"][0]["text"], result["usage"]["prompt_tokens_details"]["cached_tokens"]]))
"""
    params = EXACT | ({"cache": str(tmp_path / "store")} if how == "disk" else {})
    done = run_python(code, json.dumps(params), json.dumps([*SYSTEM, *QUESTION]))
    assert json.loads(done.stdout) == [expected, len(SYSTEM)]


@pytest.mark.parametrize("name", ["mamba", "qwen35", "gemma3"])
def test_kv_008_other_last_sentence_goes_on_from_a_checkpoint(make_llama: MakeLlama, name: str) -> None:
    llama = make_llama(name, n_batch=32, n_ubatch=32, swa_full=False, checkpoint_interval=32)
    assert len(SYSTEM) > 32
    llama([*SYSTEM, 2, *QUESTION], max_tokens=4, temperature=0)
    text, n_cached = answer(llama, [*SYSTEM, 2, *OTHER])
    assert n_cached >= len(SYSTEM)
    cold = make_llama(name, n_batch=32, n_ubatch=32, swa_full=False, ctx_checkpoints=0)
    assert answer(cold, [*SYSTEM, 2, *OTHER]) == (text, 0)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("spoil", ["flip", "cut", "empty"])
def test_kv_009_failed_load_leaves_later_requests_right(
    make_llama: MakeLlama, tmp_path: Path, name: str, spoil: str
) -> None:
    llama, cold = make_llama(name), make_llama(name)
    answer(llama, SYSTEM)
    path = tmp_path / "state"
    llama.save_state().save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes({"flip": content, "cut": content[: len(content) // 2], "empty": b""}[spoil])
    before = llama.context.state.get()
    with pytest.raises(StateError) as raised:
        llama.load_state(path)
    assert isinstance(raised.value, CorruptCheckpointError)
    assert llama.context.state.get() == before
    assert answer(llama, QUESTION)[0] == answer(cold, QUESTION)[0]


@pytest.mark.parametrize("name", KINDS)
def test_kv_011_what_is_told_to_be_restored_is_reused(make_llama: MakeLlama, tmp_path: Path, name: str) -> None:
    llama = make_llama(name)
    llama(SYSTEM, max_tokens=1, temperature=0)
    llama.save_session(tmp_path / "session")
    state = llama.save_state()
    later = make_llama(name)
    n_told = later.load_session(tmp_path / "session")
    assert n_told == len(SYSTEM) == len(state.prefix)
    assert answer(later, [*SYSTEM, *QUESTION[:4]])[1] == n_told
    again = make_llama(name)
    again.load_state(bytes(state))
    assert answer(again, [*SYSTEM, *QUESTION[:4]])[1] == n_told


@pytest.mark.parametrize("name", KINDS)
def test_kv_012_shorter_state_does_not_hide_a_longer_one(make_llama: MakeLlama, name: str) -> None:
    llama = make_llama(name, cache=1 << 24)
    llama(SYSTEM[:20], max_tokens=1, temperature=0)
    short = llama.save_state()
    llama.reset()
    llama(SYSTEM, max_tokens=1, temperature=0)
    llama.reset()
    llama.load_state(short)
    assert answer(llama, [*SYSTEM, *QUESTION[:4]])[1] == len(SYSTEM)


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_kv_013_prompts_that_share_nothing_are_misses(make_llama: MakeLlama, tmp_path: Path, cache: str) -> None:
    llama, cold = make_llama(cache=1 << 24 if cache == "ram" else tmp_path), make_llama()
    for prompt in (SYSTEM, QUESTION[1:], OTHER[2:]):
        cold.reset()
        assert answer(llama, prompt) == (answer(cold, prompt)[0], 0)


def test_kv_015_cache_keeps_to_its_budget_and_memory_does_not_grow(make_llama: MakeLlama) -> None:
    budget = 1 << 20
    llama = make_llama(cache=budget)
    chosen, resident = random.Random(15), 0
    for number in range(200):
        prompt = [chosen.randrange(261, 287) for _ in range(20 + number % 20)]
        llama(prompt, max_tokens=1, temperature=0)
        assert llama.cache is not None
        assert 0 < llama.cache.n_bytes <= budget
        if number == 100:
            resident = rss_bytes()
    assert llama.cache.stats.n_evicted > 100
    assert rss_bytes() - resident < 4 * budget


@pytest.mark.parametrize("swa_full", [False, True])
@pytest.mark.parametrize("how", ["state", "session", "disk"])
def test_kv_017_state_of_a_prompt_of_twice_the_window(
    make_llama: MakeLlama, tmp_path: Path, swa_full: bool, how: str
) -> None:
    llama = make_llama("gemma3", swa_full=swa_full, cache=tmp_path / "store" if how == "disk" else None)
    assert len(SYSTEM) > 2 * llama.model.n_swa
    llama(SYSTEM, max_tokens=1, temperature=0)
    later = make_llama("gemma3", swa_full=swa_full, cache=tmp_path / "store" if how == "disk" else None)
    if how == "state":
        later.load_state(llama.save_state())
    elif how == "session":
        llama.save_session(tmp_path / "session")
        later.load_session(tmp_path / "session")
    prompt = [*SYSTEM, QUESTION[0]]
    text, n_cached = answer(later, prompt, 16)
    assert n_cached == len(SYSTEM)
    assert answer(llama, prompt, 16)[0] == text


@pytest.mark.parametrize(("head", "error"), [(16, ContextCreateError), (32, MemoryOperationError), (64, None)])
@pytest.mark.parametrize(("type_k", "type_v"), [("q4_0", "q8_0"), ("q8_0", "q4_0"), ("q8_0", "q8_0")])
def test_kv_019_shift_of_quantized_cache_works_or_is_refused_at_once(
    make_llama: MakeLlama, model_dir: Path, head: int, error: type[Exception] | None, type_k: str, type_v: str
) -> None:
    shape = LlamaShape(n_vocab=288, n_layer=2, n_embd=2 * head, n_head=2, n_head_kv=2)
    path = write_llama(model_dir / f"heads-of-{head}.gguf", shape)
    params: dict[str, Any] = {"n_ctx": 128, "type_k": type_k, "type_v": type_v, "flash_attn_type": "enabled"}
    if error is not None:
        with pytest.raises(error):
            make_llama(path, context_shift=True, **params)
        return
    llama = make_llama(path, context_shift=True, **params)
    result = llama(SYSTEM, max_tokens=400, temperature=0, ignore_eos=True)
    assert result["usage"]["completion_tokens"] == 400


@pytest.mark.parametrize(
    ("name", "params"), [("qwen35", {}), ("gemma3", {"swa_full": False}), ("llama", {"type_k": "bf16"})]
)
def test_kv_020_memory_that_can_not_shift_says_so_or_ends(
    make_llama: MakeLlama, name: str, params: dict[str, Any]
) -> None:
    # a window is smaller than a context of this size
    with pytest.raises(MemoryOperationError, match="context_shift"):
        make_llama(name, n_ctx=4096, context_shift=True, **params)
    result = make_llama(name, n_ctx=64, **params)(QUESTION, max_tokens=200, temperature=0, ignore_eos=True)
    assert result["choices"][0]["finish_reason"] == "length"
    assert result["usage"]["total_tokens"] == 64


@pytest.mark.parametrize("max_tokens", [-1, None])
@pytest.mark.parametrize("n_keep", [60, 62, -1])
def test_kv_022_shifts_of_a_small_context_come_to_an_end(
    make_llama: MakeLlama, n_keep: int, max_tokens: int | None
) -> None:
    llama = make_llama(n_ctx=64, context_shift=True, n_keep=n_keep)
    result = llama(SYSTEM[:60], max_tokens=max_tokens, temperature=0, ignore_eos=True)
    assert result["choices"][0]["finish_reason"] == "length"
    assert result["usage"]["completion_tokens"] == llama.model.n_ctx_train
