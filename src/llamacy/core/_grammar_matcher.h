// Reads text by the rules of a grammar, and remembers what it found out.
//
// It reads the rules as llama.cpp's grammar does (llama-grammar.cpp), but for token rules. That one goes through all its
// stacks again for each token of a vocabulary; this one looks up what a state and a character come to once it has seen them.
// What is chosen by its word is still put to llama.cpp, unless there are very many ways to go on (MANY_WAYS).
#ifndef LLAMACY_GRAMMAR_MATCHER_H
#define LLAMACY_GRAMMAR_MATCHER_H

#include "_token_tree.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
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
    std::vector<uint32_t>             spans;   // first characters of spans in which no symbol tells one from another
    std::array<uint8_t, 128>          ascii_spans = {};
    std::vector<bool>                 above_ascii; // of each class: whether a character from 128 on may be in it

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

    // Once all rules have been added.
    void finish() {
        spans = { 0, 1, 128 };
        const auto add = [this](uint32_t low, uint32_t high) {
            spans.push_back(low);
            spans.push_back(high + 1);
        };
        for (const int32_t symbol : code) {
            if (symbol <= CHARACTER && symbol > CLASS) {
                add(CHARACTER - symbol, CHARACTER - symbol);
            }
        }
        for (const auto & one : classes) {
            above_ascii.push_back(one.negated);
            for (const auto & range : one.ranges) {
                if (range.first <= range.second && range.first <= 0x10FFFF) {
                    add(range.first, std::min<uint32_t>(range.second, 0x10FFFF));
                }
                above_ascii.back() = above_ascii.back() || range.second >= 128;
            }
        }
        std::sort(spans.begin(), spans.end());
        spans.erase(std::unique(spans.begin(), spans.end()), spans.end());
        while (spans.back() > 0x10FFFF) {
            spans.pop_back();
        }
        for (uint32_t one = 0; one < 128; ++one) {
            ascii_spans[one] = (uint8_t) find_span(one);
        }
    }

    // The span of a character.
    int32_t find_span(uint32_t one) const {
        return (int32_t) (std::upper_bound(spans.begin(), spans.end(), one) - spans.begin()) - 1;
    }

    // The last character of a span.
    uint32_t span_end(int32_t span) const {
        return span + 1 < (int32_t) spans.size() ? spans[span + 1] - 1 : 0x10FFFF;
    }

    // Whether a symbol that is no rule may stand for a character from 128 on; false only when that is certain.
    bool may_be_above_ascii(int32_t symbol) const {
        return symbol == ANY || (symbol > CLASS ? CHARACTER - symbol >= 128 : above_ascii[CLASS - symbol]);
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
        table.clear();
        n_others = 0;
        n_tops = 0;
        state_ids.clear();
        dead = intern({});
        std::vector<int32_t> tops;
        std::unordered_set<int32_t> seen;
        for (const int32_t begin : program->starts[program->root]) {
            expand(begin, 0, tops, seen);
        }
        now = {};
        now.state = intern(std::move(tops));
    }

    // Read a byte; false when the text leaves the grammar, or is not well-formed.
    bool read(place & at, uint8_t byte) {
        if (byte < 0x80 && at.utf8.left == 0) {
            at.state = byte == 0 ? dead : step(at.state, program->ascii_spans[byte]);
            return at.state != dead;
        }
        const bool first = at.utf8.left == 0;
        const char text = (char) byte;
        if ((first && !states[at.state].above_ascii) || !at.utf8.read(&text, 1)) {
            return false;
        }
        at.value = first ? byte & (0x3F >> at.utf8.left) : at.value << 6 | (byte & 0x3F);
        if (at.utf8.left == 0) {
            at.state = step(at.state, program->find_span(at.value));
        }
        return at.state != dead;
    }

    // Read bytes.
    bool read(place & at, const char * text, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            if (!read(at, (uint8_t) text[i])) {
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

    // Whether the text may end at a place.
    bool may_end(const place & at) const {
        const auto & tops = states[at.state].tops;
        return at.utf8.left == 0 && !tops.empty() && tops[0] == 0;
    }

    // Whether the text is whole and nothing can follow it.
    bool is_complete() const { return may_end(now) && states[now.state].tops.size() == 1; }

    // How many ways there are to go on at a place.
    size_t n_ways(const place & at) const { return states[at.state].tops.size(); }

    // How many characters of a set, any of them, may follow each other at a place.
    struct freedom {
        enum : int32_t { MOST = 16, ENDLESS = INT32_MAX };

        int32_t n = 0;
        std::vector<std::pair<uint32_t, uint32_t>> characters; // ranges, in order, none next to another
    };

    // The freedom at a place that is not within a character. The set is that which leads to one state and is larger than all
    // that lead to others; there is none when it is small. `n` is at most MOST, or ENDLESS.
    freedom find_freedom(const place & at) {
        freedom found;
        if (program->spans.size() > MOST_SPANS) {
            return found;
        }
        look_for_way(at.state);
        const way first = states[at.state].most;
        if (first.to == dead) {
            return found;
        }
        found.n = 1;
        int32_t from = at.state, to = first.to;
        while (found.n < freedom::MOST && to != from) {
            look_for_way(to);
            const way & next = states[to].most;
            if (next.to == dead || (first.spans & ~next.spans).any()) {
                break;
            }
            from = to;
            to = next.to;
            ++found.n;
        }
        found.n = to == from ? freedom::ENDLESS : found.n;
        for (int32_t span = 0; span < (int32_t) program->spans.size(); ++span) {
            if (!first.spans[span]) {
                continue;
            }
            const uint32_t low = program->spans[span];
            if (!found.characters.empty() && found.characters.back().second + 1 == low) {
                found.characters.back().second = program->span_end(span);
            } else {
                found.characters.emplace_back(low, program->span_end(span));
            }
        }
        return found;
    }

    // Forget what no text from here on needs, when that has become much.
    void tidy() {
        if (nodes.size() < MOST_NODES && states.size() < MOST_STATES && table.size() < MOST_STEPS &&
                n_others < MOST_STEPS && n_tops < MOST_TOPS) {
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
    enum : size_t { MOST_NODES = 1 << 18, MOST_STATES = 1 << 13, MOST_STEPS = 1 << 20, MOST_TOPS = 1 << 22 };
    enum : int32_t { MOST_SPANS = 256, FEW_CHARACTERS = 26, FEW_TOPS = 64 };

    // What is still to be read: from `pos` on to the end of an alternative, then what `below` says. 0 is nothing.
    struct node {
        int32_t pos;
        int32_t below;
    };

    // The spans that lead to a state.
    struct way {
        int32_t                 to = UNKNOWN;
        std::bitset<MOST_SPANS> spans;
    };

    struct state {
        std::vector<int32_t> tops; // nodes at characters, in order, with 0 when the text may end
        bool                 above_ascii = false; // a character from 128 on may follow
        way                  most;                // the way that most characters go
        std::unordered_map<int32_t, int32_t> others; // where spans lead that are not in the table
    };

    const grammar_program *                program;
    std::vector<node>                      nodes;
    std::unordered_map<uint64_t, int32_t>  node_ids;
    std::vector<state>                     states;
    std::vector<int32_t>                   table; // where the first spans lead, of each state
    size_t                                 n_others = 0; // entries of all of them
    size_t                                 n_tops = 0;   // … of all states
    std::map<std::vector<int32_t>, int32_t> state_ids;
    int32_t                                dead = 0;

    int32_t node_of(int32_t pos, int32_t below) {
        const auto found = node_ids.emplace((uint64_t) (uint32_t) pos << 32 | (uint32_t) below, (int32_t) nodes.size());
        if (found.second) {
            nodes.push_back({ pos, below });
        }
        return found.first->second;
    }

    // Add the nodes at characters that reading from `pos` on comes to, but for what comes of nodes that were seen before.
    void expand(int32_t pos, int32_t below, std::vector<int32_t> & tops, std::unordered_set<int32_t> & seen) {
        std::vector<node> todo = { { pos, below } };
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
            if (!seen.insert(id).second) { // by another way here, or by another top
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
            auto & made = states.back();
            made.tops = found.first->first;
            n_tops += made.tops.size();
            made.above_ascii = std::any_of(made.tops.begin(), made.tops.end(), [this](int32_t node) {
                return node != 0 && program->may_be_above_ascii(program->code[nodes[node].pos]);
            });
            table.resize(states.size() * table_width(), UNKNOWN);
        }
        return found.first->second;
    }

    size_t table_width() const { return std::min<size_t>(program->spans.size(), MOST_SPANS); }

    int32_t step(int32_t from, int32_t span) {
        const size_t width = table_width();
        if ((size_t) span < width) {
            const int32_t known = table[from * width + span];
            if (known != UNKNOWN) {
                return known;
            }
        } else {
            const auto & others = states[from].others;
            const auto known = others.find(span);
            if (known != others.end()) {
                return known->second;
            }
        }
        const uint32_t character = program->spans[span];
        std::vector<int32_t> tops;
        std::unordered_set<int32_t> seen;
        for (const int32_t id : states[from].tops) {
            const node one = nodes[id];
            if (id != 0 && program->matches(program->code[one.pos], character, character)) {
                expand(one.pos + 1, one.below, tops, seen);
            }
        }
        const int32_t to = intern(std::move(tops));
        if ((size_t) span < width) {
            table[from * width + span] = to;
        } else {
            states[from].others.emplace(span, to);
            ++n_others;
        }
        return to;
    }

    // Find the way that most characters go from a state; to `dead` when that isn't worth knowing.
    void look_for_way(int32_t from) {
        if (states[from].most.to != UNKNOWN) {
            return;
        }
        struct choice {
            uint64_t                matching; // which tops
            size_t                  n;        // characters
            std::bitset<MOST_SPANS> spans;
        };
        std::vector<choice> choices;
        const auto & tops = states[from].tops;
        for (int32_t span = 1; span < (int32_t) program->spans.size() && tops.size() <= FEW_TOPS; ++span) {
            const uint32_t character = program->spans[span];
            uint64_t matching = 0;
            for (size_t i = 0; i < tops.size(); ++i) {
                if (tops[i] != 0 && program->matches(program->code[nodes[tops[i]].pos], character, character)) {
                    matching |= (uint64_t) 1 << i;
                }
            }
            if (matching == 0) {
                continue;
            }
            auto one = std::find_if(choices.begin(), choices.end(),
                                    [=](const choice & known) { return known.matching == matching; });
            if (one == choices.end()) {
                one = choices.insert(one, { matching, 0, {} });
            }
            one->n += program->span_end(span) - character + 1;
            one->spans.set(span);
        }
        const auto best = std::max_element(
            choices.begin(), choices.end(), [](const choice & a, const choice & b) { return a.n < b.n; });
        way found = { dead, {} };
        if (best != choices.end() && best->n >= FEW_CHARACTERS) {
            found.spans = best->spans;
            int32_t span = 0;
            while (!found.spans[span]) {
                ++span;
            }
            found.to = step(from, span);
        }
        states[from].most = found;
    }
};

}  // namespace llamacy

#endif  // LLAMACY_GRAMMAR_MATCHER_H
