// A grammar as a llama_sampler whose accept can be refused.
//
// llama.cpp's own grammar sampler aborts the process when it accepts an early end of generation, throws and stays broken
// when it accepts a token that doesn't fit (llama-grammar.cpp, llama_grammar_accept_impl and llama_grammar_accept_token),
// and its lazy form searches all text so far with a recursive regex at each token. This one asks first, changes nothing
// when it refuses, and looks for triggers in a bounded window. The grammar itself is llama.cpp's.
#ifndef LLAMACY_GRAMMAR_SAMPLER_H
#define LLAMACY_GRAMMAR_SAMPLER_H

#include "llama.h"
#include "_grammar_matcher.h"
#include "_reasoning_watch.h"
#include "_token_slices.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace llamacy {

enum grammar_verdict { GRAMMAR_ALLOWED, GRAMMAR_REFUSED, GRAMMAR_BROKEN };

// Text that is kept while no trigger was seen: at least TAIL of the last bytes, at most WINDOW; where a pattern looks at
// the beginning of the text all of it, up to LIMIT.
enum : size_t { TRIGGER_TAIL = 512, TRIGGER_WINDOW = 1024, TRIGGER_LIMIT = 65536, TRIGGER_STATES = 4096 };

// So many ways to go on that llama.cpp, which compares each with all others, takes more than a millisecond for a token; from
// there on the matcher is alone.
enum : size_t { MANY_WAYS = 256 };

struct grammar_trigger {
    std::regex  regex;
    std::string literal;          // the pattern is nothing but this text
    bool        whole = false;    // ^…$: try to match all text first
    bool        prefixed = false; // begins with "anything" or ^, so that no later start needs a try
    bool        anchored = false; // begins with ^, so that it needs the beginning of the text
};

struct grammar_config {
    const llama_vocab *          vocab = nullptr;
    std::string                  text;
    std::string                  root;
    bool                         lazy = false;
    bool                         special = true;      // special tokens stand for their spelling
    std::vector<llama_token>     spelled;             // those that do when not all do
    llama_token                  end = LLAMA_TOKEN_NULL; // some token that ends the generation
    std::vector<llama_token>     rule_tokens;         // that <token> rules name; what apply lets pass then, accept may refuse
    grammar_program              program;             // the rules, when no token rule is among them
    std::shared_ptr<sliced_vocab> tokens;
    bool                         windowed = true;     // no pattern looks at where the text begins
    reasoning_tags               reasoning;           // no trigger counts within it
    std::vector<grammar_trigger> triggers;
    std::vector<llama_token>     trigger_tokens;
    std::shared_ptr<llama_sampler> initial;           // of a lazy grammar: before its text begins; never changed
};

struct sampler_deleter {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_deleter>;

struct grammar_state {
    std::shared_ptr<const grammar_config> config;
    sampler_ptr                           native;  // nothing while a trigger is awaited, and after MANY_WAYS
    bool                                  fresh = true; // nothing was accepted
    bool                                  awaiting = false;
    bool                                  broken = false;
    utf8_state                            utf8;    // where in a character the text that the grammar took ends
    std::unique_ptr<grammar_matcher>      matcher; // where that text ends, or nothing when it can't tell
    std::string                           buffer; // the end of the text, while a trigger is awaited
    std::vector<std::pair<llama_token, size_t>> pieces; // its tokens, with their lengths
    size_t                                begin = 0;   // where in it triggers may stand
    bool                                  cut = false; // the text began before that
    reasoning_watch                       watch;
    reasoning_watch                       watch_after; // with the token that was checked last
    reasoning_outside                     outside;     // what the watch found in it

    // what the last check found out, so that accept doesn't do the work again
    llama_token checked = LLAMA_TOKEN_NULL;
    sampler_ptr after;
    std::string taken; // text that it begins with
    std::string piece;
};

inline sampler_ptr grammar_native(const grammar_config & config) {
    sampler_ptr native(llama_sampler_init_grammar(config.vocab, config.text.c_str(), config.root.c_str()));
    if (!native) {
        throw std::runtime_error("llama.cpp can't parse the grammar");
    }
    return native;
}

// Add a pattern to a configuration. Throws std::regex_error or std::runtime_error.
inline void grammar_add_trigger(grammar_config & config, const std::string & pattern) {
    size_t depth = 0, states = pattern.size();
    bool   in_class = false, plain = true, alternatives = false;
    std::string literal;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\' && i + 1 < pattern.size()) {
            const char escaped = pattern[++i];
            if (std::strchr(".^$|()*+?[]{}\\/-", escaped) == nullptr) {
                plain = false;
            }
            literal += escaped;
        } else if (in_class) {
            in_class = c != ']';
        } else if (c == '[') {
            in_class = true;
            plain = false;
        } else if (c == '(') {
            if (++depth > 64) {
                throw std::runtime_error("more than 64 groups inside each other");
            }
            plain = plain && i == 0;
        } else if (c == ')') {
            depth -= depth > 0;
            plain = plain && i + 1 == pattern.size() && pattern[0] == '(';
        } else if (c == '^') {
            config.windowed = false;
            plain = false;
        } else if (c == '{') {
            size_t most = 1, number = 0;
            for (++i; i < pattern.size() && pattern[i] != '}'; ++i) {
                number = pattern[i] >= '0' && pattern[i] <= '9' ? 10 * number + (pattern[i] - '0') : 0;
                most = std::max(most, number);
                if (most > TRIGGER_STATES) {
                    break;
                }
            }
            states *= most;
            plain = false;
        } else if (std::strchr(".$|*+?", c) != nullptr) {
            plain = false;
            alternatives = alternatives || (c == '|' && depth == 0);
        } else {
            literal += c;
        }
        // std::regex walks its states recursively
        if (states > TRIGGER_STATES) {
            throw std::runtime_error("the pattern with its repetitions is longer than 4096");
        }
    }
    grammar_trigger trigger;
    auto flags = std::regex::ECMAScript;
#if defined(__GLIBCXX__)
    // the default executor recurses once for each character of the text
    flags |= std::regex_constants::__polynomial;
#endif
    trigger.regex    = std::regex(pattern, flags);
    trigger.literal  = plain ? literal : std::string();
    trigger.whole    = pattern.size() > 1 && pattern.front() == '^' && pattern.back() == '$';
    trigger.anchored = !alternatives && pattern[0] == '^';
    trigger.prefixed = trigger.anchored || (!alternatives && pattern.compare(0, 7, "[\\s\\S]*") == 0);
    config.triggers.push_back(std::move(trigger));
}

// Where in the text the first pattern that matches hands over to the grammar; else npos. In its first `n_known` bytes there
// is none. Of a text that was cut, the first byte is what came before.
inline size_t grammar_find_trigger(const grammar_config & config, const std::string & text, size_t n_known, bool cut) {
    auto common = std::regex_constants::match_default;
    if (cut) {
        common = std::regex_constants::match_prev_avail | std::regex_constants::match_not_bol;
    }
    const auto begin = text.begin() + (cut && !text.empty());
    for (const auto & trigger : config.triggers) {
        if (!trigger.literal.empty()) {
            const size_t found = text.find(trigger.literal, n_known - std::min(n_known, trigger.literal.size() - 1));
            if (found != std::string::npos) {
                return found;
            }
            continue;
        }
        if (cut && trigger.anchored) {
            continue;
        }
        std::smatch match;
        const auto flags = trigger.prefixed ? common | std::regex_constants::match_continuous : common;
        if ((trigger.whole && !cut && std::regex_match(text, match, trigger.regex)) ||
                std::regex_search(begin, text.end(), match, trigger.regex, flags)) {
            for (size_t i = 1; i < match.size(); ++i) {
                if (match.length(i) > 0) {
                    return match[i].first - text.begin();
                }
            }
            return match[0].first - text.begin();
        }
    }
    return std::string::npos;
}

inline bool contains(const std::vector<llama_token> & tokens, llama_token token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

inline bool grammar_try_accept(llama_sampler * native, llama_token token) {
    llama_token_data       data  = { token, 0.0f, 0.0f };
    llama_token_data_array array = { &data, 1, -1, false };
    llama_sampler_apply(native, &array);
    if (data.logit == -INFINITY) {
        return false;
    }
    try {
        llama_sampler_accept(native, token);
    } catch (const std::runtime_error &) {
        return false;
    }
    return true;
}

// Whether a token that llama.cpp's grammar lets pass may come, which has the text that the grammar took so far left well
// formed, does not end it within a character, and says what it will be read as.
inline bool grammar_takes(const grammar_state & state, llama_token token) {
    const auto & config = *state.config;
    if (llama_vocab_is_eog(config.vocab, token)) {
        return state.utf8.left == 0;
    }
    if (!config.special && token_is_special(config.vocab, token) && !contains(config.rule_tokens, token) &&
            !contains(config.spelled, token)) {
        return false;
    }
    const std::string piece = token_piece(config.vocab, token);
    utf8_state utf8 = state.utf8;
    if (piece.find('\0') != std::string::npos || !utf8.read(piece.data(), piece.size())) {
        return false;
    }
    if (config.rule_tokens.empty()) {
        return true;
    }
    sampler_ptr after(llama_sampler_clone(state.native.get()));
    return grammar_try_accept(after.get(), token);
}

// Whether special tokens, or this one, stand for their spelling.
inline bool grammar_spells(const grammar_config & config, llama_token token) {
    return config.special || contains(config.spelled, token);
}

// Whether a grammar that has begun allows a token, by its matcher.
inline bool grammar_fits(grammar_state & state, llama_token token) {
    const auto & config = *state.config;
    auto & tree = config.tokens->tree;
    tree.build();
    auto & matcher = *state.matcher;
    auto at = matcher.now;
    switch (tree.kind(token)) {
        case token_tree::END:     return matcher.may_end(at);
        case token_tree::NOTHING: return false;
        case token_tree::SPECIAL: if (!grammar_spells(config, token)) return false; // fall through
        default:                  break;
    }
    const int32_t rank = tree.rank(token);
    return matcher.read(at, tree.text(rank), tree.size(rank)) && matcher.is_open(at);
}

// Rule out, by a logit of -inf, the candidates that a grammar which has begun refuses.
inline void grammar_filter(const grammar_state & state, llama_token_data * data, size_t n) {
    constexpr size_t CHUNK = 1024; // llama.cpp keeps the text of all of them at a time, which a cache can hold
    for (size_t begin = 0; begin < n; begin += CHUNK) {
        llama_token_data_array array = { data + begin, std::min(CHUNK, n - begin), -1, false };
        llama_sampler_apply(state.native.get(), &array);
        for (size_t i = 0; i < array.size; ++i) {
            if (array.data[i].logit != -INFINITY && !grammar_takes(state, array.data[i].id)) {
                array.data[i].logit = -INFINITY;
            }
        }
    }
}

// Start the grammar with the tokens that overlap what follows `start` in the text; nothing when they don't fit.
inline sampler_ptr grammar_replay(const grammar_state & state,
                                  const std::vector<std::pair<llama_token, size_t>> & pieces, size_t start) {
    sampler_ptr native(llama_sampler_clone(state.config->initial.get()));
    size_t begin = 0;
    for (const auto & piece : pieces) {
        const size_t end = begin + piece.second;
        if (end <= start) {
            begin = end;
            continue;
        }
        if (begin < start) {
            // Only llama.cpp's lazy grammar takes a part of a token, so let one trigger inside this one.
            const std::string pattern = "^[\\s\\S]{" + std::to_string(start - begin) + "}([\\s\\S]+)$";
            const char * patterns[] = { pattern.c_str() };
            const auto & config = *state.config;
            native.reset(llama_sampler_init_grammar_lazy_patterns(
                config.vocab, config.text.c_str(), config.root.c_str(), patterns, 1, nullptr, 0));
            try {
                llama_sampler_accept(native.get(), piece.first);
            } catch (const std::runtime_error &) {
                return nullptr;
            }
        } else if (!grammar_try_accept(native.get(), piece.first)) {
            return nullptr;
        }
        begin = end;
    }
    return native;
}

// Where the grammar begins in the text that ends with the last piece in the buffer, or npos.
inline size_t grammar_begin(grammar_state & state, llama_token token) {
    const auto & config = *state.config;
    const size_t n_before = state.buffer.size() - state.piece.size();
    size_t begin = state.begin, end = std::string::npos;
    bool   cut = state.cut;
    if (!config.reasoning.ends.empty()) {
        const reasoning_outside outside = state.outside = state.watch_after.read(config.reasoning, state.piece);
        if (outside.begin == std::string::npos) {
            return std::string::npos;
        }
        if (outside.begin > 0 || state.watch.inside) {
            begin = n_before + outside.begin;
            cut = false;
        }
        end = outside.end;
    }
    if (contains(config.trigger_tokens, token) && begin <= n_before && !state.watch_after.inside) {
        return n_before;
    }
    if (config.triggers.empty()) {
        return std::string::npos;
    }
    if (begin == 0 && end == std::string::npos) {
        return grammar_find_trigger(config, state.buffer, n_before, cut);
    }
    const size_t n = end == std::string::npos ? end : std::max(n_before + end, begin) - begin;
    const size_t n_known = n_before - std::min(n_before, begin);
    const size_t found = grammar_find_trigger(config, state.buffer.substr(begin, n), n_known, cut);
    return found == std::string::npos ? found : begin + found;
}

// What comes of a token while a trigger is awaited; with `begin`, make the grammar that begins with it.
inline grammar_verdict grammar_check_trigger(grammar_state & state, llama_token token, bool begin) {
    state.checked = LLAMA_TOKEN_NULL;
    state.piece = token_piece(state.config->vocab, token);
    const size_t n_before = state.buffer.size();
    state.buffer += state.piece;
    if (!state.config->reasoning.ends.empty()) {
        state.watch_after = state.watch;
    }
    const size_t start = grammar_begin(state, token);
    grammar_verdict verdict = GRAMMAR_ALLOWED;
    if (start != std::string::npos) {
        state.pieces.emplace_back(token, state.piece.size());
        utf8_state utf8;
        sampler_ptr after;
        if (utf8.read(state.buffer.data() + start, state.buffer.size() - start)) {
            after = grammar_replay(state, state.pieces, start);
        }
        state.pieces.pop_back();
        verdict = after ? GRAMMAR_ALLOWED : GRAMMAR_REFUSED;
        if (begin) {
            state.after = std::move(after);
            state.taken = state.buffer.substr(start);
        }
    }
    state.buffer.resize(n_before);
    return verdict;
}

// Keep the text of a token that triggers nothing.
inline void grammar_wait(grammar_state & state, llama_token token) {
    const auto & config = *state.config;
    if (!config.reasoning.ends.empty()) {
        const bool was_inside = state.watch.inside;
        const reasoning_outside outside = state.outside;
        std::swap(state.watch, state.watch_after);
        if (state.watch.inside || was_inside || outside.begin > 0) {
            state.buffer.clear();
            state.pieces.clear();
            state.begin = 0;
            state.cut = false;
        }
        if (state.watch.inside) {
            return;
        }
        if ((was_inside || outside.begin > 0) && !config.triggers.empty()) {
            state.begin = outside.begin;
        }
    }
    if (config.triggers.empty()) {
        return;
    }
    state.buffer += state.piece;
    state.pieces.emplace_back(token, state.piece.size());
    if (state.buffer.size() > (config.windowed || state.cut ? TRIGGER_WINDOW : TRIGGER_LIMIT)) {
        size_t cut = 0, n = 0;
        while (n < state.pieces.size() && state.buffer.size() - cut - state.pieces[n].second > TRIGGER_TAIL) {
            cut += state.pieces[n++].second;
        }
        state.buffer.erase(0, cut);
        state.pieces.erase(state.pieces.begin(), state.pieces.begin() + n);
        state.cut = state.cut || cut > state.begin;
        state.begin -= std::min(cut, state.begin);
    }
}

inline grammar_verdict grammar_check(grammar_state & state, llama_token token) {
    state.checked = LLAMA_TOKEN_NULL;
    state.after.reset();
    if (state.broken) {
        return GRAMMAR_BROKEN;
    }
    if (state.awaiting) {
        if (grammar_check_trigger(state, token, true) != GRAMMAR_ALLOWED) {
            return GRAMMAR_REFUSED;
        }
    } else {
        state.piece = token_piece(state.config->vocab, token);
        if (state.matcher && !llama_vocab_is_eog(state.config->vocab, token)) {
            // the first to look, since it does not drown in ambiguity
            auto at = state.matcher->now;
            if (!state.matcher->read(at, state.piece.data(), state.piece.size())) {
                return GRAMMAR_REFUSED;
            }
            if (std::max(state.matcher->n_ways(state.matcher->now), state.matcher->n_ways(at)) > MANY_WAYS) {
                state.native.reset();
            }
        }
        if (!state.native) {
            state.checked = grammar_fits(state, token) ? token : LLAMA_TOKEN_NULL;
            return state.checked == token ? GRAMMAR_ALLOWED : GRAMMAR_REFUSED;
        }
        llama_token_data data = { token, 0.0f, 0.0f };
        grammar_filter(state, &data, 1);
        if (data.logit == -INFINITY) {
            return GRAMMAR_REFUSED;
        }
    }
    state.checked = token;
    return GRAMMAR_ALLOWED;
}

// Note text that llama.cpp's grammar has taken.
inline void grammar_read(grammar_state & state, const std::string & text) {
    state.utf8.read(text.data(), text.size());
    if (state.matcher) {
        if (state.matcher->read(state.matcher->now, text.data(), text.size())) {
            state.matcher->tidy();
        } else {
            state.matcher.reset();
        }
    }
}

inline void grammar_accept(grammar_state & state, llama_token token) {
    if (state.checked != token && grammar_check(state, token) != GRAMMAR_ALLOWED) {
        throw std::runtime_error("the grammar does not allow this token");
    }
    state.checked = LLAMA_TOKEN_NULL;
    state.fresh = false;
    if (state.after) {
        state.native = std::move(state.after);
        grammar_read(state, state.taken);
        state.awaiting = false;
        state.buffer.clear();
        state.pieces.clear();
    } else if (!state.awaiting) {
        state.broken = true;
        if (state.native) {
            llama_sampler_accept(state.native.get(), token);
        }
        if (!llama_vocab_is_eog(state.config->vocab, token)) {
            grammar_read(state, state.piece);
        }
        state.broken = false;
    } else {
        grammar_wait(state, token);
    }
}

inline void grammar_reset(grammar_state & state) {
    state.native   = state.config->lazy ? nullptr : grammar_native(*state.config);
    state.fresh    = true;
    state.awaiting = state.config->lazy;
    state.broken   = false;
    state.utf8     = {};
    state.matcher.reset();
    if (state.config->rule_tokens.empty()) {
        state.matcher.reset(new grammar_matcher(state.config->program));
    }
    state.checked  = LLAMA_TOKEN_NULL;
    state.after.reset();
    state.buffer.clear();
    state.pieces.clear();
    state.begin = 0;
    state.cut   = false;
    state.watch.reset(state.config->reasoning);
}

inline grammar_state & grammar_of(const llama_sampler * sampler) {
    return *static_cast<grammar_state *>(sampler->ctx);
}

inline void grammar_mask(grammar_state & state, llama_token_data_array * candidates);
inline llama_sampler_i * grammar_interface();

inline llama_sampler * grammar_clone(const llama_sampler * sampler) {
    const auto & source = grammar_of(sampler);
    auto state = std::make_unique<grammar_state>();
    state->config   = source.config;
    if (source.native) {
        // llama.cpp's clone looks each way to go on up among all rules, which may take far longer than parsing
        state->native = source.fresh ? grammar_native(*source.config)
                                     : sampler_ptr(llama_sampler_clone(source.native.get()));
    }
    state->fresh    = source.fresh;
    state->awaiting = source.awaiting;
    state->broken   = source.broken;
    state->utf8     = source.utf8;
    if (source.matcher) {
        state->matcher.reset(new grammar_matcher(*source.matcher));
    }
    state->buffer   = source.buffer;
    state->pieces   = source.pieces;
    state->begin    = source.begin;
    state->cut      = source.cut;
    state->watch    = source.watch;
    llama_sampler * result = llama_sampler_init(grammar_interface(), state.get());
    state.release();
    return result;
}

inline llama_sampler_i * grammar_interface() {
    static llama_sampler_i interface = [] {
        llama_sampler_i i = {};
        i.name   = [](const llama_sampler *) { return "grammar"; };
        i.accept = [](llama_sampler * sampler, llama_token token) { grammar_accept(grammar_of(sampler), token); };
        i.apply  = [](llama_sampler * sampler, llama_token_data_array * candidates) {
            auto & state = grammar_of(sampler);
            if (state.broken) {
                throw std::runtime_error("the grammar failed at an earlier token; reset it");
            }
            if (!state.awaiting) {
                grammar_mask(state, candidates);
            }
        };
        i.reset  = [](llama_sampler * sampler) { grammar_reset(grammar_of(sampler)); };
        i.clone  = grammar_clone;
        i.free   = [](llama_sampler * sampler) { delete &grammar_of(sampler); };
        return i;
    }();
    return &interface;
}

inline llama_sampler * grammar_new(std::shared_ptr<grammar_config> config) {
    if (config->lazy) {
        config->initial.reset(grammar_native(*config).release(), sampler_deleter());
    }
    auto state = std::make_unique<grammar_state>();
    state->config = std::move(config);
    grammar_reset(*state);
    llama_sampler * result = llama_sampler_init(grammar_interface(), state.get());
    state.release();
    return result;
}

inline bool is_grammar(const llama_sampler * sampler) {
    return sampler->iface == grammar_interface();
}

// Whether all grammars of a sampler, which may be a chain of chains, allow a token.
inline int grammar_check_all(llama_sampler * sampler, llama_token token) {
    if (is_grammar(sampler)) {
        return grammar_check(grammar_of(sampler), token);
    }
    if (llama_sampler_chain_get(sampler, -1) != nullptr) {
        const int32_t n = llama_sampler_chain_n(sampler);
        for (int32_t i = 0; i < n; ++i) {
            const int verdict = grammar_check_all(llama_sampler_chain_get(sampler, i), token);
            if (verdict != GRAMMAR_ALLOWED) {
                return verdict;
            }
        }
    }
    return GRAMMAR_ALLOWED;
}

}  // namespace llamacy

#endif  // LLAMACY_GRAMMAR_SAMPLER_H
