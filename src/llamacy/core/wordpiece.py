"""What BERT's tokenizer does to a text before it looks for word pieces.

llama.cpp's own version of it differs from the one that models were trained with. Of a letter that decomposes into
several it keeps the first one, which loses most of a Korean word. It drops the vowel signs of Indian scripts, which are
spacing marks and no accents; takes vertical tabs and form feeds for spaces; and cuts words of any length into pieces.
So models are loaded with its removal of accents turned off, and `Vocab` prepares texts here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llamacy.core.model_checks import tokenizer_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    from llamacy.core.gguf import Gguf
    from llamacy.types import StrPath

#: Metadata that says whether accents go, and what counts where nothing is said of them.
ACCENTS_KEY = "tokenizer.ggml.normalizer.strip_accents"
LOWERCASE_KEY = "tokenizer.ggml.normalizer.lowercase"

# each of these characters is a word of its own, so they make no long words
_IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f"
)
# compiled by the first text that needs them: most models have another tokenizer
_LONG_WORD = rf"[^\W_{_IDEOGRAPHS}]{{101,}}"
_ODD_ASCII = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[^\W_]{101}"
# a letter that is in no vocabulary: its word becomes the unknown token
_UNKNOWN_WORD = "\U00013000"


def wordpiece_overrides(
    source: StrPath | Sequence[StrPath] | BinaryIO | Gguf, given: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the overrides of metadata to load a model with, or None when those that were given are right.

    Parameters
    ----------
    source
        The model, as for `model_checks.check`.
    given : mapping of str to bool, int, float or str, optional
        What the caller wants to override.
    """
    if tokenizer_model(source) != "bert":
        return None
    return {**(given or {}), ACCENTS_KEY: False}


def normalize_wordpiece(text: str, strip_accents: bool) -> str:
    """Return a text as models with BERT's tokenizer want it; llama.cpp puts it in lower case.

    Parameters
    ----------
    text
        The text.
    strip_accents
        Decompose letters (NFD) and remove accents (category Mn).

    Returns
    -------
    str
        The text without control, format and private characters; a word of more than 100 letters is replaced by one
        that no vocabulary has.

    Source: ``BertNormalizer`` and ``WordPiece`` of Hugging Face's tokenizers.
    """
    ascii_only = text.isascii()
    if ascii_only and not re.search(_ODD_ASCII, text):
        return text
    text = "".join([character for character in text if not _is_removed(character)])
    if strip_accents and not ascii_only:
        decomposed = unicodedata.normalize("NFD", text)
        text = "".join([character for character in decomposed if unicodedata.category(character) != "Mn"])
    return re.sub(_LONG_WORD, _UNKNOWN_WORD, text)


def _is_removed(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co")
