// What a grammar allows out of a vocabulary, without asking llama.cpp about all of it: that takes it 10 ms for 49,152 tokens
// and 80 ms for 262,144 (llama_grammar_apply_impl), as long as a small model takes for some tokens.
#ifndef LLAMACY_GRAMMAR_MASK_H
#define LLAMACY_GRAMMAR_MASK_H

#include "_grammar_sampler.h"
#include "_row_top.h"

namespace llamacy {

static_assert(sizeof(llama_token_data) == sizeof(llamacy_candidate), "a candidate is a llama_token_data");

// Whether special tokens, or this one, stand for their spelling.
inline bool grammar_spells(const grammar_config & config, llama_token token) {
    return config.special || contains(config.spelled, token);
}

// Whether a grammar that has begun allows a token, by its matcher.
inline bool grammar_fits(grammar_state & state, llama_token token) {
    const auto & config = *state.config;
    const auto & tree = *config.tree;
    auto & matcher = *state.matcher;
    auto at = matcher.now;
    switch (tree.kind(token)) {
        case token_tree::END:     return matcher.may_end(at);
        case token_tree::NOTHING: return false;
        case token_tree::SPECIAL: if (!grammar_spells(config, token)) return false; // fall through
        default:                  return matcher.read(at, tree.text(token), tree.size(token)) && matcher.is_open(at);
    }
}

// Rule out, by a logit of -inf, the candidates that a grammar which has begun refuses.
inline void grammar_mask_some(grammar_state & state, llama_token_data * data, size_t n) {
    if (!state.matcher) {
        grammar_filter(state, data, n);
        return;
    }
    state.config->tree->build();
    for (size_t i = 0; i < n; ++i) {
        if (!grammar_fits(state, data[i].id)) {
            data[i].logit = -INFINITY;
        }
    }
}

// The tokens of a vocabulary that a grammar which has begun allows, by its matcher.
inline std::vector<llama_token> grammar_allowed(grammar_state & state) {
    struct reading {
        llama_token            token;
        size_t                 n_read; // bytes of it, which are those of the token above
        grammar_matcher::place at;
    };
    auto & tree = *state.config->tree;
    auto & matcher = *state.matcher;
    tree.build();
    std::vector<llama_token> allowed;
    std::vector<reading> todo;
    enum : uint8_t { UNKNOWN, FITS, FAILS } beginnings[256] = {};
    for (const llama_token token : tree.roots) {
        auto & beginning = beginnings[(uint8_t) *tree.text(token)];
        if (beginning == UNKNOWN) {
            auto at = matcher.now;
            beginning = matcher.read(at, tree.text(token), 1) && matcher.is_hopeful(at) ? FITS : FAILS;
        }
        if (beginning == FITS) {
            todo.push_back({ token, 0, matcher.now });
        }
    }
    while (!todo.empty()) {
        reading one = todo.back();
        todo.pop_back();
        if (!matcher.read(one.at, tree.text(one.token) + one.n_read, tree.size(one.token) - one.n_read)) {
            continue;
        }
        if (matcher.is_open(one.at)) {
            allowed.push_back(one.token);
        }
        one.n_read = tree.size(one.token);
        for (const llama_token * next = tree.below(one.token); next != tree.below_end(one.token); ++next) {
            todo.push_back({ *next, one.n_read, one.at });
        }
    }
    for (const llama_token token : tree.apart) {
        if (grammar_fits(state, token)) {
            allowed.push_back(token);
        }
    }
    return allowed;
}

// Rule out, by a logit of -inf, all candidates that a grammar which has begun refuses.
inline void grammar_mask(grammar_state & state, llama_token_data_array * candidates) {
    constexpr size_t FEW = 2048;
    if (candidates->size <= FEW || !state.matcher) {
        grammar_mask_some(state, candidates->data, candidates->size);
        return;
    }
    std::vector<bool> allowed(llama_vocab_n_tokens(state.config->vocab), false);
    for (const llama_token token : grammar_allowed(state)) {
        allowed[token] = true;
    }
    for (size_t i = 0; i < candidates->size; ++i) {
        if (!allowed[candidates->data[i].id]) {
            candidates->data[i].logit = -INFINITY;
        }
    }
}

// Whether the text that a grammar has taken is whole and nothing can follow it.
inline bool grammar_complete(grammar_state & state) {
    const auto & config = *state.config;
    if (state.awaiting || state.broken) {
        return false;
    }
    if (state.matcher) {
        return state.matcher->is_complete();
    }
    llama_token_data end = { config.end, 0.0f, 0.0f };
    if (config.end != LLAMA_TOKEN_NULL) {
        grammar_filter(state, &end, 1);
    }
    if (end.logit == -INFINITY) {
        return false;
    }
    constexpr llama_token CHUNK = 256;
    const llama_token n = llama_vocab_n_tokens(config.vocab);
    std::vector<llama_token_data> some;
    for (llama_token begin = 0; begin < n; begin += CHUNK) {
        some.clear();
        for (llama_token token = begin; token < std::min(begin + CHUNK, n); ++token) {
            some.push_back({ token, 0.0f, 0.0f });
        }
        grammar_filter(state, some.data(), some.size());
        for (const auto & one : some) {
            if (one.logit != -INFINITY && !llama_vocab_is_eog(config.vocab, one.id)) {
                return false;
            }
        }
    }
    return true;
}

// Fill `data`, which has room for n + 128 candidates, with the `k` highest logits of a row among those that the grammar
// allows, in descending order, equal ones by token id; -inf is left out. Returns how many there are, or -1 when a logit is
// not a number or too large. It is what the top_k sampler keeps of all candidates after the grammar masked them.
inline int32_t grammar_top(grammar_state & state, llama_token_data * data, const float * logits, int32_t n, int32_t k) {
    const auto ask = [&](int32_t size) {
        if (state.awaiting) {
            for (int32_t i = 0; i < size; ++i) {
                const auto verdict = grammar_check_trigger(state, data[i].id, false);
                data[i].logit = verdict == GRAMMAR_ALLOWED ? data[i].logit : -INFINITY;
            }
        } else {
            grammar_mask_some(state, data, size);
        }
        const auto end = std::remove_if(data, data + size, [](const auto & one) { return one.logit == -INFINITY; });
        return (int32_t) (end - data);
    };
    std::vector<float> maxima(row_top_numbers(n));
    if (!row_maxima(logits, n, LLAMACY_LOGIT_MAX, maxima.data())) {
        return -1;
    }
    // most of these are enough where a grammar allows much; where it allows little, all that it allows are soon found
    const int32_t few = std::max(128, 2 * k);
    for (const int32_t width : { few, 4 * few }) {
        if (2 * width > n) {
            break;
        }
        const int32_t size = row_top((llamacy_candidate *) data, logits, n, width, maxima.data());
        const int32_t left = ask(size);
        if (left >= k || size < width) {
            return std::min(left, k);
        }
        if (4 * left < width) {
            break;
        }
    }
    int32_t size = 0;
    if (state.awaiting || !state.matcher) {
        llamacy_candidates_fill(data, logits, n);
        size = ask(n);
    } else {
        for (const llama_token token : grammar_allowed(state)) {
            data[size] = { token, logits[token], 0.0f };
            size += logits[token] != -INFINITY;
        }
    }
    const int32_t left = std::min(size, k);
    std::partial_sort(data, data + left, data + size, [](const llama_token_data & a, const llama_token_data & b) {
        return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    });
    return left;
}

}  // namespace llamacy

#endif  // LLAMACY_GRAMMAR_MASK_H
