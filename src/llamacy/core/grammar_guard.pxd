from libc.stdint cimport int32_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from llamacy.native.handles cimport llama_vocab

cdef extern from "_grammar_matcher.h" namespace "llamacy" nogil:
    cppclass char_class "llamacy::grammar_program::char_class":
        cbool negated
        void add(uint32_t low, uint32_t high)
    cppclass grammar_program:
        int32_t root
        int character(uint32_t one)
        int character_class(const char_class& one)
        void add_rule(const vector[vector[int]]& alternatives)
        void finish()


# Raise GrammarError when llama.cpp's parser must not see the grammar. Returns the tokens that its <token> rules name,
# and puts its rules into an empty program.
cdef set grammar_guard(bytes text, bytes root, const llama_vocab* vocab, grammar_program* program)
