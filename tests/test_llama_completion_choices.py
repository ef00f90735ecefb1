"""Several choices and several prompts at once: each is what its seed gives alone."""

from __future__ import annotations

import pytest

from llamacy.errors import InUseError
from llamacy.generate.slots import Slots
from llamacy.llama import Llama
from tests.helpers import data, toy_tokens

KINDS = ("llama", "gemma3", "mamba", "rwkv7", "qwen35")
F32 = {"type_k": "f32", "type_v": "f32", "flash_attn_type": "disabled"}
# far from ties that the order of additions could decide: the tiny models are sharp enough at this temperature
WARM = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
PROMPTS = ["the cat sat", "a dog. it ran away from all of us", "x"]


@pytest.fixture
def make_llama(closing):
    def make(name="llama", **params):
        return closing(Llama(data(f"{name}.gguf"), **{"n_ctx": 256, "n_threads": 1, "n_threads_batch": 1} | params))

    return make


def texts_of(result):
    return [choice["text"] for choice in result["choices"]]


def streamed(chunks):
    """Return the texts and finish reasons of streamed choices by their index."""
    texts, reasons = {}, {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            assert index not in reasons, "a choice went on after its end"
            texts[index] = texts.get(index, "") + choice["text"]
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
    return [texts[index] for index in sorted(texts)], [reasons[index] for index in sorted(reasons)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "params",
    [{}, {"n_seq_max": 2}, {"n_seq_max": 4}, {"n_seq_max": 4, "kv_unified": False, "n_ctx": 1024}],
    ids=["1", "2", "4", "4-apart"],
)
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {**WARM, "seed": 5}], ids=["greedy", "warm"])
def test_each_choice_is_what_its_seed_gives_alone(make_llama, name, params, sampling):
    alone = make_llama(name, **F32)
    seeds = [{**sampling, "seed": sampling["seed"] + i} if "seed" in sampling else sampling for i in range(3)]
    expected = [
        alone(prompt, max_tokens=12, cache_prompt=False, **seed)["choices"][0] for prompt in PROMPTS for seed in seeds
    ]
    llama = make_llama(name, **F32, **params)
    llama("something that was there before", max_tokens=5)
    result = llama(PROMPTS, n=3, max_tokens=12, **sampling)
    assert texts_of(result) == [choice["text"] for choice in expected]
    assert [choice["finish_reason"] for choice in result["choices"]] == [c["finish_reason"] for c in expected]
    assert [choice["index"] for choice in result["choices"]] == list(range(9))
    assert result["usage"]["prompt_tokens"] == sum(len(toy_tokens(prompt)) for prompt in PROMPTS)
    texts, reasons = streamed(llama(PROMPTS, n=3, max_tokens=12, stream=True, **sampling))
    assert texts == texts_of(result)
    assert reasons == [choice["finish_reason"] for choice in result["choices"]]


@pytest.mark.parametrize("n", [2, 4])
def test_choices_run_in_waves_where_the_room_is_small(make_llama, n):
    llama = make_llama(n_ctx=64, n_seq_max=4, **F32)
    alone = make_llama(n_ctx=64, **F32)
    prompt = [1] + [265 + index % 20 for index in range(30)]
    expected = [
        alone(prompt, max_tokens=30, cache_prompt=False, seed=9 + index, **WARM)["choices"][0] for index in range(n)
    ]
    result = llama(prompt, n=n, max_tokens=30, seed=9, **WARM)
    assert texts_of(result) == [choice["text"] for choice in expected]
    # max_tokens=None: each may take all of the room
    result = llama(prompt, n=n, max_tokens=None, seed=9, **WARM)
    assert len(result["choices"]) == n
    assert all(choice["finish_reason"] for choice in result["choices"])


def test_sequences_that_hold_other_texts_give_way(make_llama):
    llama = make_llama(n_seq_max=2, **F32)
    alone = make_llama(**F32)
    longer = [265 + index % 20 for index in range(200)]
    llama([[266] * 30, longer], max_tokens=4, temperature=0)
    prompt = [270 + index % 10 for index in range(100)]
    expected = texts_of(alone(prompt, max_tokens=40, temperature=0)) * 2
    assert texts_of(llama(prompt, n=2, max_tokens=40, temperature=0)) == expected


def test_shared_prompts_of_one_request_are_computed_once_each(make_llama):
    llama = make_llama(n_seq_max=4, n_batch=64, **F32)
    prompts = [toy_tokens("the cat sat on the mat"), toy_tokens("dogs")]
    epoch = llama.context.epoch
    llama(prompts, n=2, max_tokens=0)
    # one decode for each prompt, and one for the last tokens of all
    assert llama.context.epoch - epoch == 3


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("n_seq_max", [1, 3])
def test_short_prompt_of_several_choices(make_llama, length, n_seq_max):
    llama = make_llama(n_seq_max=n_seq_max, **F32)
    prompt = [1, 265][:length]
    expected = texts_of(make_llama(**F32)(prompt, max_tokens=6, temperature=0))
    assert texts_of(llama(prompt, n=3, max_tokens=6, temperature=0)) == expected * 3


def test_best_of_returns_the_likeliest_choices(make_llama):
    llama = make_llama(n_seq_max=4, **F32)
    options = {"max_tokens": 6, "seed": 3, **WARM, "temperature": 1.5}
    made = llama(PROMPTS[:2], n=4, logprobs=0, **options)["choices"]
    best = llama(PROMPTS[:2], n=2, best_of=4, **options)
    for at in range(2):
        choices = made[4 * at : 4 * at + 4]
        means = {
            choice["text"]: sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["tokens"])
            for choice in choices
        }
        expected = sorted(means, key=means.__getitem__, reverse=True)[:2]
        assert texts_of(best)[2 * at : 2 * at + 2] == expected
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert all(choice["logprobs"] is None for choice in best["choices"])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n": 0}, "n must be from 1"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"n": 1, "best_of": 2, "stream": True}, "stream=True"),
    ],
)
def test_wrong_numbers_of_choices_raise(make_llama, options, error):
    with pytest.raises(ValueError, match=error):
        make_llama()("x", max_tokens=1, **options)


def test_choices_of_a_stream_come_side_by_side(make_llama):
    llama = make_llama(n_seq_max=2, **F32)
    order = [chunk["choices"][0]["index"] for chunk in llama(PROMPTS[0], n=2, max_tokens=8, temperature=0, stream=True)]
    assert 1 in order[:3]
    assert order.count(0) == order.count(1)


@pytest.mark.parametrize("n_done", [0, 1])
def test_later_request_takes_over_for_good(make_llama, n_done):
    # also when the one before stands between two of its waves
    llama = make_llama(**F32)
    stream = llama(PROMPTS[0], n=2, max_tokens=4, temperature=0, stream=True)
    while n_done:
        n_done -= next(stream)["choices"][0]["finish_reason"] is not None
    later = llama(PROMPTS[1], max_tokens=4, temperature=0, stream=True)
    next(later)
    with pytest.raises(InUseError, match="later request"):
        list(stream)
    assert streamed(later)[1] == ["length"]


def test_streams_of_two_models_interleave(make_llama):
    one, two = make_llama(**F32), make_llama("rwkv7", **F32)
    expected = [texts_of(llama(PROMPTS[0], max_tokens=12, temperature=0))[0] for llama in (one, two)]
    streams = [llama(PROMPTS[0], max_tokens=12, temperature=0, stream=True) for llama in (one, two)]
    texts = ["", ""]
    for chunks in zip(*streams, strict=False):
        for at, chunk in enumerate(chunks):
            texts[at] += chunk["choices"][0]["text"]
    for at, stream in enumerate(streams):
        texts[at] += "".join(chunk["choices"][0]["text"] for chunk in stream)
    assert texts == expected


@pytest.mark.parametrize("n_seq_max", [1, 3])
def test_many_choices_are_not_all_looked_at_for_each_of_them(closing, monkeypatch, n_seq_max):
    llama = closing(Llama(data("llama.gguf"), n_ctx=64, n_seq_max=n_seq_max, n_threads=1, n_threads_batch=1))
    looked_at = []

    def n_fitting(slots, jobs, right=Slots.n_fitting):
        looked_at.append(len(jobs))
        return right(slots, jobs)

    monkeypatch.setattr(Slots, "n_fitting", n_fitting)
    result = llama("a", n=200, max_tokens=1)
    assert [choice["index"] for choice in result["choices"]] == list(range(200))
    assert max(looked_at) <= n_seq_max


@pytest.mark.parametrize("name", ["n", "best_of"])
def test_more_choices_than_memory_is_for_are_refused(closing, name):
    llama = closing(Llama(data("llama.gguf"), n_ctx=64, n_threads=1, chat_format="chatml"))
    with pytest.raises(ValueError, match=f"{name} must be at most 65536, not 1000000000"):
        llama("a", **{name: 10**9})
    with pytest.raises(ValueError, match="n must be at most"):
        llama.create_chat_completion([{"role": "user", "content": "a"}], n=10**9)
