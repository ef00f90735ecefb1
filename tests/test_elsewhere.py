"""Names of other packages: what is said of them leads somewhere."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import llamacy
import llamacy.checkpoint
from llamacy import Embedding, Llama
from llamacy._elsewhere import _ATTRIBUTES, _OPTION_ADVICE, _OPTIONS, _SETTINGS, option_hint
from tests.helpers import data


@pytest.fixture(scope="module")
def llama() -> Any:
    with Llama(data("llama.gguf"), n_ctx=64, n_threads=1, n_threads_batch=1, chat_format="chatml") as made:
        made([1, 2, 3], max_tokens=1)
        yield made


def follow(start: Any, path: str) -> Any:
    """Return what a hint leads to; what ends in parentheses is called only where something follows."""
    path, _, key = path.partition("[")
    if key:
        return follow(start, path)[key.removesuffix("]").strip("'")]
    names = path.split(".")
    for name in names[:-1]:
        start = getattr(start, name.removesuffix("()"))
        if name.endswith("()"):
            start = start()
    return getattr(start, names[-1].removesuffix("()"))


@pytest.mark.parametrize("name", _ATTRIBUTES)
def test_attribute_of_another_package_is_found(llama: Llama, name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(llama, name)
    found = re.fullmatch(rf"'Llama' object has no attribute '{name}'; use (.+)", str(raised.value))
    assert found is not None
    path = found[1]
    if path.startswith("llamacy."):
        target = follow(llamacy, path.removeprefix("llamacy."))
    else:  # the dot says whose it is
        assert path[0] == "."
        target = follow(llama, path[1:])
    # a method is written as one, and nothing else is
    assert callable(target) == (path.endswith("()") or path.startswith("llamacy."))


@pytest.mark.parametrize("name", _SETTINGS)
def test_setting_of_another_package_is_told(llama: Llama, name: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(llama, name)
    assert str(raised.value) == f"'Llama' object has no attribute {name!r}; {_SETTINGS[name]}"


# what a Llama of llama-cpp-python has, methods and attributes, but for what is private and only it can use
_OF_LLAMA_CPP_PYTHON = """
abort add_log_filters chat_format chat_handler clear_log_filters close context_params create_chat_completion
create_chat_completion_openai_v1 create_completion create_embedding ctx detokenize draft_model embed eval eval_logits
eval_tokens from_pretrained generate get_log_filters get_verbosity input_ids kv_overrides last_n_tokens_size
last_speculative_stats list_loras load_lora load_state loaded_lora_count logits_to_logprobs longest_token_prefix
lora_path lora_scale metadata model model_desc model_params model_path model_size n_batch n_ctx n_ctx_train n_embd
n_embd_inp n_embd_out n_head n_head_kv n_layer n_layer_nextn n_params n_seq_max n_swa n_threads n_threads_batch
n_tokens n_ubatch n_vocab pooling_type reset reset_log_filters sample save_state scores set_cache set_log_filters
set_seed set_verbosity tensor_split token_bos token_eos token_eot token_mask token_nl token_pad token_sep tokenize
tokenizer unload_all_loras unload_lora verbose _ctx _input_ids _model _scores
"""


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize("name", _OF_LLAMA_CPP_PYTHON.split())
def test_every_attribute_of_llama_cpp_python_is_there_or_found(llama: Llama, kind: Any, name: str) -> None:
    with kind(data("llama.gguf"), n_ctx=64, n_threads=1) as model:
        if hasattr(model, name):
            return
        with pytest.raises(AttributeError) as raised:
            getattr(model, name)
        text = str(raised.value)
        start = f"'{kind.__name__}' object has no attribute '{name}'; "
        assert text.startswith(start)
        hint = text.removeprefix(start)
        if name in _SETTINGS:
            return
        path = hint.removeprefix("use ").removeprefix("llamacy.Llama, which has ")
        assert path.startswith(("llamacy.", "."))
        path = path.removeprefix(".")
        target: Any = model
        if "which has" in hint:
            assert kind is Embedding
            follow(llama, path)
            return
        if path.startswith("llamacy."):
            target, path = llamacy, path.removeprefix("llamacy.")
        if path == "context.logits()" or kind is Llama:
            return  # it leads there: tested above, with what a request leaves behind
        follow(target, path)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Llama, "embed_batches", "use llamacy.Embedding.embed_batches"),
        (Llama, "classify", "use llamacy.Embedding.classify"),
        (Llama, "is_recurrent", "use .model.is_recurrent"),
        (Llama, "decode", "use .context.decode"),
        (Llama, "type_k", "use .context.params.values['type_k']"),
        (Llama, "split_mode", "use .model.params.values['split_mode']"),
        (Embedding, "create_chat_completion", "use llamacy.Llama.create_chat_completion"),
        (Embedding, "chat", "use llamacy.Llama, which has .create_chat_completion()"),
        (Embedding, "save_state", "use llamacy.Llama.save_state"),
        (Embedding, "eval", "use llamacy.Llama, which has .generate()"),
        (Embedding, "encode", "use .embed()"),
    ],
)
def test_what_another_class_has_is_found(kind: Any, name: str, hint: str) -> None:
    with kind(data("llama.gguf"), n_ctx=64, n_threads=1) as model:
        with pytest.raises(AttributeError) as raised:
            getattr(model, name)
        assert str(raised.value) == f"{kind.__name__!r} object has no attribute {name!r}; {hint}"
        path = hint.removeprefix("use ").removeprefix("llamacy.Llama, which has ")
        assert path.startswith(("llamacy.", "."))
        path = path.removeprefix(".")
        if path.startswith("llamacy."):
            assert follow(llamacy, path.removeprefix("llamacy."))
        elif "which has" not in hint:
            assert follow(model, path) is not None


def test_other_names_are_as_python_has_them(llama: Llama, closing: Callable[[Any], Any], bert_path: Any) -> None:
    with pytest.raises(AttributeError, match=r"'Llama' object has no attribute 'tokenise'$") as raised:
        llama.tokenise  # type: ignore[attr-defined]  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("tokenise", llama)
    with pytest.raises(AttributeError, match=r"module 'llamacy' has no attribute 'Lama'$"):
        llamacy.Lama  # type: ignore[attr-defined]  # noqa: B018
    assert closing(Embedding(bert_path, n_threads=1)).n_embd == 32


# as llama.cpp calls parameters of its samplers
_OF_SAMPLERS = {
    "penalty_repeat": "repeat_penalty", "penalty_freq": "frequency_penalty", "penalty_present": "presence_penalty",
    "top_nsigma": "top_n_sigma",
}  # fmt: skip


@pytest.mark.parametrize("name", _OF_SAMPLERS)
def test_name_that_llama_cpp_has_for_a_sampler_leads_to_the_one_here(llama: Llama, name: str) -> None:
    for ask in (llama, llama.create_completion, lambda tokens, **options: list(llama.generate(tokens, **options))):
        with pytest.raises(TypeError) as raised:
            ask([1, 2, 3], max_tokens=1, **{name: 1.1})
        assert str(raised.value) == f"there is no option {name!r}; did you mean {_OF_SAMPLERS[name]!r}?"
        assert ask([1, 2, 3], max_tokens=1, **{_OF_SAMPLERS[name]: 1.1})
    with pytest.raises(TypeError, match=f"did you mean '{_OF_SAMPLERS[name]}'"):
        llama.create_chat_completion([{"role": "user", "content": "a"}], **{name: 1.1})


@pytest.mark.parametrize("name", ["repeat_last_n", "temp", "typ_p", "mirostat", "dry_sequence_breakers"])
def test_name_that_is_taken_here_too_is_no_error(llama: Llama, name: str) -> None:
    value = {"typ_p": 0.5, "dry_sequence_breakers": ["a"]}.get(name, 1)
    assert llama([1, 2, 3], max_tokens=1, **{name: value})


@pytest.mark.parametrize("name", _OPTIONS)
def test_option_of_another_package_leads_to_one_that_is_there(name: str) -> None:
    known = {_OPTIONS[name]}
    assert option_hint(name, known) == f"; did you mean {_OPTIONS[name]!r}?"
    # from elsewhere, it is found where it is
    assert re.search(r"is an option of requests|is given when the model is loaded", option_hint(name, ()))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_new_tokens", "did you mean 'max_tokens'?"),
        ("n_predict", "did you mean 'max_tokens'?"),
        ("stop_sequences", "did you mean 'stop'?"),
        ("last_n_tokens_size", "did you mean 'penalty_last_n'?"),
        ("ctx_size", "'n_ctx' is given when the model is loaded, as Llama(n_ctx=…)"),
        ("n_gpu_layers", "'n_gpu_layers' is given when the model is loaded, as Llama(n_gpu_layers=…)"),
        ("response_format", "'response_format' is an option of requests, as create_chat_completion"),
        ("do_sample", "temperature=0 takes the most likely token"),
        ("tfs_z", "llama.cpp has no such sampler any more"),
        ("temprature", "did you mean 'temperature'?"),
    ],
)
def test_option_that_a_request_has_not_leads_to_the_one_meant(llama: Llama, name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        llama([1, 2, 3], max_tokens=1, **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ngl", "did you mean 'n_gpu_layers'?"),
        ("num_ctx", "did you mean 'n_ctx'?"),
        ("temperature", "'temperature' is an option of requests, as create_completion"),
        ("n_predict", "'max_tokens' is an option of requests, as create_completion"),
        ("tools", "'tools' is an option of requests, as create_chat_completion"),
        ("vocab_only", "llamacy.Model(path, vocab_only=True) loads the vocabulary alone"),
    ],
)
def test_option_that_loading_has_not_leads_to_the_one_meant(name: str, hint: str) -> None:
    with pytest.raises(TypeError) as raised:
        Llama(data("llama.gguf"), **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("normalize_embeddings", "did you mean 'normalize'?"),
        ("show_progress_bar", "did you mean 'progress'?"),
        ("prompt_name", "did you mean 'prompt'?"),
        ("convert_to_numpy", "embed() returns a NumPy array"),
        ("batch_size", _OPTION_ADVICE["batch_size"]),
        ("normalise", "did you mean 'normalize'?"),
        ("n_batch", "'n_batch' is given when the model is loaded, as Llama(n_batch=…)"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "method"),
    [(Llama, "embed"), (Llama, "aembed"), (Embedding, "embed"), (Embedding, "aembed"), (Embedding, "embed_batches")],
)
def test_option_that_embedding_has_not_leads_to_the_one_meant(
    kind: Any, method: str, bert_path: Any, closing: Callable[[Any], Any], name: str, hint: str
) -> None:
    model = closing(kind(bert_path, n_threads=1, n_threads_batch=1))
    with pytest.raises(TypeError) as raised:
        made = getattr(model, method)(["a"], **{name: True})
        asyncio.run(made)
    assert str(raised.value) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize("name", ["normalize_embeddings", "show_progress_bar", "prompt_name"])
def test_option_of_embedding_is_none_of_loading(bert_path: Any, name: str) -> None:
    with pytest.raises(TypeError, match=r"'(normalize|progress|prompt)' is an option of requests, as embed$"):
        Embedding(bert_path, **{name: True})


def test_methods_with_hints_keep_their_signatures() -> None:
    for method in (Embedding.embed, Embedding.embed_batches, Embedding.create_embedding, Llama.embed):
        assert "normalize" in inspect.signature(method).parameters
        assert method.__doc__


@pytest.mark.parametrize("kind", [Llama, Embedding])
@pytest.mark.parametrize("name", _OPTION_ADVICE)
def test_option_with_advice_is_not_there(kind: Any, name: str) -> None:
    with pytest.raises(TypeError) as raised:
        kind(data("llama.gguf"), **{name: 1})
    assert str(raised.value) == f"there is no option {name!r}; {_OPTION_ADVICE[name]}"


# what OpenAI's clients and llama-cpp-python's requests take; all that is not honoured says so
_OF_CHATS = """
audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata modalities
n parallel_tool_calls prediction presence_penalty prompt_cache_key reasoning_effort response_format safety_identifier
seed service_tier stop store stream stream_options temperature timeout tool_choice tools top_logprobs top_p user
verbosity web_search_options extra_body extra_headers extra_query model grammar grammar_lazy active_loras
control_vector assistant_prefill add_generation_prompt logits_processor min_p typical_p mirostat_mode
"""
_HONOURED = """
frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens n parallel_tool_calls
presence_penalty response_format seed stop stream stream_options temperature tool_choice tools top_logprobs top_p model
grammar active_loras assistant_prefill add_generation_prompt logits_processor min_p typical_p mirostat_mode
"""


@pytest.mark.parametrize("name", _OF_CHATS.split())
def test_every_parameter_of_a_chat_is_honoured_or_refused_with_a_reason(llama: Llama, name: str) -> None:
    from inspect import signature

    from llamacy.generate.arguments import RequestOptions
    from llamacy.generate.chat import ChatArguments
    from llamacy.generate.options import SamplingOptions

    known = {
        *signature(Llama.create_chat_completion).parameters, *RequestOptions.__dataclass_fields__,
        *ChatArguments.__dataclass_fields__, *SamplingOptions.names(),
        "max_completion_tokens", "assistant_prefill", "active_loras",
    }  # fmt: skip
    assert (name in known) == (name in _HONOURED.split())
    if name in _HONOURED.split():
        return
    for ask in (llama.create_chat_completion, llama.create_completion):
        with pytest.raises(TypeError) as raised:
            ask([{"role": "user", "content": "hi"}], **{name: "x"})  # type: ignore[operator]
        text = str(raised.value)
        assert text.startswith(f"there is no option {name!r}; ")
        assert "options are" not in text
        assert "did you mean" not in text or name == "timeout"


def test_vocab_only_and_numa_are_where_the_advice_says() -> None:
    from llamacy.core.backend import numa_init

    assert callable(numa_init)
    with llamacy.Model(data("llama.gguf"), vocab_only=True) as model:
        assert model.vocab_only


def test_messages_as_a_prompt_lead_to_chats(llama: Llama) -> None:
    with pytest.raises(TypeError, match="create_chat_completion takes messages"):
        llama([{"role": "user", "content": "Hello"}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("all-minilm-l6-v2", "; llamacy.starter.pull('all-minilm-l6-v2') fetches it and returns its path"),
        (
            "org/a-model",
            "; {kind}.from_pretrained('org/a-model', filename) fetches a GGUF file from the Hugging Face Hub",
        ),
        (
            "sentence-transformers/all-MiniLM-L6-v2",
            "; llamacy.starter.pull('all-minilm-l6-v2') fetches it and returns its path",
        ),
        ("models/one.gguf", ""),
        ("/models", ""),
        ("./models/one", ""),
        ("nothing", ""),
    ],
)
@pytest.mark.parametrize("kind", [Llama, Embedding])
def test_model_that_is_not_there_is_told_how_to_fetch(
    kind: Any, path: str, hint: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = path if path[0] != "/" else f"{tmp_path}{path}"
    with pytest.raises(llamacy.ModelNotFoundError) as raised:
        kind(path)
    assert str(raised.value) == f"there is no model file {path!r}{hint.format(kind=kind.__name__)}"
