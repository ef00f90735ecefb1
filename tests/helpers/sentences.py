"""Sentences to embed: many lengths, many languages, and texts that break tokenizers. No model and no file is needed."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence

_SUBJECTS = (
    "the old lighthouse keeper",
    "a committee of engineers",
    "my neighbour's cat",
    "the second violinist",
    "an unusually patient teacher",
    "our delivery van",
    "the river below the mill",
    "every passenger on the night train",
    "Dr. Okafor",
    "the municipal library",
    "a flock of starlings",
    "the compiler",
    "the smallest company in town",
    "her great-grandmother",
)
_VERBS = (
    "repaired",
    "misplaced",
    "photographed",
    "described",
    "ignored",
    "bought",
    "translated",
    "measured",
    "painted over",
    "argued about",
    "finally understood",
    "recycled",
)
_OBJECTS = (
    "the broken telescope",
    "three boxes of oranges",
    "a map from 1874",
    "the quarterly budget",
    "an e-mail that nobody had answered",
    "the bridge's foundations",
    "a recipe for lentil soup",
    "the last known copy of the manuscript",
    "twelve kilometres of copper wire",
    "a proof of the theorem",
    "the vaccination schedule",
    "some wet shoes",
    "the loudspeaker",
)
_TAILS = (
    "before the rain began",
    "because the deadline had been moved to Monday",
    "without telling anyone",
    "while the radio played",
    "at a price of $3,499.95",
    "in less than 25 minutes",
    "although the instructions (page 7, section B) said otherwise",
    "for the benefit of the children",
    "and then went home",
    "somewhere between Lyon and Geneva",
    "with great care",
    "to everyone's surprise",
)
_OPENINGS = ("Yesterday,", "It is said that", "Why do you think", "According to the report,", "Honestly,", "In 2019,")

#: Texts of other languages and of odd shapes.
UNUSUAL = (
    "",
    " ",
    "\t\n ",
    ".",
    "a",
    "?!",
    "The café's naïve façade — déjà vu, as Zoë’s fiancé says.",
    "CAFE\u0301 and café are one word, written in two ways.",
    "Der Fluß fließt über die Straße, und die Äpfel fallen früh.",
    "El niño comió piñas; ¿dónde está la señora Muñoz?",
    "Žluťoučký kůň úpěl ďábelské ódy.",
    "Zażółć gęślą jaźń",
    "Ο ήλιος ανατέλλει πίσω από το νησί.",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "Її подруга живе біля Києва.",
    "السماء زرقاء والبحر هادئ اليوم.",
    "הספרייה העירונית נפתחת בשעה תשע.",
    "图书馆在河的另一边,星期一不开门。",
    "今日は東京でとても良い天気です。がんばって!",
    "カタカナとひらがなと漢字。",
    "오늘 서울의 날씨는 맑고 바람이 붑니다.",
    "도서관은 월요일에 문을 닫습니다",
    "हिन्दी में यह एक छोटा वाक्य है।",
    "আমি বই পড়তে ভালোবাসি।",
    "நான் நூலகத்திற்குச் செல்கிறேன்.",
    "ห้องสมุดปิดวันจันทร์",
    "Thư viện thành phố đóng cửa vào thứ Hai.",
    "İstanbul'da IŞIK ve ılık çay",
    "🙂 emoji 👩‍👩‍👧 family, flag 🇫🇷 and a heart ❤️",
    "math: ∑ x² ≤ ∞, α → β, 5 × 3 = 15, €20, ½, ™",
    "full-width ABC １２３ and ligature ﬁne",
    "zero\u200bwidth, soft\u00adhyphen, no\u00a0break, \ufeffmark",
    "line one\nline two\r\nline three\x0bfour\x0cfive",
    "control\x01char\x7f and \x1b[31mred\x1b[0m",
    "a_snake_case_name = camelCaseName(x, y)  # comment",
    "https://example.org/path/to?query=1&other=%20two#fragment",
    "user@example.org wrote: don't, can't, won't, y'all'd've",
    "ALL CAPS SENTENCE WITH NUMBERS 1234567890 AND 3.14159",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "x" * 90,
    "aaaaaaaaaa " * 20,
    "\U0001d54f mathematical, \U00020bb7 rare ideograph",
    "‘single’ “double” «guillemets» „low“ – en — em … dots",
    "word" + " word" * 252,
    "one two three four five six seven eight nine ten " * 25 + "far behind the end",
    "The library closes at nine. " * 60,
    "长 " * 300,
)


def sentences(count: int, seed: int = 1) -> list[str]:
    """Return `count` different texts: those of `UNUSUAL` spread among English ones of 5 to some 120 words."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count - len(UNUSUAL):
        n_clauses = rng.choice((1, 1, 1, 2, 2, 3, 4, 6))
        text = ", and ".join(_clause(rng) for _ in range(n_clauses))
        found[text[0].upper() + text[1:] + rng.choice(".....!?")] = None
    texts = list(found)
    for text in UNUSUAL:
        texts.insert(rng.randrange(len(texts) + 1), text)
    return texts


def pairs(count: int, seed: int = 2) -> list[tuple[str, str]]:
    """Return `count` pairs of a question and a text, for rerankers; some of each kind in `UNUSUAL`."""
    rng = random.Random(seed)
    found = []
    for index in range(count):
        query = f"Who {rng.choice(_VERBS)} {rng.choice(_OBJECTS)}?"
        document = _clause(rng)
        if index % 4 == 3:
            query, document = rng.choice(UNUSUAL[6:40]), rng.choice(UNUSUAL[6:40])
        found.append((query, document))
    return found


def answers(count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` pairs of a question and a text, of which every second one has the answer; some are unusual."""
    rng = random.Random(seed)
    found = []
    for index in range(count):
        verb, thing = rng.choice(_VERBS), rng.choice(_OBJECTS)
        query = f"Who {verb} {thing}?"
        document = f"{rng.choice(_OPENINGS)} {rng.choice(_SUBJECTS)} {verb} {thing} {rng.choice(_TAILS)}"
        if index % 8 >= 6:
            query = document = rng.choice(UNUSUAL[6:40])
        if index % 2 == 0:
            document = rng.choice(UNUSUAL[6:40]) if index % 8 >= 6 else _clause(rng)
        found.append((query, document))
    return found


def digest(texts: Sequence[str] | Sequence[tuple[str, str]]) -> str:
    """Return a digest of texts or pairs, which tells goldens of other texts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _clause(rng: random.Random) -> str:
    words = [rng.choice(_SUBJECTS), rng.choice(_VERBS), rng.choice(_OBJECTS)]
    if rng.random() < 0.4:
        words.insert(0, rng.choice(_OPENINGS))
    if rng.random() < 0.7:
        words.append(rng.choice(_TAILS))
    return " ".join(words)
