"""Regular expressions as languages: each construct against its definition, `re` and `unicodedata`."""

from __future__ import annotations

import itertools
import re
import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from llamacy.grammar.automaton import Dfa, chars, choices, empty_string, everything, literal, nothing
from llamacy.grammar.charset import CharSet
from llamacy.grammar.regex import pattern_language
from tests.grammar.regexes import CLASSES, LETTERS, Expression, expressions

TEXTS = ["".join(letters) for size in range(5) for letters in itertools.product(LETTERS, repeat=size)]
CHARACTERS = [chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]


def characters(pattern: str) -> str:
    """Return the characters that an expression matches alone."""
    language = pattern_language(pattern, search=False)
    assert language.max_length in (1, None)
    return "".join(
        chr(point) for charset, target in language.edges[0] if target in language.accepting
        for low, high in charset for point in range(low, high + 1)
    )  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(expressions(looks=False))
def test_expression_is_found_where_the_definition_says(expression: Expression) -> None:
    found = pattern_language(expression.spell())
    whole = pattern_language(expression.spell(), search=False)
    for text in TEXTS:
        assert found.accepts(text) == expression.is_found(text), text
        assert whole.accepts(text) == expression.matches(text), text


@settings(deadline=None, max_examples=300)
@given(expressions(looks=False))
def test_expression_matches_what_python_matches(expression: Expression) -> None:
    compiled = re.compile(expression.spell(python=True), re.ASCII)
    found = pattern_language(expression.spell())
    whole = pattern_language(expression.spell(), search=False)
    for text in TEXTS:
        assert found.accepts(text) == bool(compiled.search(text)), text
        assert whole.accepts(text) == bool(compiled.fullmatch(text)), text


@pytest.mark.parametrize("pattern", CLASSES)
def test_class_has_its_characters(pattern: str) -> None:
    found = "".join(letter for letter in LETTERS if pattern_language(pattern, search=False).accepts(letter))
    assert found == CLASSES[pattern]


PYTHON_ALIKE = [
    r"^[a-z]{1,20}$", r"^\d{3}-\d{4}$", r"^[\w.+-]+@[\w-]+\.[\w.-]+$", r"foo|ba[rz]", r"^(?:foo|bar)?$", r"colou?r",
    r"^#(?:[0-9a-fA-F]{3}){1,2}$", r"^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$", r"^\S+(?: \S+)*$", r"^$", "",
    r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,}$", r"^(?!foo)\w+$", r"\bcat\b", r"\Bcat", r"(?<=\$)\d+", r"(?<![\w-])x",
    r"^-?\d+$", r"^[^\s@]+$", r"a{2,}b{0,2}c{3}", r"^(a|ab)(c|bcd)(d*)$", r"[\]\\-]", r"[^\]^]+$", r"x*",
    r"^x*?y+?z??$",
    r"(?:)", r"^[+-]?$",
]  # fmt: skip
SAMPLES = [
    "", "foo", "bar", "baz", "foobar", "colour", "color", "colouur", "#fff", "#a1B2c3", "#ab", "555-1234", "5555-1234",
    "me@example.com", "me@example", "a b", " a", "a  b", "10.0.0.1", "256.1.1.1", "1.2.3", "1.2.3.4.", "Ab1d", "ab1d",
    "A1", "cat", "a cat!", "concat", "cats", "$15", "15", "x", "ax", "-x", " x", "-12", "12", "--1", "aabccc", "abccc",
    "aaabbccc", "abcd", "acd", "ab", "xyz", "xxyyz", "y", "]", "\\", "-", "^", "]^", "é", "日本", "😀", "+", "lazy dog",
    "aaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaa", "\t", "a.b+c@d-e.f",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PYTHON_ALIKE)
def test_usual_pattern_matches_what_python_matches(pattern: str) -> None:
    compiled = re.compile(pattern.replace("$", r"\Z").replace(r"\\Z", r"\$"), re.ASCII)
    found, whole = pattern_language(pattern), pattern_language(pattern, search=False)
    for text in SAMPLES:
        assert found.accepts(text) == bool(compiled.search(text)), text
        assert whole.accepts(text) == bool(compiled.fullmatch(text)), text


@settings(deadline=None)
@given(st.data())
def test_words_of_a_language_match_in_python(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(PYTHON_ALIKE))
    compiled = re.compile(pattern.replace("$", r"\Z").replace(r"\\Z", r"\$"), re.ASCII)
    start = data.draw(st.text("ab1-@.", max_size=3))
    language = pattern_language(pattern)
    # Beyond ASCII, and among its control characters, the two differ on purpose.
    texts = literal(start).concat(chars(CharSet.of((" ", "~"))).repeat(0))
    for word in (language & texts).words(30):
        assert compiled.search(word), word
    for word in (texts - language).words(30):
        assert not compiled.search(word), word


def test_pattern_is_searched_for_unless_anchored() -> None:
    for text, expected in {"abc": True, "xabc": True, "abcx": True, "ab": False, "\nabc\n": True}.items():
        assert pattern_language("abc").accepts(text) is expected
    assert pattern_language("^abc$") == literal("abc") == pattern_language("abc", search=False)
    assert pattern_language("^abc") == literal("abc").concat(everything())
    assert pattern_language("abc$") == everything().concat(literal("abc"))
    assert pattern_language("") == pattern_language("a*") == pattern_language("^") == everything()


def test_dollar_is_the_end_and_nothing_before_a_last_line_break() -> None:
    assert not pattern_language("^a$").accepts("a\n")
    assert not pattern_language("a$").accepts("a\n")


def test_anchors_in_the_middle_hold_only_at_the_ends() -> None:
    assert pattern_language("a^b") == pattern_language("a$b") == nothing()
    assert pattern_language("^^a$$") == literal("a")
    assert pattern_language("(?:^|,)x(?:$|,)", search=False) == choices(["x", ",x", "x,", ",x,"])
    assert pattern_language("$^") == pattern_language("^$") == pattern_language("(^$)+") == empty_string()
    assert pattern_language("a*^b*$", search=False) == pattern_language("b*", search=False)


def test_dot_is_all_but_line_terminators() -> None:
    assert characters(".") == "".join(char for char in CHARACTERS if char not in "\n\r\u2028\u2029")


def test_escapes_have_the_sets_of_the_standard() -> None:
    spaces = "".join(
        char for char in CHARACTERS if char in "\t\v\f\n\r\ufeff\u2028\u2029" or unicodedata.category(char) == "Zs"
    )
    words = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
    for escape, expected in {"s": spaces, "d": "0123456789", "w": words}.items():
        assert characters(f"\\{escape}") == characters(f"[\\{escape}]") == expected
        rest = "".join(char for char in CHARACTERS if char not in expected)
        assert characters(f"\\{escape.upper()}") == characters(f"[^\\{escape}]") == rest


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\t\n\v\f\r\0", "\t\n\v\f\r\0"),
        (r"\cA\cj\cZ", "\x01\n\x1a"),
        (r"\x41\x7e", "A~"),
        (r"\u0041\u00e9\uFFFD", "Aé\ufffd"),
        (r"\ud83d\ude00", "😀"),
        (r"[\ud83d\ude00]", "😀"),
        (r"\u{1F600}\u{41}\u{000041}", "😀AA"),
        (r"\/\-\.\@\"\'\ \,\:\#\%\&\~\!\<\>\;\=\`\_\é", "/-.@\"' ,:#%&~!<>;=`_é"),
        (r"\^\$\\\.\*\+\?\(\)\[\]\{\}\|", r"^$\.*+?()[]{}|"),
        (r"[\b]", "\b"),
        ("😀", "😀"),
        ("\0", "\0"),
        ("}]", "}]"),
        ("a{,2}", "a{,2}"),
        ("{a}", "{a}"),
        ("x{", "x{"),
        ("x{1", "x{1"),
        ("(?<year>a)(?<$m_1>b)", "ab"),
        ("(a)(?:b)((c))", "abc"),
        ("a{0000000000002}", "aa"),
    ],
)
def test_spelling_means_one_text(pattern: str, text: str) -> None:
    assert pattern_language(pattern, search=False).words(2) == [text]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[a-c]", "abc"),
        ("[a-]", "-a"),
        ("[-a]", "-a"),
        ("[a^]", "^a"),
        (r"[\]\\]", "\\]"),
        (r"[\w-.]", "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"),
        (r"[+-\d]", "+-0123456789"),
        (r"[\d-z]", "-0123456789z"),
        (r"[\x30-\u0032]", "012"),
        ("[--/]", "-./"),
        ("[.$*+?(){}|]", "$()*+.?{|}"),
        ("[😀-😂]", "😀😁😂"),
        (r"[\u{1F600}-\u{1F601}]", "😀😁"),
        (r"[\cA-\cC]", "\x01\x02\x03"),
        (r"[\ud800-\udfff]", ""),
        ("[^\\0-\U0010ffff]", ""),
    ],
)
def test_class_is_read(pattern: str, expected: str) -> None:
    assert characters(pattern) == expected


def test_lone_surrogate_matches_nothing() -> None:
    assert pattern_language(r"\ud800") == pattern_language(r"a\udfff") == pattern_language("\ud800") == nothing()
    assert pattern_language(r"[^\ud800]", search=False) == pattern_language("[^]", search=False)


@pytest.mark.parametrize(
    ("name", "categories"),
    [
        ("L", "Ll Lm Lo Lt Lu"), ("Lu", "Lu"), ("Letter", "Ll Lm Lo Lt Lu"), ("Uppercase_Letter", "Lu"), ("Nd", "Nd"),
        ("gc=Nd", "Nd"), ("General_Category=Decimal_Number", "Nd"), ("digit", "Nd"), ("N", "Nd Nl No"),
        ("LC", "Ll Lt Lu"),
        ("P", "Pc Pd Pe Pf Pi Po Ps"), ("punct", "Pc Pd Pe Pf Pi Po Ps"), ("Z", "Zl Zp Zs"), ("S", "Sc Sk Sm So"),
        ("M", "Mc Me Mn"), ("Cn", "Cn"), ("Cs", ""), ("Sc", "Sc"),
    ],
)  # fmt: skip
def test_property_has_the_characters_of_its_categories(name: str, categories: str) -> None:
    expected = "".join(char for char in CHARACTERS if unicodedata.category(char) in categories.split())
    assert characters(rf"\p{{{name}}}") == expected
    assert pattern_language(rf"\P{{{name}}}", search=False) == pattern_language(rf"[^\p{{{name}}}]", search=False)


def test_binary_properties_have_their_characters() -> None:
    assert characters(r"\p{Any}") == "".join(CHARACTERS)
    assert characters(r"\p{ASCII}") == "".join(map(chr, range(128)))
    assert characters(r"\p{ASCII_Hex_Digit}") == "0123456789ABCDEFabcdef"
    assert characters(r"\p{Assigned}") == "".join(char for char in CHARACTERS if unicodedata.category(char) != "Cn")
    # PropList.txt: the separators and U+0009 to U+000D and U+0085
    spaces = [char for char in CHARACTERS if char in "\t\n\v\f\r\x85" or unicodedata.category(char)[0] == "Z"]
    assert characters(r"\p{White_Space}") == "".join(spaces)


@pytest.mark.parametrize("count", [0, 1, 7, 2000])
def test_counted_repeats_have_a_state_a_character(count: int) -> None:
    assert pattern_language(f"^[a-z]{{0,{count}}}$").size == count + 1
    assert pattern_language(f"^[a-z]{{{count}}}$").words(1) == ["a" * count]
    assert pattern_language(f"x[^x]{{{count},}}$").accepts("x" + "y" * count)
    assert not pattern_language(f"x[^x]{{{count},}}$").accepts("x" + "y" * (count - 1) if count else "y")


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        # Only the last digit counts: 52 ways to be short of one, and what may follow it after up to 50 others.
        (r"^.{0,50}\d.{0,50}$", None),
        (r"\d[a-z0-9]{0,50}$", 52),
        (r"\d.{40,}$", 42),
        (r"^(?:[a-z]{0,9}[a-c]-?){0,3}$", None),
        (r"x[a-z]{2000,}$", 2002),
    ],
)
def test_overlapping_counted_repeats_stay_small(pattern: str, size: int | None) -> None:
    language = pattern_language(pattern)
    assert size in (None, language.size)
    compiled = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    for text in ("", "7", "a" * 49, "7" * 51, "7" * 52, "7" * 101, "x7" * 20, "a1" * 26 + "b" * 50, "abc-" * 3):
        for variant in (text, text + "!", "1" + text, text + "c"):
            assert language.accepts(variant) == bool(compiled.search(variant)), variant


def test_repeats_of_repeats_are_repeats() -> None:
    assert (
        pattern_language("^(?:a{0,90}){0,90}$")
        == pattern_language("^a{0,8100}$")
        == chars(CharSet.of("a")).repeat(0, 8100)
    )
    assert pattern_language("^(?:a{2}){3,}$") == literal("aa").repeat(3)
    assert pattern_language("^(?:a{2,3}){2,3}$") == literal("a").repeat(4, 9)


def test_lazy_quantifiers_have_the_language_of_greedy_ones() -> None:
    for quantifier in ("*", "+", "?", "{2}", "{1,}", "{0,3}"):
        assert pattern_language(f"^a{quantifier}?b") == pattern_language(f"^a{quantifier}b")


@pytest.mark.parametrize("pattern", ["(a*)*", "(a|b*)*", "((a?)*)+", "(?:a{0,3}){0,3}", "(?:){0,99999999}", "(a{0})*"])
def test_loops_over_nothing_end(pattern: str) -> None:
    compiled = re.compile(pattern.replace("{0,99999999}", ""))
    language = pattern_language(pattern, search=False)
    for size in range(11):
        assert language.accepts("a" * size) == bool(compiled.fullmatch("a" * size))


@settings(deadline=None)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=6))
@example(["^$\\.*+?()[]{}|/-"])
def test_escaped_words_are_those_words(words: list[str]) -> None:
    escaped = "|".join("".join(f"\\u{{{ord(char):x}}}" for char in word) for word in words)
    assert pattern_language(f"^(?:{escaped})$") == choices(words)
    assert pattern_language(escaped, search=False) == choices(words)
    assert pattern_language(escaped) == everything().concat(choices(words)).concat(everything())


@settings(deadline=None)
@given(st.text("ab^$()[]{}|*+?.\\-,0123dwbu:=!<>/", max_size=12))
def test_what_python_and_we_take_means_the_same(pattern: str) -> None:
    # Spelled alike but meaning something else: numbered groups, bounds without a minimum, sets with "[[", "--" or "||".
    assume(not re.search(r"\\[\dubBdZ]|\{,|\[\^?\]|\[.*\[|--|\|\||\(\?[^:=!<]|\$", pattern))
    try:
        compiled = re.compile(pattern, re.ASCII)
        language: Dfa = pattern_language(pattern)
    except (re.error, ValueError):
        assume(False)
    for text in ("", "a", "b", "ab", "ba", "aab", "a-b", "0", "1,2", "{a}", "]", "/", ":="):
        assert language.accepts(text) == bool(compiled.search(text)), text
