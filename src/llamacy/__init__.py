"""llama.cpp, libmtmd and ggml in one process, at native speed.

The public names are loaded when they are first used: `import llamacy` reads no native library and no NumPy.
"""

__version__ = "0.1.0"

# Where each public name lives. Kept as text, one module a line: this table is all that an import costs.
_HOMES = {
    "llama": "Llama",
    "embedding": "Embedding",
    "core.model": "Model",
    "core.context": "Context",
    "core.batch": "Batch",
    "core.vocab": "Vocab",
    "core.memory": "Memory",
    "core.samplers": "Sampler",
    "core.sampler": "SamplerChain",
    "core.custom_sampler": "CustomSampler",
    "core.candidates": "Candidates",
    "core.adapter": "LoraAdapter",
    "core.control_vector": "ControlVector",
    "core.threadpool": "ThreadPool",
    "core.gguf": "Gguf",
    "core.quantize": "quantize",
    "core.backend": "Device add_rpc_server backends devices system_info",
    "core._handle": "live_handles",
    "grammar": "Grammar",
    "errors": (
        "AdapterError AutomatonSizeError BackendError BatchFullError ChatTemplateError "
        "ChatTemplateLimitError CheckpointError ClosedError ConcurrentUseError ContextCreateError "
        "ContextLengthError CorruptCheckpointError DecodeAbortedError DecodeError DecodeFatalError "
        "DownloadError EncodeError GgufError GrammarError GrammarSyntaxError InUseError "
        "IncompatibleCheckpointError InvalidBatchError LlamacyError LoadCancelledError "
        "MemoryOperationError MemorySlotError ModelFormatError ModelLoadError ModelNotFoundError "
        "ModelSaveError OutputError PoolingError QuantizeCancelledError QuantizeError RegexError RegexSyntaxError "
        "RegexUnsupportedError SamplerError SchemaError SchemaRelaxedWarning StaleCheckpointError "
        "StateError TokenizeError UnsatisfiableSchemaError UnsupportedSchemaError"
    ),
    "types": (
        "AttentionType ContextType DeviceType FileType FlashAttnType GgmlType GgufType LazyMode LoadMode "
        "NumaStrategy PoolingType ReasoningTags RopeScalingType RopeType SplitMode StateFlags TensorInfo "
        "ThreadPriority TokenAttr VocabType"
    ),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [*_MODULES, "get_include", "get_library_dir"]


def __getattr__(name):
    """Load a public name from the module it lives in (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        hint = ""
        # submodules are looked for here as well, before they are imported; none of them is called like that
        if name[:1].isupper() or name.startswith(("llama_", "ggml_", "gguf_", "mtmd_", "llava_")):
            from llamacy._elsewhere import package_hint

            hint = package_hint(name)
        raise AttributeError(f"module 'llamacy' has no attribute {name!r}{hint}")
    from importlib import import_module

    try:
        home = import_module("llamacy." + module)
    except ImportError as error:
        from llamacy._diagnosis import explain

        raise ImportError(explain(error), name=error.name, path=error.path) from error
    except AttributeError as error:
        # An AttributeError that leaves this function means "no such name" to Python.
        raise ImportError(f"llamacy.{module} can't be loaded: {error}", name="llamacy." + module) from error
    value = globals()[name] = getattr(home, name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})


def get_include():
    """Return the folder of the C headers that this llamacy was built with.

    Pass it as include path when compiling code that does ``from llamacy.native cimport llama``. Code that
    only cimports the classes (``from llamacy cimport Model``) needs no include path.

    Returns
    -------
    str
        The folder that holds ``llama.h``, ``ggml.h``, ``mtmd.h`` and the others.

    Raises
    ------
    FileNotFoundError
        This llamacy runs from sources that weren't built.
    """
    return str(_built("include", "llama.h").parent)


def get_library_dir():
    """Return the folder of the native libraries that this llamacy uses.

    Link raw consumers against ``llamacy-llama``, ``llamacy-ggml``, ``llamacy-ggml-base`` and ``llamacy-mtmd``
    there; a llamacy that was built on an installed llama.cpp returns that one's folder, whose libraries have
    their usual names.

    Returns
    -------
    str
        The folder.

    Raises
    ------
    FileNotFoundError
        This llamacy runs from sources that weren't built.
    """
    import json

    facts = _built("_lib", "build.json")
    return json.loads(facts.read_text(encoding="utf-8")).get("library_folder") or str(facts.parent)


def _built(folder, name):
    from pathlib import Path

    path = Path(__file__).resolve().parent / folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: build llamacy first (pip install -e . in its checkout).")
    return path
