// Reads text by the rules of a grammar, and remembers what it found out.
//
// It reads the rules as llama.cpp's grammar does (llama-grammar.cpp), but for token rules. That one goes through all its
// stacks again for each token of a vocabulary; this one looks up what a state and a character come to once it has seen them.
// What is chosen by its word is still put to llama.cpp.
#ifndef LLAMACY_GRAMMAR_MATCHER_H
#define LLAMACY_GRAMMAR_MATCHER_H

#include "_token_tree.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

namespace llamacy {

// Rules as alternatives of symbols. A symbol from 0 on is a rule; below, a character, any character or a class of them.
struct grammar_program {
    enum : int32_t { ANY = -1, CHARACTER = -2, CLASS = -0x200000, END = INT32_MAX };

    struct char_class {
        bool negated = false;
        std::vector<std::pair<uint32_t, uint32_t>> ranges;

        void add(uint32_t low, uint32_t high) { ranges.emplace_back(low, high); }
    };

    std::vector<int32_t>              code;    // the alternatives, each with END after it
    std::vector<std::vector<int32_t>> starts;  // of each rule, where its alternatives begin
    std::vector<char_class>           classes;
    int32_t                           root = 0;

    void add_rule(const std::vector<std::vector<int>> & alternatives) {
        starts.emplace_back();
        for (const auto & alternative : alternatives) {
            starts.back().push_back((int32_t) code.size());
            code.insert(code.end(), alternative.begin(), alternative.end());
            code.push_back(END);
        }
    }

    // The symbol of a character, and of a class.
    int character(uint32_t one) {
        if (one > 0x10FFFF) { // none that there is
            return character_class({});
        }
        return CHARACTER - (int) one;
    }

    int character_class(const char_class & one) {
        classes.push_back(one);
        return CLASS - (int) (classes.size() - 1);
    }

    // Whether a symbol that is no rule can stand for a character from `low` to `high`, as llama.cpp sees it: a negated class
    // that names one of them stands for none (llama_grammar_match_partial_char).
    bool matches(int32_t symbol, uint32_t low, uint32_t high) const {
        if (symbol == ANY) {
            return true;
        }
        if (symbol > CLASS) {
            const uint32_t one = (uint32_t) (CHARACTER - symbol);
            return low <= one && one <= high;
        }
        const auto & found = classes[CLASS - symbol];
        for (const auto & range : found.ranges) {
            if (range.first <= high && low <= range.second) {
                return !found.negated;
            }
        }
        return found.negated;
    }
};

class grammar_matcher {
public:
    // A point in a text: what may follow, and what has been read of a character.
    struct place {
        int32_t    state = 0;
        uint32_t   value = 0;
        utf8_state utf8;
    };

    explicit grammar_matcher(const grammar_program & program) : program(&program) { start(); }

    place now;

    // Go back to where a text begins.
    void start() {
        nodes.assign(1, { -1, 0 });
        node_ids.clear();
        states.clear();
        n_others = 0;
        state_ids.clear();
        dead = intern({});
        std::vector<int32_t> tops;
        for (const int32_t begin : program->starts[program->root]) {
            expand(begin, 0, tops);
        }
        now = {};
        now.state = intern(std::move(tops));
    }

    // Read bytes; false when the text leaves the grammar, or is not well-formed.
    bool read(place & at, const char * text, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            const uint8_t byte = (uint8_t) text[i];
            if (byte < 0x80 && at.utf8.left == 0) {
                if (byte == 0) {
                    return false;
                }
                const int32_t next = states[at.state].ascii[byte];
                at.state = next != UNKNOWN ? next : step(at.state, byte);
            } else {
                const bool first = at.utf8.left == 0;
                if (!at.utf8.read(text + i, 1)) {
                    return false;
                }
                at.value = first ? byte & (0x3F >> at.utf8.left) : at.value << 6 | (byte & 0x3F);
                if (at.utf8.left == 0) {
                    at.state = step(at.state, at.value);
                }
            }
            if (at.state == dead) {
                return false;
            }
        }
        return true;
    }

    // Whether the text can go on from a place: it always can, except from within a character that does not fit.
    bool is_open(const place & at) const {
        if (at.utf8.left == 0) {
            return true;
        }
        // what this many bytes can't say shorter
        const uint32_t shortest = at.value > 0 ? 0 : at.utf8.left == 2 ? 0x800 : 0x10000;
        const uint32_t low = std::max(at.value << (6 * at.utf8.left), shortest);
        const uint32_t high = at.value << (6 * at.utf8.left) | ((1u << (6 * at.utf8.left)) - 1);
        for (const int32_t node : states[at.state].tops) {
            if (node != 0 && program->matches(program->code[nodes[node].pos], low, high)) {
                return true;
            }
        }
        return false;
    }

    // Whether a character that has begun at a place may be one that fits; false only when that is certain.
    bool is_hopeful(const place & at) const {
        if (at.utf8.left == 0 || is_open(at)) {
            return true;
        }
        const auto & tops = states[at.state].tops;
        return std::any_of(tops.begin(), tops.end(), [this](int32_t node) {
            const int32_t symbol = node == 0 ? 0 : program->code[nodes[node].pos];
            return symbol <= grammar_program::CLASS && program->classes[grammar_program::CLASS - symbol].negated;
        });
    }

    // Whether the text may end at a place.
    bool may_end(const place & at) const {
        const auto & tops = states[at.state].tops;
        return at.utf8.left == 0 && !tops.empty() && tops[0] == 0;
    }

    // Whether the text is whole and nothing can follow it.
    bool is_complete() const { return may_end(now) && states[now.state].tops.size() == 1; }

    // Forget what no text from here on needs, when that has become much.
    void tidy() {
        if (nodes.size() < MOST_NODES && states.size() < MOST_STATES && n_others < MOST_OTHERS) {
            return;
        }
        std::vector<std::vector<int32_t>> stacks;
        for (int32_t node : states[now.state].tops) {
            stacks.emplace_back();
            for (; node != 0; node = nodes[node].below) {
                stacks.back().push_back(nodes[node].pos);
            }
        }
        const place kept = now;
        start();
        std::vector<int32_t> tops;
        for (const auto & stack : stacks) {
            int32_t node = 0;
            for (size_t i = stack.size(); i-- > 0;) {
                node = node_of(stack[i], node);
            }
            tops.push_back(node);
        }
        now = kept;
        now.state = intern(std::move(tops));
    }

private:
    enum : int32_t { UNKNOWN = -1 };
    enum : size_t { MOST_WAYS = 16384 }; // each is a stack to llama.cpp, and they may double with each character
    enum : size_t { MOST_NODES = 1 << 18, MOST_STATES = 1 << 13, MOST_OTHERS = 1 << 20 };

    // What is still to be read: from `pos` on to the end of an alternative, then what `below` says. 0 is nothing.
    struct node {
        int32_t pos;
        int32_t below;
    };

    struct state {
        std::vector<int32_t> tops; // nodes at characters, in order, with 0 when the text may end
        std::array<int32_t, 128> ascii;
        std::unordered_map<uint32_t, int32_t> others;
    };

    const grammar_program *                program;
    std::vector<node>                      nodes;
    std::unordered_map<uint64_t, int32_t>  node_ids;
    std::deque<state>                      states;
    size_t                                 n_others = 0; // entries of all of them
    std::map<std::vector<int32_t>, int32_t> state_ids;
    int32_t                                dead = 0;

    int32_t node_of(int32_t pos, int32_t below) {
        const auto found = node_ids.emplace((uint64_t) (uint32_t) pos << 32 | (uint32_t) below, (int32_t) nodes.size());
        if (found.second) {
            nodes.push_back({ pos, below });
        }
        return found.first->second;
    }

    // Add the nodes at characters that reading from `pos` on comes to.
    void expand(int32_t pos, int32_t below, std::vector<int32_t> & tops) {
        std::vector<node> todo = { { pos, below } };
        std::unordered_map<uint64_t, bool> seen;
        while (!todo.empty()) {
            node one = todo.back();
            todo.pop_back();
            while (one.below != 0 && program->code[one.pos] == grammar_program::END) {
                one = nodes[one.below];
            }
            const int32_t symbol = program->code[one.pos];
            if (symbol == grammar_program::END) {
                tops.push_back(0);
                continue;
            }
            const int32_t id = node_of(one.pos, one.below);
            if (symbol < 0) {
                tops.push_back(id);
                continue;
            }
            if (!seen.emplace((uint64_t) id, true).second) {
                continue;
            }
            // what ends with a rule needs no place of its own to come back to
            const int32_t after = program->code[one.pos + 1] == grammar_program::END ? one.below
                                                                                     : node_of(one.pos + 1, one.below);
            for (const int32_t begin : program->starts[symbol]) {
                todo.push_back({ begin, after });
            }
        }
    }

    int32_t intern(std::vector<int32_t> tops) {
        std::sort(tops.begin(), tops.end());
        tops.erase(std::unique(tops.begin(), tops.end()), tops.end());
        if (tops.size() > MOST_WAYS) {
            throw std::runtime_error("the grammar is too ambiguous: after this text there are more than 16384 ways to go on");
        }
        const auto found = state_ids.emplace(std::move(tops), (int32_t) states.size());
        if (found.second) {
            states.emplace_back();
            states.back().tops = found.first->first;
            states.back().ascii.fill(UNKNOWN);
        }
        return found.first->second;
    }

    int32_t step(int32_t from, uint32_t character) {
        if (character >= 128) {
            const auto & others = states[from].others;
            const auto known = others.find(character);
            if (known != others.end()) {
                return known->second;
            }
        }
        std::vector<int32_t> tops;
        for (const int32_t id : states[from].tops) {
            const node one = nodes[id];
            if (id != 0 && program->matches(program->code[one.pos], character, character)) {
                expand(one.pos + 1, one.below, tops);
            }
        }
        const int32_t to = intern(std::move(tops));
        if (character >= 128) {
            states[from].others.emplace(character, to);
            ++n_others;
        } else {
            states[from].ascii[character] = to;
        }
        return to;
    }
};

}  // namespace llamacy

#endif  // LLAMACY_GRAMMAR_MATCHER_H
