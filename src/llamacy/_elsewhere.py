"""Says where something is that users of other packages look for. Imported only when a name was not found."""

from __future__ import annotations

# names of llama-cpp-python and sentence-transformers, and those of `llamacy.checkpoint`
_CLASSES = {
    "LlamaCache": "llamacy.checkpoint.RamStore",
    "LlamaRAMCache": "llamacy.checkpoint.RamStore",
    "LlamaTrieCache": "llamacy.checkpoint.RamStore",
    "LlamaDiskCache": "llamacy.checkpoint.DiskStore",
    "HybridCheckpointCache": "llamacy.checkpoint.Registry",
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
}

# attributes and methods that a model has there, and where they are here
_ATTRIBUTES = {
    "eval": "generate()",
    "sample": "generate()",
    "encode": "embed()",
    "rank": "llamacy.Embedding.rerank",
    "predict": "llamacy.Embedding.rerank",
    "rerank": "llamacy.Embedding.rerank",
    "input_ids": "save_state().prefix.tokens",
    "n_tokens": "save_state().prefix.tokens",
    "scores": "context.logits()",
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

_SETTINGS = {
    "set_seed": "give seed=… to the request, or to Llama",
    "verbose": "set the level of the logger 'llamacy' (logging), or give verbose=True when it is made",
}


def class_hint(name: str) -> str:
    """Return what to say after "has no attribute" of the package: where the class is, or nothing."""
    return f"; use {_CLASSES[name]}" if name in _CLASSES else ""


def attribute_hint(name: str) -> str:
    """Return what to say after "has no attribute" of a model that is loaded, or nothing."""
    if name in _ATTRIBUTES:
        return f"; use {_ATTRIBUTES[name]}"
    return f"; {_SETTINGS[name]}" if name in _SETTINGS else ""


def model_hint(path: object) -> str:
    """Return what to say of a model file that isn't there: how to fetch what its name may mean, or nothing."""
    from llamacy.starter import starters

    if any(path == starter.name for starter in starters()):
        return f"; llamacy.starter.pull({path!r}) fetches it and returns its path"
    if isinstance(path, str) and path.count("/") == 1 and path[0] not in "./~" and not path.endswith(".gguf"):
        return f"; Llama.from_pretrained({path!r}, filename) fetches a GGUF file from the Hugging Face Hub"
    return ""
