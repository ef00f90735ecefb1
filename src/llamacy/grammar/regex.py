r"""Regular expressions of ECMA-262, as JSON Schema means them, as languages.

Everything regular is supported: classes and escapes by the sets of the standard, groups, quantifiers, ``^``, ``$``,
``\b``, ``\B``, look-ahead and look-behind at any place, ``\p{…}`` for general categories. Back-references, inline flags
and Unicode scripts are refused.
"""

from __future__ import annotations

from llamacy.errors import RegexSyntaxError, RegexUnsupportedError
from llamacy.grammar.alphabet import Alphabet
from llamacy.grammar.automaton import Dfa
from llamacy.grammar.charset import ANY, CharSet
from llamacy.grammar.lookaround import looking_language
from llamacy.grammar.positions import END, MATCH, SEEKER, Positions, shortened
from llamacy.grammar.regex_syntax import Anchor, Look, parse
from llamacy.grammar.table import determinise, normal_form
from llamacy.grammar.work import kept

__all__ = ["RegexSyntaxError", "RegexUnsupportedError", "pattern_language"]


_WORD_ENDS = (Anchor.WORD_BOUNDARY, Anchor.NO_WORD_BOUNDARY)


@kept(256)
def pattern_language(pattern: str, *, search: bool = True) -> Dfa:
    """Make the language of a regular expression.

    Parameters
    ----------
    pattern
        The expression, by the rules of ECMA-262 with the flag `u`.
    search
        Whether a text is in the language when the expression is found somewhere in it; otherwise it has to match the
        whole text.

    Returns
    -------
    Dfa
        The language, of whole texts.

    Raises
    ------
    RegexSyntaxError
        The pattern breaks the rules of ECMA-262.
    RegexUnsupportedError
        It has a back-reference, inline flags, a Unicode script, or is nested too deep.
    AutomatonSizeError
        It needs more than `MAX_STATES` states, or so many positions.
    """
    node = parse(pattern)
    if search:
        node = shortened(node)
    positions = Positions(node)
    if any(isinstance(read, Look) or read in _WORD_ENDS for read in positions.reads):
        return looking_language(positions, search=search)
    return _plain_language(positions, search=search)


def _plain_language(positions: Positions, *, search: bool) -> Dfa:
    """Make the language of an expression whose only conditions are ``^`` and ``$``."""
    reads, follow = positions.reads, positions.follow
    starts = sum(1 << position for position, read in enumerate(reads) if read is Anchor.START)
    ends = sum(1 << position for position, read in enumerate(reads) if read is Anchor.END)
    begin = later = positions.first
    if starts or ends:
        begin = _passed(begin, starts, follow)
        if begin & ends and _passed(begin, starts | ends, follow) & MATCH:
            begin |= END
        # Elsewhere than at the start, "^" holds nowhere and "$" leads to the end or nowhere.
        leading = 0
        for position, read in enumerate(reads):
            if read is Anchor.END and _passed(follow[position], ends, follow) & MATCH:
                leading |= 1 << position
        conditions = starts | ends
        begin &= ~conditions
        follow = [after & ~conditions | (END if after & leading else 0) for after in follow]
        later = later & ~conditions | (END if later & leading else 0)
    sets = [read for read in reads if isinstance(read, CharSet)]
    if search:
        sets.append(ANY)
    alphabet = Alphabet(sets)
    mask = alphabet.mask
    moves = [
        [(mask[id(read)], after)] if isinstance(read, CharSet) and read else []
        for read, after in zip(reads, follow, strict=True)
    ]
    if search:
        everything = mask[id(ANY)]
        moves[0] = [(everything, MATCH)]
        if later:
            moves[2] = [(everything, later | SEEKER)]
            begin |= SEEKER
    table = determinise(moves, begin, MATCH | END, MATCH if search else 0, positions.chains)
    return Dfa(*normal_form(*table, alphabet))


def _passed(mask: int, conditions: int, follow: list[int]) -> int:
    """Add to some positions those behind conditions that hold."""
    done = 0
    while todo := mask & conditions & ~done:
        lowest = todo & -todo
        done |= lowest
        mask |= follow[lowest.bit_length() - 1]
    return mask
