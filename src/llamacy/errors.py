"""The exceptions of llamacy.

Every exception derives from `LlamacyError` and from the builtin that a caller who doesn't know llamacy would expect, so
both `except LlamacyError` and `except ValueError` work. `LlamacyError.log` holds the last lines that native code logged
on this thread before the failure.
"""

from __future__ import annotations

from collections.abc import Iterable


class LlamacyError(Exception):
    """Base of all errors that llamacy raises on its own account.

    Parameters
    ----------
    message
        What failed, the value, and what to do.
    log
        Native log lines that belong to the failure, oldest first.
    """

    log: tuple[str, ...]

    def __init__(self, message: str = "", *, log: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        if not self.log:
            return message
        return message + "\n  native log: " + "\n              ".join(self.log)


class ClosedError(LlamacyError, ValueError):
    """An object was used after `close()`."""


class InUseError(LlamacyError, RuntimeError):
    """An object can't be closed or changed while something else still works with it."""


class ConcurrentUseError(LlamacyError, RuntimeError):
    """A single-user object was called by a second thread while the first call was still running."""


class BackendError(LlamacyError, RuntimeError):
    """A backend or device could not be loaded, found or used."""


class ModelLoadError(LlamacyError, OSError):
    """A model could not be loaded."""


class ModelNotFoundError(ModelLoadError, FileNotFoundError):
    """The model file does not exist."""


class ModelFormatError(ModelLoadError, ValueError):
    """The file is not a GGUF model that this llama.cpp can load."""


class LoadCancelledError(ModelLoadError):
    """The progress callback asked for the load to stop."""


class ModelSaveError(LlamacyError, OSError):
    """A model could not be written."""


class QuantizeError(LlamacyError, RuntimeError):
    """A model could not be quantized."""


class QuantizeCancelledError(QuantizeError):
    """The progress callback asked for the quantization to stop."""


class GgufError(LlamacyError, ValueError):
    """A GGUF file is damaged, or a key or tensor is not in it or not of the type asked for."""


class ContextCreateError(LlamacyError, RuntimeError):
    """A context could not be created."""


class ContextLengthError(LlamacyError, ValueError):
    """A prompt does not fit the context.

    Attributes
    ----------
    n_prompt
        Tokens in the prompt.
    n_ctx
        Positions that one sequence of the context has.
    """

    def __init__(self, message: str = "", *, n_prompt: int = 0, n_ctx: int = 0, log: Iterable[str] = ()) -> None:
        super().__init__(message, log=log)
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class BatchFullError(LlamacyError, ValueError):
    """An entry was added to a batch that has no room for it; the batch is unchanged."""


class MemoryOperationError(LlamacyError, RuntimeError):
    """A sequence operation is not possible on this kind of memory; the memory is unchanged."""


class EncodeError(LlamacyError, RuntimeError):
    """The encoder failed."""


class DecodeError(LlamacyError, RuntimeError):
    """A decode failed.

    Attributes
    ----------
    status
        What `llama_decode` returned.
    memory_restored
        True when the memory is as it was before the call. False when micro-batches that had been finished stay in it:
        look at `Memory.seq_pos_max` before going on. Recurrent state can't be taken back to there, so of sequences that
        have some nothing stays.
    """

    memory_restored = True

    def __init__(self, message: str = "", *, status: int = 0, log: Iterable[str] = ()) -> None:
        super().__init__(message, log=log)
        self.status = status


class MemorySlotError(DecodeError):
    """The memory has no room for the batch; nothing was kept."""


class InvalidBatchError(DecodeError, ValueError):
    """The batch breaks a rule of llama.cpp; nothing was decoded."""


class DecodeAbortedError(DecodeError):
    """The decode was stopped by `Context.abort()`; micro-batches that had been finished stay in the memory."""

    memory_restored = False


class DecodeFatalError(DecodeError):
    """The decode failed inside; micro-batches that had been finished stay in the memory."""

    memory_restored = False


class OutputError(LlamacyError, LookupError):
    """The row asked for was not an output of the last decode."""


class TokenizeError(LlamacyError, ValueError):
    """A text or token could not be converted."""


class SamplerError(LlamacyError, ValueError):
    """A sampler can't do what was asked of it."""


class GrammarError(LlamacyError, ValueError):
    """A grammar is wrong, or was used against its rules.

    Attributes
    ----------
    rule
        The rule at fault, where a grammar is put together of several things; otherwise None.
    """

    rule: str | None = None

    def hinted(self, hint: str) -> GrammarError:
        """Return this error after adding what can be done."""
        self.args = (f"{self.args[0]}; {hint}",)
        return self

    def in_rule(self, rule: str) -> GrammarError:
        """Return this error after saying that it is about a rule."""
        self.rule = rule
        self.args = (f"{rule}: {self.args[0]}",)
        return self


class GrammarSyntaxError(GrammarError):
    """The text of a grammar can't be read.

    Attributes
    ----------
    line, column
        Where, counted from 1.
    """

    line: int
    column: int

    def __init__(self, message: str = "", *, line: int = 1, column: int = 1, log: Iterable[str] = ()) -> None:
        super().__init__(f"line {line}, column {column}: {message}", log=log)
        self.line = line
        self.column = column


class RegexError(GrammarError):
    """A regular expression can't be used.

    Attributes
    ----------
    pattern
        The expression.
    position
        Where in it, counted from 0.
    """

    pattern: str
    position: int

    def __init__(self, message: str = "", *, pattern: str = "", position: int = 0, log: Iterable[str] = ()) -> None:
        super().__init__(message, log=log)
        self.pattern = pattern
        self.position = position


class RegexSyntaxError(RegexError):
    """A regular expression isn't one by the rules of ECMA-262."""


class RegexUnsupportedError(RegexError):
    """A regular expression has a part that no automaton can do, or that isn't supported."""


class AutomatonSizeError(GrammarError):
    """A regular expression, or a number or format in a JSON Schema, takes more states or steps than allowed."""


class SchemaError(GrammarError):
    """A JSON Schema is wrong, or nothing can satisfy it.

    Attributes
    ----------
    pointer
        Where in the schema, as a URI fragment with a JSON Pointer (``"#/properties/a"``).
    keyword
        The keyword at fault, or None when it is the schema as a whole.
    place
        What the compiler knows of that place, or None.
    """

    pointer: str
    keyword: str | None

    place: object

    def __init__(
        self,
        message: str = "",
        *,
        pointer: str = "#",
        keyword: str | None = None,
        place: object = None,
        log: Iterable[str] = (),
    ) -> None:
        super().__init__(f"{pointer}: {message}", log=log)
        self.pointer = pointer
        self.keyword = keyword
        self.place = place


class UnsupportedSchemaError(SchemaError):
    """A JSON Schema says something that no grammar of a sensible size can enforce."""


class UnsatisfiableSchemaError(SchemaError):
    """Nothing can satisfy a JSON Schema."""


class ChatTemplateError(LlamacyError, ValueError):
    """A chat template is wrong, refuses the messages, or goes past a limit.

    Attributes
    ----------
    line
        The line of the template, counted from 1, or None where it isn't known.
    refusal
        What the template itself said with `raise_exception`, or None when it was not the template that refused.
    """

    line: int | None
    refusal: str | None

    def __init__(
        self, message: str = "", *, line: int | None = None, refusal: str | None = None, log: Iterable[str] = ()
    ) -> None:
        super().__init__(message, log=log)
        self.line = line
        self.refusal = refusal


class ChatTemplateLimitError(ChatTemplateError):
    """A chat template takes more time or memory than allowed."""


class StateError(LlamacyError, RuntimeError):
    """A saved state could not be written, read or restored."""


class CheckpointError(StateError):
    """A snapshot or checkpoint could not be taken, stored, read or restored."""


class CorruptCheckpointError(CheckpointError):
    """A stored snapshot is damaged, cut off, or isn't one; nothing of it was used."""


class IncompatibleCheckpointError(CheckpointError, ValueError):
    """A snapshot belongs to another model, context, build or version of the format; nothing was changed."""


class StaleCheckpointError(CheckpointError):
    """What a checkpoint relies on is no longer in the memory; nothing was changed."""


class PoolingError(LlamacyError, ValueError):
    """The model, or how its context pools, can't do what was asked for: it has no classification head, or another."""


class AdapterError(LlamacyError, ValueError):
    """A LoRA adapter or control vector is wrong or does not fit the model."""


class DownloadError(LlamacyError, OSError):
    """A starter model, or a file of the Hugging Face Hub, could not be fetched, or did not match its checksum."""


class SchemaRelaxedWarning(UserWarning):
    """A constraint of a JSON Schema was left out of the grammar because `strict` was off; the message names it."""
