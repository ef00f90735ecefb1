"""What BERT's tokenizer does to a text before it looks for word pieces.

llama.cpp's own version of it differs from the one that models were trained with: it keeps only the first letter of a
decomposed syllable, which loses most of a Korean word, drops the vowel signs of Indian scripts (they are spacing marks,
not accents), takes vertical tabs and form feeds for spaces, and cuts words of any length into pieces.
"""

from __future__ import annotations

import re
import unicodedata

# Words are cut at punctuation, and each of these characters is a word of its own.
_IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\U0002f800-\U0002fa1f"
)
_MAX_WORD_LENGTH = 100
_LONG_WORD = re.compile(rf"[^\W_{_IDEOGRAPHS}]{{{_MAX_WORD_LENGTH + 1},}}")
_ODD_ASCII = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|[^\W_]{{{_MAX_WORD_LENGTH + 1}}}")
# A letter that is in no vocabulary: its word becomes the unknown token.
_UNKNOWN_WORD = "\U00013000"


def normalize_wordpiece(text: str) -> str:
    """Return the text in lower case and without accents, as uncased BERT models were trained on.

    Parameters
    ----------
    text
        A text, without special tokens.

    Returns
    -------
    str
        The text with letters decomposed (NFD), accents (category Mn), control and format characters removed, in lower
        case; words of more than 100 letters are replaced by one that no vocabulary knows.

    Source: ``BertNormalizer`` and ``WordPiece`` of Hugging Face's tokenizers.
    """
    if text.isascii() and not _ODD_ASCII.search(text):
        return text
    kept = "".join(character for character in text if character in "\t\n\r" or not _is_other(character))
    bare = "".join(c for c in unicodedata.normalize("NFD", kept) if unicodedata.category(c) != "Mn")
    # Without the rule for a sigma at the end of a word.
    lowered = bare.replace("\u03a3", "\u03c3").lower()
    return _LONG_WORD.sub(_UNKNOWN_WORD, lowered)


def _is_other(character: str) -> bool:
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co")
