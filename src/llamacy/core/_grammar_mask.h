// What a grammar allows out of a vocabulary, without asking llama.cpp about all of it: that takes it 10 ms for 49,152 tokens
// and 80 ms for 262,144 (llama_grammar_apply_impl), as long as a small model takes for some tokens.
#ifndef LLAMACY_GRAMMAR_MASK_H
#define LLAMACY_GRAMMAR_MASK_H

#include "_grammar_sampler.h"
#include "_row_top.h"

namespace llamacy {

static_assert(sizeof(llama_token_data) == sizeof(llamacy_candidate), "a candidate is a llama_token_data");

// Rule out, by a logit of -inf, the candidates that a grammar which has begun refuses.
inline void grammar_mask_some(grammar_state & state, llama_token_data * data, size_t n) {
    if (!state.matcher) {
        grammar_filter(state, data, n);
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        if (!grammar_fits(state, data[i].id)) {
            data[i].logit = -INFINITY;
        }
    }
}

// Call `visit` with the ranks from 0 on, those in `known` left out, whose text may follow at a place.
template <typename Visit>
inline void grammar_walk(grammar_matcher & matcher, sliced_vocab & vocab, const number_set * known, Visit visit) {
    constexpr int32_t MANY = 1024; // so many that begin alike are worth a look at what may follow that
    const auto & tree = vocab.tree;
    const int32_t n_ranks = (int32_t) tree.order.size();
    const auto next = [&](int32_t rank) { return known != nullptr && rank < n_ranks ? known->next_other(rank) : rank; };
    std::vector<grammar_matcher::place> places(tree.longest + 1); // after each byte of the text that was read last
    places[0] = matcher.now;
    size_t n_read = 0;
    int32_t last = -1;
    std::shared_ptr<const token_slice> slice; // of characters that may follow, as many as there are, in the ranks below `end`
    size_t n_head = 0;                        // … after so many bytes
    int32_t end = 0;
    for (int32_t rank = next(0); rank < n_ranks;) {
        if (rank < end && slice->heads[rank] <= n_head) {
            visit(rank);
            rank = next(rank + 1);
            continue;
        }
        const size_t n_shared = last < 0 ? 0 : tree.shared(last, rank, n_read + 1);
        bool fits = n_shared <= n_read; // or else it has the byte that did not fit in the last one
        if (fits) {
            const char * text = tree.text(rank);
            last = rank;
            n_read = n_shared;
            for (; n_read < tree.size(rank); ++n_read) {
                places[n_read + 1] = places[n_read];
                if (!matcher.read(places[n_read + 1], (uint8_t) text[n_read])) {
                    fits = false;
                    break;
                }
            }
        }
        if (!fits) {
            rank = next(tree.past(rank, n_read + 1));
            continue;
        }
        if (matcher.is_open(places[n_read])) {
            visit(rank);
        }
        if (rank >= end && places[n_read].utf8.left == 0 && n_read < UINT16_MAX) {
            const int32_t past = tree.past(rank, n_read);
            if (past - rank > MANY) {
                const auto freedom = matcher.find_freedom(places[n_read]);
                slice = freedom.n == freedom.ENDLESS ? vocab.find(freedom.characters) : nullptr;
                n_head = n_read;
                end = slice ? past : 0;
            }
        }
        rank = next(rank + 1);
    }
}

// The tokens of a vocabulary that a grammar which has begun allows, by its matcher.
inline number_set grammar_allowed(grammar_state & state) {
    const auto & config = *state.config;
    auto & tree = config.tokens->tree;
    auto & matcher = *state.matcher;
    tree.build();
    number_set allowed(tree.n_tokens());
    std::shared_ptr<const token_slice> slice;
    size_t length = 0;
    if (matcher.now.utf8.left == 0) {
        const auto freedom = matcher.find_freedom(matcher.now);
        if (freedom.n > 0) {
            slice = config.tokens->find(freedom.characters);
            length = token_slice::find_length(freedom.n);
        }
    }
    if (slice) {
        allowed = slice->tokens[length];
    }
    const auto known = slice ? &slice->ranks[length] : nullptr;
    grammar_walk(matcher, *config.tokens, known, [&](int32_t rank) { allowed.add(tree.order[rank]); });
    if (!config.special) {
        for (const llama_token token : tree.specials) {
            if (!grammar_spells(config, token)) {
                allowed.remove(token);
            }
        }
    }
    if (matcher.may_end(matcher.now)) {
        for (const llama_token token : tree.ends) {
            allowed.add(token);
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
    const number_set allowed = grammar_allowed(state);
    for (size_t i = 0; i < candidates->size; ++i) {
        if (!allowed.has(candidates->data[i].id)) {
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

// Keep those of some candidates that a grammar allows and whose logit is not -inf; returns how many they are.
inline int32_t grammar_keep(grammar_state & state, llama_token_data * data, int32_t size) {
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
}

// Fill `data`, which has room for n candidates, with those of a row without a logit of -inf that a grammar allows; returns
// how many they are. No logit is NaN.
inline int32_t grammar_gather(grammar_state & state, llama_token_data * data, const float * logits, int32_t n) {
    if (state.awaiting || !state.matcher) {
        llamacy_candidates_fill(data, logits, n);
        return grammar_keep(state, data, n);
    }
    int32_t size = 0;
    grammar_allowed(state).for_each([&](llama_token token) {
        data[size] = { token, logits[token], 0.0f };
        size += logits[token] != -INFINITY;
    });
    return size;
}

// The same, or -1 when a logit is not a number or too large.
inline int32_t grammar_all(grammar_state & state, llama_token_data * data, const float * logits, int32_t n) {
    std::vector<float> maxima(row_n_blocks(n));
    return row_maxima(logits, n, LLAMACY_LOGIT_MAX, maxima.data()) ? grammar_gather(state, data, logits, n) : -1;
}

// Fill `data`, which has room for n + 128 candidates, with the `k` highest logits of a row among those that the grammar
// allows, in descending order, equal ones by token id; -inf is left out. Returns how many there are, or -1 when a logit is
// not a number or too large. It is what the top_k sampler keeps of all candidates after the grammar masked them.
inline int32_t grammar_top(grammar_state & state, llama_token_data * data, const float * logits, int32_t n, int32_t k) {
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
        const int32_t left = grammar_keep(state, data, size);
        if (left >= k || size < width) {
            return std::min(left, k);
        }
        if (4 * left < width) {
            break;
        }
    }
    const int32_t size = grammar_gather(state, data, logits, n);
    return row_order((llamacy_candidate *) data, size, k);
}

}  // namespace llamacy

#endif  // LLAMACY_GRAMMAR_MASK_H
