r"""Grammars that come with the package.

===============  ======================================================================================================
``json``         any JSON text
``json_object``  any JSON object
``json_array``   any JSON array
``list``         a Markdown list: lines that begin with ``- ``
``arithmetic``   one expression of decimal numbers, ``+ - * /`` and parentheses
``c``            source text in a subset of C: functions, declarations, statements without ``goto`` and ``switch``,
                 expressions with blanks around binary operators, comments, ``#include``
``chess``        the moves of one game in algebraic notation, numbered; moves fit the side that makes them, not the
                 position
``english``      words of Latin letters, digits and punctuation, one blank between them, in paragraphs
``japanese``     lines of kana, kanji, full-width characters and digits
===============  ======================================================================================================

White space and numbers come to an end in all of them, so a model can't write blanks or digits for ever. JSON has at
most one blank or one indented new line between its parts, numbers that a double can hold, no control characters in
strings, and no halves of surrogate pairs.
"""

from __future__ import annotations

from functools import cache

from llamacy.errors import GrammarError
from llamacy.grammar.emit import emit

NAMES = ("arithmetic", "c", "chess", "english", "japanese", "json", "json_array", "json_object", "list")


def builtin_text(name: str) -> str:
    """Return the GBNF text of a grammar, which begins with ``root``.

    Raises
    ------
    GrammarError
        There is no such grammar.
    """
    if name not in NAMES:
        raise GrammarError(f"there is no grammar {name!r}; there are {', '.join(NAMES)}")
    return _text(name)


@cache
def _text(name: str) -> str:
    if name == "c":
        return _C + _c_names()
    if name == "chess":
        return _chess()
    return _TEXTS[name]


_JSON = r"""
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)* ws)? "}"
member ::= string ":" " "? value
array  ::= "[" ws (value ("," ws value)* ws)? "]"
string ::= "\"" char* "\""
char   ::= [ !#-\[\]-~\xA0-\uD7FF\uE000-\U0010FFFF] | "\\" (["\\/bfnrt] | "u" unit)
unit   ::= [0-9A-CE-Fa-ce-f] hex{3} | [Dd] ([0-7] hex{2} | [89ABab] hex{2} "\\u" [Dd] [C-Fc-f] hex{2})
hex    ::= [0-9A-Fa-f]
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,20})? ([Ee] power)?
power  ::= "-" [0-9]{1,3} | "+"? ([0-9]{1,2} | [12] [0-8] [0-9])
ws     ::= (" " | "\n" [ \t]{0,64})?
"""

_TEXTS = {
    "json": "root   ::= value" + _JSON,
    "json_object": "root   ::= object" + _JSON,
    "json_array": "root   ::= array" + _JSON,
    "list": r"""
root ::= item ("\n" item)* "\n"?
item ::= "- " char (char | " ")*
char ::= [!-~\xA0-\u2027\u202A-\uD7FF\uE000-\U0010FFFF]
""",
    "arithmetic": r"""
root   ::= sum
sum    ::= factor (" "? [-+*/] " "? factor)*
factor ::= "-"? (number | "(" sum ")")
number ::= ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})?
""",
    "english": r"""
root      ::= paragraph ("\n" "\n"? paragraph)*
paragraph ::= word (" " word)*
word      ::= [!-~À-ÖØ-öø-ÿŒœ‘’“”–—…€£§©°½]+
""",
    "japanese": r"""
root ::= line ("\n" "\n"? line)*
line ::= char ("　"? char)*
char ::= kana | kanji | [0-9、-】〜！-～・…]
kana ::= [ぁ-ゖゝ-ゟァ-ヺー-ヿ]
kanji ::= [㐀-䶿一-鿿々〆〇]
""",
}

_C = r"""
root        ::= include* item+
include     ::= "#include " ("<" file ">" | "\"" file "\"") "\n" "\n"?
file        ::= [a-z] [a-z0-9_/]* ".h"
item        ::= (function | declaration | comment | remark) "\n" "\n"?

function    ::= ("void" | type) " " "*"? name "(" parameters? ")" ws block
parameters  ::= "void" | variable ("," ws variable)*
variable    ::= type " " "*"{0,2} name | "void *" name
type        ::= "unsigned "? ("char" | "short" | "int" | "long") | "float" | "double"
declaration ::= type " " declarator ("," ws declarator)* ";"
declarator  ::= name "[" [1-9] [0-9]{0,5} "]" | "*"{0,2} name (" = " value)?

block       ::= "{" ws (statement ws)* "}"
statement   ::= declaration | (assignment | call) ";" | return | if | while | do | for | block | comment | remark line
assignment  ::= place (" " ("=" | [-+*/%&|^] "=" | "<<=" | ">>=") " " value | "++" | "--")
place       ::= "*"? name | name "[" value "]"
return      ::= "return" (" " value)? ";"
if          ::= "if" test ws block (ws "else" (ws block | " " if))?
while       ::= "while" test ws block
do          ::= "do" ws block ws "while" test ";"
for         ::= "for" " "? "(" (variable " = " value | assignment)? ";" (ws value)? ";" (ws assignment)? ")" ws block
test        ::= " "? "(" value ")"

value       ::= unary (" " operator " " unary)* (" ? " value " : " value)?
operator    ::= [-+*/%&|^<>] | "==" | "!=" | "<=" | ">=" | "&&" | "||" | "<<" | ">>"
unary       ::= [-!~]? primary | [*&] name
primary     ::= number | character | string | name ("[" value "]")? | call | "(" value ")"
call        ::= name "(" (value ("," ws value)*)? ")"
number      ::= ("0" | [1-9] [0-9]{0,9}) ("." [0-9]{1,9})? | "0x" [0-9A-Fa-f]{1,8}
character   ::= "'" ([ -&(-[\]-~] | escape) "'"
string      ::= "\"" ([ !#-\[\]-~] | other | escape)* "\""
escape      ::= "\\" [nrt0'"\\]
remark      ::= "//" ([ -\[\]-~] | other)*
comment     ::= "/*" ("/" | "*"* ([ -)+-.0-~] | other | line))* "*"+ "/"
other       ::= [\xA0-\uD7FF\uE000-\U0010FFFF]
line        ::= "\n" [ \t]{0,64}
ws          ::= (" " | line)?
"""

_C_KEYWORDS = (
    "alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern false "
    "float for goto if inline int long nullptr register restrict return short signed sizeof static static_assert "
    "struct switch thread_local true typedef typeof typeof_unqual union unsigned void volatile while"
)


def _c_names() -> str:
    """Return the rules for identifiers, which are not keywords; those that begin with ``_`` are the compiler's own."""
    from llamacy.grammar import automaton
    from llamacy.grammar.language import language_rules
    from llamacy.grammar.regex import pattern_language

    names = pattern_language("[A-Za-z][A-Za-z0-9_]*", search=False) - automaton.choices(_C_KEYWORDS.split())
    return emit(language_rules(names, "name"))


_CHESS_TURNS = 300  # the longest game between masters had 269
_CHESS_MOVES = """
result      ::= "1-0" | "0-1" | "1/2-1/2"
white       ::= (white-pawn | piece) [+#]?
black       ::= (black-pawn | piece) [+#]?
piece       ::= "K" "x"? square | [BNQR] ([a-h]? [1-8]? "x"? square) | "O-O" "-O"?
square      ::= [a-h] [1-8]
white-pawn  ::= file-or-take ([3-7] | "8=" [BNQR])
black-pawn  ::= file-or-take ([2-6] | "1=" [BNQR])
"""


def _chess() -> str:
    files = "abcdefgh"
    takes = []
    for index, file in enumerate(files):
        beside = files[max(index - 1, 0) : index] + files[index + 1 : index + 2]
        takes.append(f'"{file}x" [{beside}]')
    lines = ['root        ::= turn-1 (" " result)?']
    for turn in range(1, _CHESS_TURNS + 1):
        more = f' (" " turn-{turn + 1})?' if turn < _CHESS_TURNS else ""
        lines.append(f'turn-{turn} ::= "{turn}. " white (" " black{more})?')
    return "\n".join(lines) + _CHESS_MOVES + f"file-or-take ::= [a-h] | {' | '.join(takes)}\n"
