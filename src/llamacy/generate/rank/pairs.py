"""Pairs of a query and a document as the tokens that a reranker was trained with."""

from __future__ import annotations

import logging
import re
from array import array
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from llamacy.errors import ContextLengthError, PoolingError, TokenizeError
from llamacy.types import VocabType

if TYPE_CHECKING:
    from collections.abc import Callable

    from llamacy.core.model import Model

    _Pair = Callable[[str], array[int]]

_logger = logging.getLogger("llamacy")

_PLACES = ("{query}", "{document}")
_ADD_SEP = "tokenizer.ggml.add_sep_token"

_patterns: WeakKeyDictionary[Model, re.Pattern[str]] = WeakKeyDictionary()


class PairTokens:
    """Makes tokens of pairs.

    Parameters
    ----------
    model
        The reranker.
    query
        What all documents are compared to.
    n_most
        Most tokens of a pair.
    template
        Text with ``{query}`` and ``{document}``; by default the model's, or the layout that its vocabulary asks for.
    truncate
        Cut the document of a pair that is too long at its end.

    Raises
    ------
    PoolingError
        The model has neither a template nor tokens to put between the two.
    TypeError, ValueError
        The query or the template is no text, or the template lacks a place.
    TokenizeError
        The query can't be converted.
    """

    def __init__(
        self, model: Model, query: str, n_most: int, *, template: str | None = None, truncate: bool = False
    ) -> None:
        _check_text("query", query)
        if template is None:
            template = model.chat_template("rerank")
        else:
            _check_text("template", template)
        self._n_most = n_most
        self._truncate = truncate
        layout = TokenLayout(model) if template is None else TemplateLayout(model, template)
        self._pair = layout.of(query)
        self._tokenize = model.vocab.tokenize
        self._detokenize = model.vocab.detokenize

    def tokens(self, document: str, index: int) -> array[int]:
        """Return the tokens of a pair.

        Raises
        ------
        ContextLengthError
            There are too many, also without the document where it may be cut.
        TokenizeError, TypeError, ValueError
            The document can't be converted, is no text, or leaves nothing to compute. The message names `index`.
        """
        _check_text(f"document {index}", document)
        tokens = self._pair(document)
        if not tokens:
            raise ValueError(f"document {index} and the query are empty, and the template puts nothing around them")
        if len(tokens) <= self._n_most:
            return tokens
        if not self._truncate:
            remedy = "shorten it, let documents be cut (truncate=True)"
            raise self._too_long(f"document {index} and the query have", len(tokens), remedy)
        _logger.info("document %d and the query have %d tokens and are cut to %d", index, len(tokens), self._n_most)
        return self._cut(document, len(tokens))

    def _cut(self, document: str, n: int) -> array[int]:
        parts = self._tokenize(document, add_special=False)
        n_kept = len(parts)
        # texts that are cut may get other tokens than they had before, so that one cut is not always enough
        while n_kept > 0:
            n_kept = max(n_kept - (n - self._n_most), 0)
            # the last character may have lost some of its bytes
            tokens = self._pair(self._detokenize(parts[:n_kept]).decode(errors="ignore"))
            n = len(tokens)
            if n <= self._n_most:
                return tokens
        raise self._too_long("the query alone has, with what goes around it,", n, "shorten it")

    def _too_long(self, what: str, n: int, remedy: str) -> ContextLengthError:
        return ContextLengthError(
            f"{what} {n} tokens, but at most {self._n_most} can be computed; {remedy}, or use a larger n_ctx where the "
            "model allows one",
            n_prompt=n,
            n_ctx=self._n_most,
        )


class TokenLayout:
    """Puts the tokens of the vocabulary around and between a query and a document.

    Parameters
    ----------
    model
        The reranker. BERT's layout is ``[CLS] query [SEP] document [SEP]``, that of RoBERTa and XLM-R
        ``<s> query </s> </s> document </s>``; other models say in their file which tokens they want.

    Raises
    ------
    PoolingError
        The vocabulary has nothing to put between the two.
    """

    def __init__(self, model: Model) -> None:
        vocab = model.vocab
        # -1 is no token
        begin = [-1 if vocab.bos is None else vocab.bos]
        eos = [next((token for token in (vocab.eos, vocab.sep) if token is not None), -1)]
        sep = eos if vocab.sep is None else [vocab.sep]
        if vocab.type == VocabType.WPM:
            between = last = sep
        else:
            # files from before the key was there leave it open; SentencePiece's unigrams are those of XLM-R
            has_sep = vocab.add_sep or (vocab.type == VocabType.UGM and _ADD_SEP not in model.metadata)
            begin *= vocab.add_bos
            last = eos * vocab.add_eos
            between = last + sep * has_sep
        if not between or -1 in (*begin, *between, *last):
            raise PoolingError(
                "the model has neither a template for pairs nor tokens that its vocabulary puts between two texts; "
                "give a template with {query} and {document}, as the model's page has it"
            )
        self._vocab = vocab
        self._begin, self._between, self._last = array("i", begin), array("i", between), array("i", last)

    def of(self, query: str) -> _Pair:
        """Return what makes the tokens of a document and this query."""
        vocab = self._vocab
        begin = self._begin + vocab.tokenize(query, add_special=False) + self._between
        last = self._last
        return lambda document: begin + vocab.tokenize(document, add_special=False) + last


class TemplateLayout:
    """Writes a query and a document into a template.

    What they have that is spelled like a special token stays text.

    Parameters
    ----------
    model
        The reranker.
    template
        Text with ``{query}`` and ``{document}``.

    Raises
    ------
    ValueError
        A place is missing.
    """

    def __init__(self, model: Model, template: str) -> None:
        for place in _PLACES:
            if place not in template:
                raise ValueError(f"a template for pairs needs {' and '.join(_PLACES)}, but this one has no {place}")
        self._vocab = model.vocab
        self._template = template
        self._special = _special(model)
        self._pieces = self._special.split(template)

    def of(self, query: str) -> _Pair:
        """Return what makes the tokens of a document and this query."""
        safe = self._special.search(query) is None

        def pair(document: str) -> array[int]:
            if safe and self._special.search(document) is None:
                return self._tokenize(_filled(self._template, query, document), special=True)
            # llama.cpp converts what is between special tokens by itself; they are at the odd places
            tokens = array("i")
            for index, piece in enumerate(self._pieces):
                if piece:
                    tokens += self._tokenize(_filled(piece, query, document), special=index % 2 == 1)
            return tokens

        return pair

    def _tokenize(self, text: str, *, special: bool) -> array[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=special)


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a text, not {text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizeError(f"{name} has a lone surrogate at index {error.start}, which is no character") from None


def _special(model: Model) -> re.Pattern[str]:
    """Return what finds special tokens that are spelled out; made once for each model, as vocabularies are large."""
    pattern = _patterns.get(model)
    if pattern is None:
        vocab = model.vocab
        spellings = {vocab.text(token) for token in range(vocab.n_tokens) if vocab.is_control(token)} - {""}
        # the longest first, as llama.cpp looks for them
        either = "|".join(map(re.escape, sorted(spellings, key=len, reverse=True)))
        pattern = _patterns[model] = re.compile(f"({either})" if either else "(?!)")
    return pattern


def _filled(template: str, query: str, document: str) -> str:
    """Return a template with both texts in it; what one text has that looks like a place is left alone."""
    texts = {"{query}": query, "{document}": document}
    return re.sub(r"\{query\}|\{document\}", lambda place: texts[place.group()], template)
