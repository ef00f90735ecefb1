"""What a caller may give: names, spellings, prompts of every shape, and an object that is pickled."""

from __future__ import annotations

import array
import json
import pickle

import numpy as np
import pytest

from llamacy.errors import ContextCreateError
from llamacy.llama import Llama
from llamacy.types import FlashAttnType, LoadMode
from tests.helpers import data, toy_tokens

ONE = {"n_threads": 1, "n_threads_batch": 1}
IDS = toy_tokens("the cat")


@pytest.fixture
def llama(closing):
    return closing(Llama(data("llama.gguf"), n_ctx=128, **ONE))


def texts_of(result):
    return [choice["text"] for choice in result["choices"]]


@pytest.mark.parametrize(
    "prompt",
    [
        "the cat", b"the cat", IDS, tuple(IDS), array.array("i", IDS), array.array("q", IDS), np.array(IDS),
        np.array(IDS, np.int32), np.array(IDS, np.uint16), iter(IDS), list(np.array(IDS)),
        memoryview(array.array("i", IDS)),
    ],
    ids=lambda prompt: type(prompt).__name__,
)  # fmt: skip
def test_prompt_of_any_shape_is_the_same(llama, prompt):
    expected = texts_of(llama(IDS, max_tokens=8, temperature=0))
    result = llama(prompt, max_tokens=8, temperature=0)
    assert texts_of(result) == expected
    assert result["usage"]["prompt_tokens"] == len(IDS)


@pytest.mark.parametrize(
    "prompts",
    [
        ["the cat", b"the cat"], ("the cat", IDS), [IDS, IDS], [np.array(IDS), np.array(IDS)],
        np.array([IDS, IDS]), [array.array("i", IDS), tuple(IDS)],
    ],
    ids=lambda prompts: f"{type(prompts).__name__}-{type(prompts[0]).__name__}",
)  # fmt: skip
def test_several_prompts_of_any_shape(llama, prompts):
    expected = texts_of(llama(IDS, max_tokens=8, temperature=0))
    result = llama(prompts, max_tokens=8, temperature=0)
    assert texts_of(result) == expected * 2
    assert result["usage"]["prompt_tokens"] == 2 * len(IDS)


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        (None, TypeError), (5, TypeError), (1.5, TypeError), ([], ValueError), ([[]], ValueError), ([1.5], TypeError),
        (["a", 5], TypeError), ([5, "a"], TypeError), ([None], TypeError), (np.zeros(0, np.int32), ValueError),
        (np.array([1.0, 2.0]), TypeError), (np.array(5), TypeError), ([-1], ValueError), ([288], ValueError),
        ([2**31], ValueError), ([-(2**70)], ValueError), (bytearray(b"x"), TypeError), ("\udc80", ValueError),
        (["ok", "\ud800"], ValueError), ({}, ValueError),
    ],
)  # fmt: skip
def test_what_is_no_prompt_raises_and_computes_nothing(llama, prompt, error):
    with pytest.raises(error):
        llama(prompt, max_tokens=1)
    assert llama.context.epoch == 0


def test_bytes_that_are_no_text_are_taken_as_they_are(llama):
    result = llama(b"a\xff\xfeb", max_tokens=0, echo=True)
    assert result["choices"][0]["text"] == "a\ufffd\ufffdb"
    tokens = llama._engine.slots._sequences[0].tokens
    assert llama.detokenize(tokens[1:]) == b"a\xff\xfeb"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("temprature", "temperature"), ("max_token", "max_tokens"), ("stops", "stop"), ("logit_biases", "logit_bias"),
        ("logits_processors", "logits_processor"), ("stopping_criterion", "stopping_criteria"),
        ("timeout", "timeout_s"),
        ("bestof", "best_of"),
    ],
)  # fmt: skip
def test_unknown_option_names_the_nearest(llama, name, nearest):
    for call in (lambda: llama("x", **{name: 1}), lambda: llama.create_completion("x", stream=True, **{name: 1})):
        with pytest.raises(TypeError, match=f"no option '{name}'; did you mean '{nearest}'"):
            call()


def test_option_under_two_names_raises(llama):
    with pytest.raises(TypeError, match="twice"):
        llama("x", presence_penalty=0.5, present_penalty=0.5)


@pytest.mark.parametrize(
    ("name", "nearest"), [("n_gpu_layer", "n_gpu_layers"), ("nctx", "n_ctx"), ("flash_atn", "flash_attn")]
)
def test_unknown_parameter_of_the_constructor_raises(name, nearest):
    with pytest.raises(TypeError, match=nearest):
        Llama(data("llama.gguf"), **{name: 1}, **ONE)


@pytest.mark.parametrize(
    ("given", "where", "name", "value"),
    [
        ({"flash_attn": False}, "context", "flash_attn_type", FlashAttnType.DISABLED),
        ({"flash_attn": True}, "context", "flash_attn_type", FlashAttnType.ENABLED),
        ({"use_mmap": False}, "model", "load_mode", LoadMode.NONE),
        ({"use_mmap": True}, "model", "load_mode", LoadMode.MMAP),
        ({"use_mmap": False, "use_mlock": False}, "model", "load_mode", LoadMode.NONE),
        ({"use_direct_io": True}, "model", "load_mode", LoadMode.DIRECT_IO),
    ],
)
def test_spelling_of_other_bindings_means_what_it_says(closing, given, where, name, value):
    llama = closing(Llama(data("llama.gguf"), n_ctx=64, **given, **ONE))
    assert getattr(llama, where).params.values[name] == value
    assert llama("x", max_tokens=1)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"embedding": True, "embeddings": True}, TypeError),
        ({"use_mmap": True, "load_mode": LoadMode.MMAP}, TypeError),
        ({"flash_attn": True, "flash_attn_type": "auto"}, TypeError),
        ({"lora_base": "x"}, ValueError),
        ({"rpc_servers": "x"}, ValueError),
        ({"mul_mat_q": True}, ValueError),
    ],
)
def test_spelling_that_means_nothing_or_twice_raises(given, error):
    with pytest.raises(error):
        Llama(data("llama.gguf"), n_ctx=64, **given, **ONE)


def test_logits_all_makes_no_difference(closing):
    llama = closing(Llama(data("llama.gguf"), n_ctx=64, logits_all=True, **ONE))
    assert len(llama("x", max_tokens=3, logprobs=1, temperature=0)["choices"][0]["logprobs"]["tokens"]) == 3


def test_pickle_preserves_every_argument(closing, lora_path):
    arguments = {
        "n_ctx": 64, "n_batch": 48, "n_ubatch": 16, "n_threads": 1, "n_threads_batch": 2, "seed": 7,
        "context_shift": True,
        "n_keep": 3, "chat_format": "chatml", "chat_template": None, "chat_template_name": None, "spm_infill": True,
        "lora_path": str(lora_path), "lora_scale": 0.5, "verbose": False, "n_seq_max": 2,
        "type_k": "f32", "type_v": "f32",
        "embedding": True, "use_mmap": False, "n_gpu_layers": 0, "rope_freq_base": 5000.0,
        "cache": 1 << 20, "ctx_checkpoints": 3, "checkpoint_interval": 64, "checkpoint_on_device": False,
    }  # fmt: skip
    llama = closing(Llama(data("llama.gguf"), **arguments))
    again = closing(pickle.loads(pickle.dumps(llama)))
    assert again._arguments == llama._arguments == arguments
    assert again.context.params.values == llama.context.params.values
    assert again.model.params.values == llama.model.params.values
    options = {"max_tokens": 80, "temperature": 1.5}
    assert texts_of(again("the cat", **options)) == texts_of(llama("the cat", **options))
    assert [scale for _, scale in again.context.adapters_lora] == [0.5]


def test_pickle_of_a_model_that_was_handed_in_raises(closing, llama_model):
    llama = closing(Llama(llama_model, n_ctx=64, **ONE))
    with pytest.raises(TypeError, match="handed in"):
        pickle.dumps(llama)


def test_constructor_that_fails_late_leaves_nothing_open():
    for wrong in ({"n_keep": -2}, {"n_keep": 1.5}, {"lora_path": "nowhere.gguf"}, {"chat_format": "no such"}):
        with pytest.raises((ValueError, TypeError, OSError)):
            Llama(data("llama.gguf"), n_ctx=64, **wrong, **ONE)
    with pytest.raises((ContextCreateError, ValueError)):
        Llama(data("llama.gguf"), n_ctx=64, n_batch=2, n_ubatch=2, n_seq_max=4, **ONE)


def test_name_of_the_model_in_the_response(llama):
    assert llama("x", max_tokens=1)["model"]
    assert llama("x", max_tokens=1, model="mine")["model"] == "mine"


@pytest.mark.parametrize("apart", [False, True])
def test_usage_of_a_stream(llama, apart):
    options = {"include_usage": True} if apart else None
    chunks = list(llama("x", max_tokens=3, temperature=0, stream=True, stream_options=options))
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert with_usage == chunks[-1:]
    assert (chunks[-1]["choices"] == []) == apart
    with pytest.raises(TypeError, match="include_usage"):
        llama("x", stream=True, stream_options={"other": 1})


# most values of another type would turn a switch on, "false" among them
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, wrong) for name in ("echo", "stream", "cache_prompt", "truncate_prompt", "grammar_first")
          for wrong in ("no", 1, [])),
        *(("timeout_s", wrong) for wrong in ("1", True, [1])), ("model", 5), ("model", b"a"),
        ("stream_options", "include_usage"), ("stream_options", 5), ("stop", b"a"), ("stop", bytearray(b"a")),
    ],
)  # fmt: skip
def test_option_of_the_wrong_type_is_named_and_computes_nothing(llama, name, wrong):
    epoch = llama.context.epoch
    with pytest.raises(TypeError, match=f"{name} must be "):
        llama(IDS, **{"stream_options": None, name: wrong})
    assert llama.context.epoch == epoch


@pytest.mark.parametrize(
    "name",
    ["echo", "stream", "cache_prompt", "truncate_prompt", "grammar_first", "timeout_s", "model", "stream_options",
     "grammar", "lora", "stop", "logprobs", "best_of", "suffix", "logits_processor", "stopping_criteria", "seed"],
)  # fmt: skip
def test_none_stands_for_the_default(llama, name):
    expected = llama("the cat", max_tokens=4, top_k=1)
    result = llama("the cat", max_tokens=4, top_k=1, **{name: None})
    assert texts_of(result) == texts_of(expected)
    assert result["model"] == expected["model"]
    assert result["usage"]["prompt_tokens_details"]["cached_tokens"] == len(IDS) - 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("context_shift", "no"), ("spm_infill", "no"), ("checkpoint_on_device", "no"), ("context_shift", 1)],
)
def test_switch_of_the_constructor_is_a_bool(name, wrong):
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        Llama(data("llama.gguf"), n_ctx=64, **ONE, **{name: wrong})


def test_stream_options_without_a_stream_are_refused(llama):
    with pytest.raises(ValueError, match="stream=True"):
        llama("x", max_tokens=3, stream_options={"include_usage": True})
    # before anything is looked at, so that it takes no template
    with pytest.raises(ValueError, match="stream=True"):
        llama.create_chat_completion([{"role": "user", "content": "x"}], stream_options={"include_usage": True})


@pytest.mark.parametrize("name", ["echo", "stream", "cache_prompt", "truncate_prompt", "ignore_eos"])
def test_switch_may_be_a_bool_of_numpy(llama, name):
    def asked(value):
        made = llama("the cat", max_tokens=4, top_k=1, **{name: value})
        return texts_of(made) if isinstance(made, dict) else [chunk["choices"][0]["text"] for chunk in made]

    for value in (True, False):
        assert asked(np.bool_(value)) == asked(value)
    with pytest.raises(TypeError, match=name):
        asked(np.array([True]))


def test_switches_of_a_chat_and_of_the_constructor_may_be_bools_of_numpy():
    no = np.bool_(False)
    with Llama(data("llama.gguf"), n_ctx=128, chat_format="chatml", context_shift=no, spm_infill=no, **ONE) as llm:
        message = [{"role": "user", "content": "x"}]
        choices = [
            llm.create_chat_completion(message, max_tokens=2, logprobs=value, parallel_tool_calls=value)["choices"][0]
            for value in (np.bool_(True), no)
        ]
    assert [choice["logprobs"] is None for choice in choices] == [False, True]


@pytest.mark.parametrize("name", ["temperature", "top_p", "repeat_penalty", "dry_base", "top_n_sigma", "timeout_s"])
@pytest.mark.parametrize("sign", [1, -1])
def test_whole_number_that_no_float_holds_is_out_of_range(llama, name, sign):
    with pytest.raises(ValueError, match=f"{name} must be from .{{,200}}$"):
        llama(IDS, max_tokens=1, **{name: sign * 10**400})


@pytest.mark.parametrize("wrong", [None, "2", 1.5])
def test_number_of_sequences_that_is_no_int_is_named(wrong):
    with pytest.raises(TypeError, match="n_seq_max must be an int"):
        Llama(data("llama.gguf"), n_ctx=64, n_seq_max=wrong, **ONE)


@pytest.mark.parametrize("truncate_prompt", [False, True])
@pytest.mark.parametrize(
    "ask",
    [
        lambda llm, **options: llm.create_completion([1, 2], **options),
        lambda llm, **options: next(llm.create_completion([1, 2], stream=True, **options)),
        lambda llm, **options: llm.create_chat_completion([{"role": "user", "content": "hi"}], **options),
        lambda llm, **options: list(llm.generate([1, 2], **options)),
    ],
    ids=["completion", "stream", "chat", "tokens"],
)
def test_max_tokens_that_is_none_says_which_there_are(ask, truncate_prompt):
    with Llama(data("llama.gguf"), n_ctx=256, n_threads=1, n_threads_batch=1, chat_format="chatml") as llm:
        for wrong in (-5, -2):
            with pytest.raises(
                ValueError, match=rf"from 0, or None or -1 for up to the end of the context, not {wrong}"
            ):
                ask(llm, max_tokens=wrong, truncate_prompt=truncate_prompt)
        for other in ("5", 5.0, True):
            with pytest.raises(TypeError, match=f"max_tokens must be an int or None, not {type(other).__name__}"):
                ask(llm, max_tokens=other, truncate_prompt=truncate_prompt)


@pytest.mark.parametrize(
    ("name", "value"), [("max_tokens", 3), ("n", 2), ("best_of", 2), ("logprobs", 2), ("top_k", 5), ("seed", 7)]
)
def test_numbers_of_numpy_count_as_those_of_python(llama, name, value):
    options = {"max_tokens": 4, "seed": 1, "cache_prompt": False, name: value}
    expected, result = llama("the cat", **options), llama("the cat", **{**options, name: np.int64(value)})
    assert result["choices"] == expected["choices"]
    assert json.loads(json.dumps(result)) == result


def test_context_length_of_numpy_is_a_number_of_python(closing):
    llm = closing(Llama(data("llama.gguf"), n_ctx=np.int64(64), **ONE))
    assert type(llm.n_ctx()) is int
    assert llm.n_ctx() == 64
