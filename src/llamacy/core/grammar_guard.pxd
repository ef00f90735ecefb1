from llamacy.native.handles cimport llama_vocab


# Raise GrammarError when llama.cpp's parser must not see the grammar; returns whether it has <token> rules.
cdef bint grammar_guard(bytes text, bytes root, const llama_vocab* vocab) except -1
