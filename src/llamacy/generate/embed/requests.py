"""What a request for vectors asks for, and how it is answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamacy.core.vectors import normalize_rows
from llamacy.errors import DecodeAbortedError
from llamacy.generate.arguments import checked_count
from llamacy.generate.cancellation import current
from llamacy.generate.embed.norms import Normalization, norm_power
from llamacy.generate.embed.prefixes import Prefixes
from llamacy.generate.embed.progress import texts_bar
from llamacy.generate.embed.responses import check_encoding, embedding_response
from llamacy.generate.embed.texts import TextTokens, is_single
from llamacy.types import PoolingType

if TYPE_CHECKING:
    from llamacy.generate.embed.engine import EmbeddingEngine
    from llamacy.generate.embed.responses import CreateEmbeddingResponse


@dataclass
class EmbeddingRequest:
    """Options of one request.

    Parameters
    ----------
    engine
        What computes.
    normalize, truncate, prompt, dimensions, lora
        As for `llamacy.Embedding.embed`.
    prefixes
        Of the model.

    Attributes
    ----------
    n_tokens
        Tokens that were computed so far.

    Raises
    ------
    AdapterError, TypeError, ValueError
        An option is wrong.
    """

    engine: EmbeddingEngine
    normalize: Normalization = True
    truncate: bool = False
    prompt: str | None = None
    dimensions: int | None = None
    prefixes: Prefixes = field(default_factory=Prefixes)
    lora: Mapping[str, float] | None = None
    n_tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        engine = self.engine
        self._power = norm_power(self.normalize)
        if engine.pooling == PoolingType.RANK:
            self._power = None  # scores are no directions
        if self.dimensions is not None:
            checked_count("dimensions", self.dimensions)
            if engine.pooling == PoolingType.RANK:
                raise ValueError("dimensions can't be given: the model puts out scores, not vectors")
            if self.dimensions > engine.width:
                raise ValueError(f"dimensions={self.dimensions} is more than the {engine.width} that the model has")
        vocab = engine.model.vocab
        engine.adapters(self.lora)  # one that there is not is told before texts are read, and without any
        self._tokens = TextTokens(
            vocab, engine.n_most, prefix=self.prefixes.text(self.prompt), truncate=self.truncate
        ).tokens

    def embed(self, given: Any, *, progress: bool = False) -> Any:
        """Return the vector of one text, or those of several."""
        if is_single(given):
            return self.several([given])[0]
        return self.several(given, progress=progress)

    def several(self, texts: Iterable[Any], *, progress: bool = False) -> Any:
        """Return the vectors of texts; all are converted before the first one is computed."""
        # until here nothing was computed, so a text that is too long costs nothing
        cancellation = current.get()
        tokens = []
        for index, text in enumerate(texts):
            if cancellation is not None and cancellation.cancelled:
                raise DecodeAbortedError("the texts were not computed: their task was cancelled", status=2)
            tokens.append(self._tokens(text, index))
        self.n_tokens += sum(map(len, tokens))
        with texts_bar(progress, len(tokens)) as done:
            return self._finished(self.engine.run(tokens, done=done, lora=self.lora))

    def batches(self, texts: Iterable[Any], *, progress: bool = False) -> Iterator[tuple[int, Any]]:
        """Yield the index of the first text and the vectors, window by window."""
        total = len(texts) if isinstance(texts, Sized) else None
        with texts_bar(progress, total) as done:
            for start, lengths, vectors in self.engine.windows(texts, self._tokens, done=done, lora=self.lora):
                self.n_tokens += sum(lengths)
                yield start, self._finished(vectors)

    def response(self, given: Any, model_name: str | None, encoding_format: str) -> CreateEmbeddingResponse:
        """Return vectors in the shape of OpenAI's embeddings."""
        check_encoding(encoding_format)
        if encoding_format == "base64" and not self.engine.pooled:
            raise ValueError(
                "base64 is for one vector a text, but without pooling each token has one; set pooling_type"
            )
        vectors = self.several([given] if is_single(given) else given)
        model = self.engine.model
        name = model_name or model.name or Path(model.path or "").name
        return embedding_response(vectors, self.n_tokens, name, encoding_format)

    def _finished(self, vectors: Any) -> Any:
        if not self.engine.pooled:
            return [self._finished_rows(rows) for rows in vectors]
        return self._finished_rows(vectors)

    def _finished_rows(self, rows: Any) -> Any:
        if self.dimensions is not None and self.dimensions < rows.shape[1]:
            rows = rows[:, : self.dimensions].copy()
        if self._power is not None:
            normalize_rows(rows, self._power)
        return rows
