# distutils: language = c++
"""Read a GBNF grammar before llama.cpp does, and refuse what it can't take.

llama.cpp's parser recurses once for each open group, its search for left recursion once for each rule and without
remembering what it saw, its handling of ``{3,1}`` and of hidden left recursion never ends, and its error messages go to
stderr (src/llama-grammar.cpp). So the same language is read here first, with errors that say where, and the rules that
llama.cpp would make of it are examined: what is left for llama.cpp is bounded in depth, time and memory.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp.vector cimport vector

from llamacy.native cimport llama as c_llama

from llamacy.errors import GrammarError

__all__ = []

cdef enum:
    MAX_NESTING = 256               # groups inside each other; each takes a few hundred bytes of the C stack
    MAX_REPETITIONS = 2000          # MAX_REPETITION_THRESHOLD of llama-grammar.cpp
    MAX_ELEMENTS = 1000000          # elements of all rules, after repetitions are written out
    MAX_DEPTH = 1024                # rules that begin with a rule that begins with a rule …
    MAX_VISITS = 10000000           # steps of llama.cpp's search for left recursion
    MAX_WAYS = 16384                # ways to go on at any point, each of which is a stack at run time
    MAX_TOKEN = 1024                # bytes of <text>; tokenizers walk long texts recursively
    TERMINAL = -1                   # any character, or a token; other characters and classes are below

ctypedef vector[int] sequence


cdef class _Grammar:
    cdef const char* text
    cdef const char* pos
    cdef const c_llama.llama_vocab* vocab
    cdef set tokens                         # that <token> rules name
    cdef grammar_program* program
    cdef int64_t n_elements
    cdef vector[vector[sequence]] rules     # alternatives of each rule; a symbol is a rule, or no rule but below 0
    cdef vector[int] owners                 # rule that a generated rule belongs to
    cdef dict symbols                       # name -> rule
    cdef list names                         # of each rule, or None for a generated one
    cdef dict used                          # rule -> offset of its first use
    cdef set defined

    # text

    cdef error(self, str message, Py_ssize_t offset=-1):
        if offset < 0:
            offset = self.pos - self.text
        before = self.text[:offset].decode("utf-8", "replace")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        return GrammarError(f"line {line}, column {column}: {message}")

    cdef void space(self, bint newlines) noexcept:
        while self.pos[0] in (c" ", c"\t", c"#") or (newlines and self.pos[0] in (c"\r", c"\n")):
            if self.pos[0] == c"#":
                while self.pos[0] and self.pos[0] not in (c"\r", c"\n"):
                    self.pos += 1
            else:
                self.pos += 1

    cdef bint at_name(self) noexcept:
        cdef char c = self.pos[0]
        return c"a" <= c <= c"z" or c"A" <= c <= c"Z" or c"0" <= c <= c"9" or c == c"-"

    cdef int name(self) except -1:
        """Read a name and return its rule."""
        cdef const char* start = self.pos
        while self.at_name():
            self.pos += 1
        if self.pos == start:
            raise self.error("a rule name (letters, digits and -) is expected here")
        name = start[:self.pos - start]
        rule = self.symbols.get(name)
        if rule is None:
            rule = self.new_rule(-1)
            self.symbols[name] = rule
            self.names[rule] = name.decode()
        self.used.setdefault(rule, start - self.text)
        return rule

    cdef int new_rule(self, int owner) except -1:
        cdef int rule = self.rules.size()
        self.rules.resize(rule + 1)
        self.owners.push_back(rule if owner < 0 else owner)
        self.names.append(None)
        return rule

    cdef int64_t number(self) except -1:
        cdef int64_t value = 0
        if not c"0" <= self.pos[0] <= c"9":
            raise self.error("a number is expected here")
        while c"0" <= self.pos[0] <= c"9":
            value = min(10 * value + self.pos[0] - c"0", <int64_t>1000000000000)
            self.pos += 1
        return value

    cdef int64_t character(self) except -1:
        """Read a character and return its number."""
        cdef char c
        cdef int n_hex, i
        cdef int64_t value = 0
        if self.pos[0] == c"\\":
            n_hex = 2 if self.pos[1] == c"x" else 4 if self.pos[1] == c"u" else 8 if self.pos[1] == c"U" else 0
            if n_hex:
                for i in range(2, 2 + n_hex):
                    if self.pos[i] == 0 or self.pos[i] not in b"0123456789abcdefABCDEF":
                        raise self.error(f"this escape needs {n_hex} hexadecimal digits")
                value = int(self.pos[2:2 + n_hex], 16)
            elif self.pos[1] == 0 or self.pos[1] not in b"trn\\\"[]-":
                raise self.error(
                    "unknown escape; there are \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\xHH \\uHHHH \\UHHHHHHHH"
                )
            else:
                c = self.pos[1]
                value = c"\t" if c == c"t" else c"\r" if c == c"r" else c"\n" if c == c"n" else c
            self.pos += 2 + n_hex
        else:
            if self.pos[0] == 0:
                raise self.error("the grammar ends inside of a literal or character class")
            value = <unsigned char>self.pos[0]
            if value >= 0xC0:
                value &= 0x1F if value < 0xE0 else 0x0F if value < 0xF0 else 0x07
            self.pos += 1
            while (self.pos[0] & 0xC0) == 0x80:
                value = value << 6 | (self.pos[0] & 0x3F)
                self.pos += 1
        return value

    cdef int token(self) except -1:
        """Read ``<text>`` or ``<[id]>``."""
        cdef const char* start = self.pos
        cdef int32_t n, n_vocab = c_llama.llama_vocab_n_tokens(self.vocab)
        cdef c_llama.llama_token tokens[2]
        cdef int64_t token_id
        if self.pos[0] != c"<":
            raise self.error("a token, <text> or <[id]>, is expected after !")
        self.pos += 1
        if self.pos[0] == c"[":
            self.pos += 1
            token_id = self.number()
            if self.pos[0] != c"]" or self.pos[1] != c">":
                raise self.error("]> is expected here")
            if token_id >= n_vocab:
                raise self.error(f"there is no token {token_id}; the vocabulary has {n_vocab}", start - self.text)
            self.pos += 2
        else:
            while self.pos[0] and self.pos[0] != c">":
                self.pos += 1
            if not self.pos[0]:
                raise self.error("this token has no >", start - self.text)
            self.pos += 1
            if self.pos - start > MAX_TOKEN:
                raise self.error(f"a token has no text of {self.pos - start} bytes", start - self.text)
            n = c_llama.llama_tokenize(self.vocab, start, <int32_t>(self.pos - start), tokens, 2, False, True)
            if n != 1:
                spelled = start[:self.pos - start].decode("utf-8", "replace")
                raise self.error(f"{spelled} is not one token of this vocabulary", start - self.text)
            token_id = tokens[0]
        self.tokens.add(token_id)
        return 0

    # rules

    cdef int count(self, int64_t n) except -1:
        self.n_elements += n
        if self.n_elements > MAX_ELEMENTS:
            raise self.error(
                f"the grammar is too large: more than {MAX_ELEMENTS} elements once repetitions are written out"
            )
        return 0

    cdef int alternatives(self, int rule, int depth) except -1:
        cdef vector[sequence] found
        while True:
            found.push_back(self.sequence(rule, depth))
            self.count(1)
            if self.pos[0] != c"|":
                break
            self.pos += 1
            self.space(True)
        self.rules[rule].swap(found)
        return 0

    cdef sequence sequence(self, int rule, int depth) except *:
        cdef sequence symbols
        cdef size_t start = 0               # of the last item, which a repetition applies to
        cdef int64_t weight = 0             # its elements
        cdef int64_t n_rules = 1, least, most
        cdef int symbol, sub
        cdef size_t n_before
        cdef bint nested = depth > 0
        cdef char c
        while self.pos[0]:
            c = self.pos[0]
            if c in (c"*", c"+", c"?", c"{"):
                least, most = self.bounds(nested)
                if start == symbols.size():
                    raise self.error("there is nothing to repeat before this")
                n_rules *= most if most > 0 else least if least > 0 else 1
                if n_rules > MAX_REPETITIONS:
                    raise self.error(f"repetitions inside each other come to more than {MAX_REPETITIONS}")
                weight = self.repeat(symbols, start, weight, least, most, rule)
                continue
            start = symbols.size()
            weight = n_rules = 1
            symbol = TERMINAL
            if c == c'"' or c == c"[":
                self.pos += 1
                weight = self.literal(symbols) if c == c'"' else self.character_class(symbols)
                self.count(weight)
                self.space(nested)
                continue
            if c == c"<" or c == c"!":
                self.pos += c == c"!"
                self.token()
            elif c == c".":
                self.pos += 1
            elif c == c"(":
                if depth >= MAX_NESTING:
                    raise self.error(f"more than {MAX_NESTING} groups inside each other")
                self.pos += 1
                self.space(True)
                n_before = self.rules.size()
                sub = self.new_rule(self.owners[rule])
                self.alternatives(sub, depth + 1)
                if self.pos[0] != c")":
                    raise self.error("a ) is expected here")
                self.pos += 1
                n_rules = self.rules.size() - n_before
                symbol = sub
            elif self.at_name():
                symbol = self.name()
            else:
                break
            symbols.push_back(symbol)
            self.count(weight)
            self.space(nested)
        return symbols

    cdef int64_t literal(self, sequence& symbols) except -1:
        cdef int64_t n = 0
        while self.pos[0] != c'"':
            symbols.push_back(self.program.character(<uint32_t>self.character()))
            n += 1
        self.pos += 1
        return n

    cdef int64_t character_class(self, sequence& symbols) except -1:
        cdef int64_t n = 0
        cdef uint32_t low, high
        cdef char_class found
        found.negated = self.pos[0] == c"^"
        self.pos += found.negated
        while self.pos[0] != c"]":
            low = high = <uint32_t>self.character()
            n += 1
            if self.pos[0] == c"-" and self.pos[1] != c"]":
                self.pos += 1
                high = <uint32_t>self.character()
                n += 1
            found.add(low, high)
        self.pos += 1
        if n:
            symbols.push_back(self.program.character_class(found))
        return n

    cdef (int64_t, int64_t) bounds(self, bint nested) except *:
        """Read a repetition; the second number is -1 when there is no upper bound."""
        cdef int64_t least = 0, most = -1
        cdef const char* start = self.pos
        cdef char c = self.pos[0]
        self.pos += 1
        if c == c"+":
            least = 1
        elif c == c"?":
            most = 1
        elif c == c"{":
            self.space(nested)
            least = most = self.number()
            self.space(nested)
            if self.pos[0] == c",":
                self.pos += 1
                self.space(nested)
                most = self.number() if c"0" <= self.pos[0] <= c"9" else -1
                self.space(nested)
            if self.pos[0] != c"}":
                raise self.error("a , or } is expected here")
            self.pos += 1
            if max(least, most) > MAX_REPETITIONS:
                raise self.error(
                    f"more than {MAX_REPETITIONS} repetitions, which llama.cpp does not count; leave the upper bound "
                    "out",
                    start - self.text)
            if 0 <= most < least:
                raise self.error(f"the upper bound {most} is below the lower bound {least}", start - self.text)
        self.space(nested)
        return least, most

    cdef int64_t repeat(
        self, sequence& symbols, size_t start, int64_t weight, int64_t least, int64_t most, int rule
    ) except -1:
        """Rewrite the item that begins at `start` as llama.cpp does, and return its new number of elements."""
        cdef sequence item, rest
        cdef int64_t i, _i, n_optional = 1 if most < 0 else most - least
        cdef int optional = -1
        self.count(weight * max(least - 1, 0) + n_optional * (weight + 3) + 1)
        item.assign(symbols.begin() + start, symbols.end())
        if least == 0:
            symbols.resize(start)
        for _i in range(1, least):
            symbols.insert(symbols.end(), item.begin(), item.end())
        for i in range(n_optional):
            rest = item
            previous = optional
            optional = self.new_rule(self.owners[rule])
            if most < 0 or i > 0:
                rest.push_back(optional if most < 0 else <int>previous)
            self.rules[optional].push_back(rest)
            self.rules[optional].push_back(sequence())
        if n_optional:
            symbols.push_back(optional)
        return weight * least + (n_optional > 0)

    cdef int read(self) except -1:
        cdef int rule
        cdef const char* start
        self.space(True)
        while self.pos[0]:
            start = self.pos
            rule = self.name()
            self.space(False)
            if self.pos[0] != c":" or self.pos[1] != c":" or self.pos[2] != c"=":
                raise self.error("::= is expected here")
            if rule in self.defined:
                raise self.error(f"rule {self.names[rule]!r} is defined twice", start - self.text)
            self.defined.add(rule)
            self.pos += 3
            self.space(True)
            self.alternatives(rule, 0)
            if self.pos[0] and self.pos[0] not in (c"\r", c"\n"):
                raise self.error("a new line or the end of the grammar is expected here")
            self.space(True)
        for name, symbol in self.symbols.items():
            if symbol not in self.defined:
                raise self.error(f"rule {name.decode()!r} is not defined", self.used[symbol])
        return 0

    cdef str name_of(self, int rule):
        return repr(self.names[self.owners[rule]])

    # what llama.cpp will have to do

    cdef int examine(self) except -1:
        cdef vector[char] nullable = self.find_nullable()
        cdef vector[char] has_empty
        cdef vector[int] order, component
        cdef size_t rule
        has_empty.resize(self.rules.size(), 0)
        for rule in range(self.rules.size()):
            for i in range(self.rules[rule].size()):
                has_empty[rule] |= self.rules[rule][i].empty()
        # llama.cpp takes only a rule with an empty alternative for one that may be empty
        self.components(has_empty, order, component)
        self.refuse_cycles(has_empty, component, False)
        self.bound_search(has_empty, order)
        self.components(nullable, order, component)
        self.refuse_cycles(nullable, component, True)
        self.bound_ways(nullable, order, component)
        return 0

    cdef vector[char] find_nullable(self) except *:
        """Return which rules may match nothing."""
        cdef vector[char] nullable
        cdef vector[vector[int]] uses           # rule -> alternatives that it stands in
        cdef vector[int] rule_of, left, todo    # by alternative: its rule, symbols not known to be nullable
        cdef size_t rule, i, j
        cdef int symbol, alternative
        nullable.resize(self.rules.size(), 0)
        uses.resize(self.rules.size())
        for rule in range(self.rules.size()):
            for i in range(self.rules[rule].size()):
                alternative = rule_of.size()
                rule_of.push_back(rule)
                left.push_back(self.rules[rule][i].size())
                for j in range(self.rules[rule][i].size()):
                    symbol = self.rules[rule][i][j]
                    if symbol >= 0:
                        uses[symbol].push_back(alternative)
                if left.back() == 0 and not nullable[rule]:
                    nullable[rule] = 1
                    todo.push_back(rule)
        while not todo.empty():
            rule = todo.back()
            todo.pop_back()
            for i in range(uses[rule].size()):
                alternative = uses[rule][i]
                left[alternative] -= 1
                if left[alternative] == 0 and not nullable[rule_of[alternative]]:
                    nullable[rule_of[alternative]] = 1
                    todo.push_back(rule_of[alternative])
        return nullable

    cdef vector[int] leftmost(self, size_t rule, const vector[char]& nullable):
        """Return the rules that a rule may begin with, each as 2 * rule + 1 when something follows it."""
        cdef vector[int] found
        cdef size_t i, j
        cdef int symbol
        for i in range(self.rules[rule].size()):
            for j in range(self.rules[rule][i].size()):
                symbol = self.rules[rule][i][j]
                if symbol < 0:
                    break
                found.push_back(2 * symbol + (j + 1 < self.rules[rule][i].size()))
                if not nullable[symbol]:
                    break
        return found

    cdef int components(self, const vector[char]& nullable, vector[int]& order, vector[int]& component) except -1:
        """Group rules that begin with each other (Tarjan); `order` has those that a rule begins with before it."""
        cdef size_t n = self.rules.size(), root
        cdef vector[int] index, low, stack, path, step
        cdef vector[vector[int]] edges
        cdef int rule, other, n_seen = 0
        order.clear()
        component.assign(n, -1)
        index.assign(n, -1)
        low.assign(n, 0)
        step.assign(n, 0)
        edges.resize(n)
        for root in range(n):
            if index[root] >= 0:
                continue
            path.push_back(root)
            while not path.empty():
                rule = path.back()
                if index[rule] < 0:
                    index[rule] = low[rule] = n_seen
                    n_seen += 1
                    stack.push_back(rule)
                    edges[rule] = self.leftmost(rule, nullable)
                if step[rule] < <int>edges[rule].size():
                    other = edges[rule][step[rule]] >> 1
                    step[rule] += 1
                    if index[other] < 0:
                        path.push_back(other)
                    elif component[other] < 0:
                        low[rule] = min(low[rule], index[other])
                    continue
                path.pop_back()
                edges[rule].clear()
                if not path.empty():
                    low[path.back()] = min(low[path.back()], low[rule])
                if low[rule] == index[rule]:
                    while True:
                        other = stack.back()
                        stack.pop_back()
                        component[other] = rule
                        order.push_back(other)
                        if other == rule:
                            break
        return 0

    cdef int refuse_cycles(self, const vector[char]& nullable, const vector[int]& component, bint growing) except -1:
        """Refuse a rule that begins with itself; with `growing`, only when that leaves something to do each time."""
        cdef vector[int] edges
        cdef size_t rule, i
        for rule in range(self.rules.size()):
            edges = self.leftmost(rule, nullable)
            for i in range(edges.size()):
                if component[edges[i] >> 1] == component[rule] and (edges[i] & 1 or not growing):
                    raise self.error(
                        f"left recursion: rule {self.name_of(rule)} begins with itself",
                        self.used[self.owners[rule]])
        return 0

    cdef int bound_search(self, const vector[char]& nullable, const vector[int]& order) except -1:
        cdef vector[double] visits
        cdef vector[int] depth, edges
        cdef size_t i, j
        cdef int rule
        cdef double total = 0
        visits.assign(self.rules.size(), 1)
        depth.assign(self.rules.size(), 1)
        for i in range(order.size()):
            rule = order[i]
            edges = self.leftmost(rule, nullable)
            for j in range(edges.size()):
                visits[rule] += visits[edges[j] >> 1]
                depth[rule] = max(depth[rule], depth[edges[j] >> 1] + 1)
            total += visits[rule]
            if depth[rule] > MAX_DEPTH or total > MAX_VISITS:
                raise self.error(
                    f"rule {self.name_of(rule)} begins with too many rules inside each other",
                    self.used[self.owners[rule]])
        return 0

    cdef int bound_ways(
        self, const vector[char]& nullable, const vector[int]& order, const vector[int]& component
    ) except -1:
        """Bound the stacks at run time, and refuse rules that never come to a character."""
        cdef vector[double] ways                # ways to begin a rule; those of a component are added up
        cdef vector[char] begins                # some way begins with a character
        cdef size_t first = 0, last, i, j, k
        cdef double total, here, most
        cdef bint alive
        cdef int rule, symbol
        ways.assign(self.rules.size(), 0)
        begins.assign(self.rules.size(), 0)
        while first < order.size():
            last = first
            total = 0
            alive = False
            while last < order.size() and component[order[last]] == component[order[first]]:
                rule = order[last]
                for i in range(self.rules[rule].size()):
                    total += 1
                    for j in range(self.rules[rule][i].size()):
                        symbol = self.rules[rule][i][j]
                        if symbol < 0:
                            alive = True
                            break
                        if component[symbol] != component[rule]:
                            total += ways[symbol]
                            alive |= begins[symbol]
                        if not nullable[symbol]:
                            break
                last += 1
            for k in range(first, last):
                ways[order[k]] = total
                begins[order[k]] = alive
                if not alive and not nullable[order[k]]:
                    raise self.error(
                        f"rule {self.name_of(order[k])} never comes to a character", self.used[self.owners[order[k]]])
            first = last
        for rule in range(<int>self.rules.size()):
            most = ways[rule]
            for i in range(self.rules[rule].size()):
                here = 1
                for j in range(self.rules[rule][i].size(), 0, -1):
                    symbol = self.rules[rule][i][j - 1]
                    here = 1 if symbol < 0 else ways[symbol] + (here if nullable[symbol] else 0)
                    most = max(most, here)
            if most > MAX_WAYS:
                raise self.error(
                    f"in rule {self.name_of(rule)} there are more than {MAX_WAYS} ways to go on",
                    self.used[self.owners[rule]])
        return 0


cdef set grammar_guard(bytes text, bytes root, const llama_vocab* vocab, grammar_program* program):
    cdef size_t rule
    cdef _Grammar grammar = _Grammar.__new__(_Grammar)
    if not text.strip():
        raise GrammarError("the grammar is empty")
    if b"\0" in text:
        raise GrammarError("the grammar contains a NUL character")
    grammar.text = text
    grammar.pos = grammar.text
    grammar.vocab = vocab
    grammar.symbols = {}
    grammar.names = []
    grammar.used = {}
    grammar.defined = set()
    grammar.tokens = set()
    grammar.program = program
    grammar.read()
    if root not in grammar.symbols:
        raise GrammarError(f"the grammar has no rule {root.decode('utf-8', 'replace')!r} to begin with")
    grammar.examine()
    for rule in range(grammar.rules.size()):
        program.add_rule(grammar.rules[rule])
    program.root = grammar.symbols[root]
    program.finish()
    return grammar.tokens
