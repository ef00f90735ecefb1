"""Says where something is that users of other packages look for. Imported only when a name was not found."""

from __future__ import annotations

from collections.abc import Collection

# names of llama-cpp-python and sentence-transformers, and those of `llamacy.checkpoint`
_CLASSES = {
    "LlamaCache": "llamacy.checkpoint.RamStore",
    "LlamaRAMCache": "llamacy.checkpoint.RamStore",
    "LlamaTrieCache": "llamacy.checkpoint.RamStore",
    "LlamaDiskCache": "llamacy.checkpoint.DiskStore",
    "LlamaState": "llamacy.checkpoint.Snapshot",
    "RamStore": "llamacy.checkpoint.RamStore",
    "DiskStore": "llamacy.checkpoint.DiskStore",
    "Registry": "llamacy.checkpoint.Registry",
    "Snapshot": "llamacy.checkpoint.Snapshot",
    "LlamaGrammar": "llamacy.Grammar",
    "LlamaEmbedding": "llamacy.Embedding",
    "LlamaTokenizer": "llamacy.Vocab",
    "SentenceTransformer": "llamacy.Embedding",
    "CrossEncoder": "llamacy.Embedding",
    "BaseLlamaCache": "llamacy.checkpoint.Store",
    "BaseLlamaTokenizer": "llamacy.Vocab",
    "LlamaModel": "llamacy.Model",
    "LlamaContext": "llamacy.Context",
    "LlamaBatch": "llamacy.Batch",
    "LlamaTokenDataArray": "llamacy.Candidates",
    "LlamaSamplingContext": "llamacy.SamplerChain",
    "Jinja2ChatFormatter": "llamacy.chat.template.ChatTemplate",
    "CreateCompletionResponse": "llamacy.generate.responses.Completion",
    "CreateChatCompletionResponse": "llamacy.generate.responses.ChatCompletion",
    "CreateEmbeddingResponse": "llamacy.generate.embed.responses.CreateEmbeddingResponse",
}

# modules of llama-cpp-python
_MODULES = {
    "llama_cache": "llamacy.checkpoint",
    "llama_chat_format": "llamacy.chat.classic",
    "llama_embedding": "llamacy.embedding",
    "llama_grammar": "llamacy.grammar",
    "llama_tokenizer": "llamacy.core.vocab",
    "llama_types": "llamacy.generate.responses",
}

# how the constants of C's enumerations begin, and what has them
_ENUMERATIONS = {
    "LLAMA_ATTENTION_TYPE_": "AttentionType",
    "LLAMA_CONTEXT_TYPE_": "ContextType",
    "GGML_BACKEND_DEVICE_TYPE_": "DeviceType",
    "LLAMA_FTYPE_MOSTLY_": "FileType",
    "LLAMA_FTYPE_ALL_": "FileType",
    "LLAMA_FTYPE_": "FileType",
    "LLAMA_FLASH_ATTN_TYPE_": "FlashAttnType",
    "GGML_TYPE_": "GgmlType",
    "GGUF_TYPE_": "GgufType",
    "LLAMA_LAZY_MODE_": "LazyMode",
    "LLAMA_LOAD_MODE_": "LoadMode",
    "GGML_NUMA_STRATEGY_": "NumaStrategy",
    "LLAMA_POOLING_TYPE_": "PoolingType",
    "LLAMA_ROPE_SCALING_TYPE_": "RopeScalingType",
    "LLAMA_ROPE_TYPE_": "RopeType",
    "LLAMA_SPLIT_MODE_": "SplitMode",
    "LLAMA_STATE_SEQ_FLAGS_": "StateFlags",
    "GGML_SCHED_PRIO_": "ThreadPriority",
    "LLAMA_TOKEN_ATTR_": "TokenAttr",
    "LLAMA_VOCAB_TYPE_": "VocabType",
}

# attributes and methods that a model has there, and where they are here
_ATTRIBUTES = {
    "eval": "generate()",
    "sample": "generate()",
    "encode": "embed()",
    "rank": "llamacy.Embedding.rerank",
    "predict": "llamacy.Embedding.rerank",
    "rerank": "llamacy.Embedding.rerank",
    "embed_query": "embed()",
    "embed_documents": "embed()",
    "chat": "create_chat_completion()",
    "ctx": "context",
    "input_ids": "save_state().prefix.tokens",
    "n_tokens": "save_state().prefix.tokens",
    "scores": "context.logits()",
    "_ctx": "context",
    "_input_ids": "save_state().prefix.tokens",
    "_scores": "context.logits()",
    "eval_tokens": "save_state().prefix.tokens",
    "chat_format": "chat_template",
    "context_params": "context.params",
    "model_params": "model.params",
    "lora_path": "loras",
    "lora_scale": "loras",
    "longest_token_prefix": "llamacy.checkpoint.Prefix",
    "eval_logits": "context.logits()",
    "tokenizer": "model.vocab",
    "token_bos": "model.vocab.bos",
    "token_eos": "model.vocab.eos",
    "token_eot": "model.vocab.eot",
    "token_nl": "model.vocab.nl",
    "token_sep": "model.vocab.sep",
    "token_pad": "model.vocab.pad",
    "token_mask": "model.vocab.mask",
    "model_path": "model.path",
    "model_desc": "model.description",
    "model_size": "model.size_bytes",
    "n_params": "model.n_params",
    "n_ctx_train": "model.n_ctx_train",
    "n_embd": "model.n_embd",
    "n_layer": "model.n_layer",
    "n_head": "model.n_head",
    "n_head_kv": "model.n_head_kv",
    "n_swa": "model.n_swa",
    "pooling_type": "context.pooling_type",
    "list_loras": "loras",
    "loaded_lora_count": "loras",
    "unload_all_loras": "unload_lora()",
    "get_sentence_embedding_dimension": "model.n_embd",
    "max_seq_length": "n_ctx()",
}

_LOG = "set the level, and filters, of the logger 'llamacy' (logging)"
_NO_MEDIA = "images and audio can't be given to a model yet"
_NO_DRAFTS = "there is no speculative decoding yet"

_NATIVE = "what llama.cpp's headers declare is for Cython: from llamacy.native cimport llama"

# the same of the package, where there is more to say than a name
_PACKAGE_ADVICE = {
    "HybridCheckpointCache": "Llama takes checkpoints by itself, as its ctx_checkpoints and checkpoint_interval say",
    "LLAMA_DEFAULT_SEED": "seed=None draws a seed",
    "LlamaDraftModel": _NO_DRAFTS,
    "LlamaHFTokenizer": "the tokenizer is that of the model file",
    "LlamaPromptLookupDecoding": _NO_DRAFTS,
    "LogitsProcessorList": "logits_processor takes a list",
    "MinTokensLogitsProcessor": "give min_tokens=… to the request",
    "StoppingCriteriaList": "stopping_criteria takes a list",
    "llama_cpp": f"llamacy.types has its constants; {_NATIVE}",
    "llama_multimodal": _NO_MEDIA,
    "llama_speculative": _NO_DRAFTS,
    "llava_cpp": _NO_MEDIA,
    "mtmd_cpp": _NO_MEDIA,
}

_SETTINGS = {
    "chat_handler": _NO_MEDIA,
    "draft_model": _NO_DRAFTS,
    "last_speculative_stats": _NO_DRAFTS,
    "last_n_tokens_size": "give penalty_last_n=… to the request",
    "logits_to_logprobs": "give logprobs=… to the request",
    "set_verbosity": _LOG,
    "get_verbosity": _LOG,
    "set_log_filters": _LOG,
    "add_log_filters": _LOG,
    "get_log_filters": _LOG,
    "clear_log_filters": _LOG,
    "reset_log_filters": _LOG,
    "set_seed": "give seed=… to the request, or to Llama",
    "similarity": "a @ b.T are the cosines of vectors that embed(…, normalize=True) made",
    "verbose": "set the level of the logger 'llamacy' (logging), or give verbose=True when it is made",
}

# options of other packages and programs: the name that they have here
_OPTIONS = {
    "timeout": "timeout_s",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_return_sequences": "n",
    "stop_sequences": "stop",
    "repetition_penalty": "repeat_penalty",
    "penalty_repeat": "repeat_penalty",
    "penalty_freq": "frequency_penalty",
    "penalty_present": "presence_penalty",
    "top_nsigma": "top_n_sigma",
    "last_n_tokens_size": "penalty_last_n",
    "ctx_size": "n_ctx",
    "num_ctx": "n_ctx",
    "ngl": "n_gpu_layers",
    "num_gpu": "n_gpu_layers",
    "threads": "n_threads",
    "normalize_embeddings": "normalize",
    "show_progress_bar": "progress",
    "prompt_name": "prompt",
}

_OF_SERVICE = "it is for OpenAI's own service and changes nothing about an answer; leave it out"
_OF_CLIENT = "nothing is sent to a server; give what is in it as arguments, under the names that they have here"

# the same, where there is more to say than a name
_OPTION_ADVICE = {
    "tfs_z": "llama.cpp has no such sampler any more",
    "penalize_nl": "llama.cpp has no such option any more",
    "f16_kv": "type_k and type_v say how keys and values are kept",
    "do_sample": "temperature=0 takes the most likely token",
    "numa": "call llamacy.core.backend.numa_init(strategy) before a model is loaded",
    "tokenizer": "the tokenizer is that of the model file",
    "batch_size": "texts share batches by themselves; n_batch, given when the model is loaded, bounds them",
    "convert_to_numpy": "embed() returns a NumPy array",
    "vocab_only": "llamacy.Model(path, vocab_only=True) loads the vocabulary alone",
    "enable_thinking": "give chat_template_kwargs={'enable_thinking': …} to a chat",
    "reasoning_effort": "give chat_template_kwargs={'reasoning_effort': …} to a chat",
    "json_schema": "give grammar=Grammar.from_json_schema(schema), or response_format to a chat",
    "mmproj": _NO_MEDIA,
    "mmproj_path": _NO_MEDIA,
    "clip_model_path": _NO_MEDIA,
    "chat_handler": _NO_MEDIA,
    "chat_handler_kwargs": _NO_MEDIA,
    "draft_model": _NO_DRAFTS,
    "speculative": _NO_DRAFTS,
    "prediction": _NO_DRAFTS,
    "modalities": "answers are text; leave it out",
    "audio": "answers are text; leave it out",
    "user": _OF_SERVICE,
    "metadata": _OF_SERVICE,
    "store": _OF_SERVICE,
    "service_tier": _OF_SERVICE,
    "safety_identifier": _OF_SERVICE,
    "prompt_cache_key": _OF_SERVICE,
    "prompt_cache_retention": _OF_SERVICE,
    "extra_body": _OF_CLIENT,
    "extra_headers": _OF_CLIENT,
    "extra_query": _OF_CLIENT,
    "web_search_options": "nothing is looked up; give a tool that does, in tools",
    "verbosity": "say in a message how long the answer is to be; the log goes to the logger 'llamacy' (logging)",
    "log_filters": _LOG,
    "log_filters_case_sensitive": _LOG,
    "control_vector": "set_control_vector(…) adds one to all requests",
    "grammar_lazy": "Grammar.with_triggers(…) says where a grammar begins",
    "reset": "what the context has of a prompt is not computed again; cache_prompt=False computes all of it",
    "additional_files": "all parts of a split model are fetched with its first one",
    "local_dir_use_symlinks": "huggingface_hub has no such option any more",
}


def package_hint(name: str) -> str:
    """Return what to say after "has no attribute" of the package: where that is, or nothing."""
    found = _CLASSES.get(name) or _MODULES.get(name) or _constant(name)
    if found is not None:
        return f"; use {found}"
    if name in _PACKAGE_ADVICE:
        return f"; {_PACKAGE_ADVICE[name]}"
    if name.endswith("ChatHandler"):
        return f"; {_NO_MEDIA}"
    return f"; {_NATIVE}" if name.lower().startswith(("llama_", "ggml_", "gguf_", "mtmd_")) else ""


def _constant(name: str) -> str | None:
    """Return where an enumeration of C, or a constant of one, is."""
    from llamacy import types

    for start, kind in _ENUMERATIONS.items():
        if name.upper() == start[:-1]:
            return f"llamacy.{kind}"
        member = name.removeprefix(start)
        if member != name and hasattr(getattr(types, kind), member):
            return f"llamacy.{kind}.{member}"
    return None


def attribute_hint(name: str, kind: type) -> str:
    """Return what to say after "has no attribute" of a model that is loaded, of a class, or nothing."""
    if name in _SETTINGS:
        return f"; {_SETTINGS[name]}"
    found = _ATTRIBUTES.get(name, "") or _owner(name)
    if not found or found.startswith("llamacy."):
        return f"; use {found}" if found else ""
    # with the dot: it is an attribute of the object that was asked
    if hasattr(kind, found.split(".")[0].removesuffix("()")):
        return f"; use .{found}"
    return f"; use llamacy.Llama, which has .{found}"


# chat formats of llama-cpp-python that there are not
_OF_TOOLS = ("chatml-function-calling", "functionary", "functionary-v1", "functionary-v2")
_OF_MODEL = ("chat_template.default", "hf-autotokenizer", "hf-tokenizer-config")
_OF_IMAGES = (
    "llava-1-5", "llava-1-6", "llama-3-vision-alpha", "llama3visionalpha", "llama-3-vision", "moondream", "moondream2",
    "nanollava", "obsidian", "minicpm-v-2.6", "qwen2.5-vl",
)  # fmt: skip


def chat_format_hint(name: object) -> str:
    """Return why there is no chat format of a name of llama-cpp-python's, or nothing."""
    if name in _OF_TOOLS:
        return "tools work with the model's own template; leave chat_format out"
    if name in _OF_MODEL:
        return "the model's own template is taken where chat_format is left out"
    return _NO_MEDIA if name in _OF_IMAGES else ""


def _owner(name: str) -> str:
    """Return where a public name is, of the other class or of what both are made of, or nothing."""
    from llamacy import Context, Embedding, Llama, Model
    from llamacy.core.params import ContextParams, ModelParams

    if name.startswith("_"):
        return ""
    for owner, place in (
        (Llama, "llamacy.Llama."),
        (Embedding, "llamacy.Embedding."),
        (Context, "context."),
        (Model, "model."),
    ):
        if hasattr(owner, name):
            return place + name
    for params, place in ((ContextParams, "context"), (ModelParams, "model")):
        if name in params().values:
            return f"{place}.params.values[{name!r}]"
    return ""


def option_hint(name: str, known: Collection[str]) -> str:
    """Return what to say of an option that there isn't, where others are known; or nothing."""
    if name in _OPTION_ADVICE:
        return f"; {_OPTION_ADVICE[name]}"
    wanted = _OPTIONS.get(name, name)
    if wanted in known:
        return f"; did you mean {wanted!r}?" if wanted != name else ""
    call = _request_of(wanted)
    if call is not None:
        return f"; {wanted!r} is an option of requests, as {call}"
    if wanted in _model_options():
        return f"; {wanted!r} is given when the model is loaded, as Llama({wanted}=…)"
    return ""


def _request_of(name: str) -> str | None:
    from llamacy.generate.arguments import RequestOptions
    from llamacy.generate.chat import ChatArguments
    from llamacy.generate.embed.requests import EmbeddingRequest
    from llamacy.generate.options import SamplingOptions

    if name in {*SamplingOptions.names(), *RequestOptions.__dataclass_fields__, "max_tokens", "stop", "n"}:
        return "create_completion"
    if name in ChatArguments.__dataclass_fields__:
        return "create_chat_completion"
    return "embed" if name in {*EmbeddingRequest.__dataclass_fields__, "progress"} - {"engine"} else None


def _model_options() -> set[str]:
    from inspect import signature

    from llamacy.llama import Llama

    return {*signature(Llama).parameters} - {"model_path", "params"} | {"n_gpu_layers"}


def model_hint(path: object, kind: str) -> str:
    """Return what a class says of a model file that isn't there: how to fetch what its name may mean, or nothing."""
    from llamacy.starter import starters

    # a repository that a starter model is made of has its name at the end, in other letters
    name = path.rsplit("/", 1)[-1].lower() if isinstance(path, str) else ""
    if any(name == starter.name for starter in starters()) and not str(path).startswith(("/", ".", "~")):
        return f"; llamacy.starter.pull({name!r}) fetches it and returns its path"
    if isinstance(path, str) and path.count("/") == 1 and path[0] not in "./~" and not path.endswith(".gguf"):
        return f"; {kind}.from_pretrained({path!r}, filename) fetches a GGUF file from the Hugging Face Hub"
    return ""
