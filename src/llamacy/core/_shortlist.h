// The candidates of a row that a chain which keeps the `k` highest can choose from, found without writing the others.
//
// Samplers before that link may change logits, but only of tokens that are known: those with a bias, and those that a
// watched sampler accepted lately. So the row's k highest of the others are enough, with those of the changed ones that
// reach as high. The samplers before the link then run on these changed ones alone.
#ifndef LLAMACY_SHORTLIST_H
#define LLAMACY_SHORTLIST_H

#include "_min_tokens.h"
#include "_row_top.h"
#include "_watched_sampler.h"

namespace llamacy {

static_assert(sizeof(llama_token_data) == sizeof(llamacy_candidate), "a candidate is a llama_token_data");

class shortlist {
public:
    // NO_LIST: the whole row has to be written
    enum result { MADE, NO_LIST, BAD_LOGIT };

    explicit shortlist(int32_t k) : k(k) {}

    // Samplers before the link that keeps the highest, in order: link `index` of the chain, a watched sampler.
    void add_watched(int32_t index) {
        leads.push_back({ index, false, {} });
    }

    // … or one that rules tokens out for a while
    void add_min_tokens(int32_t index) {
        leads.push_back({ index, true, {} });
    }

    // … or one that has biases, which follow.
    void add_biases() {
        leads.push_back({ -1, false, {} });
    }

    void add_bias(llama_token token, float bias) {
        leads.back().biases.push_back({ token, bias });
    }

    // Once all biases have come.
    void finish() {
        for (auto & one : leads) {
            std::sort(one.biases.begin(), one.biases.end(), by_token);
        }
    }

    // Find the candidates that are left behind the link, in descending order, equal ones by token id, without those of
    // -inf. They are valid until the next call. A row without any gives NO_LIST.
    result make(llama_sampler * chain, const float * row, int32_t n, llama_token_data_array * candidates) {
        if (2 * (int64_t) k >= n) {
            return NO_LIST;
        }
        const int32_t n_blocks = row_n_blocks(n);
        maxima.resize(3 * (size_t) n_blocks);
        if (!row_maxima(row, n, LLAMACY_LOGIT_MAX, maxima.data())) {
            return BAD_LOGIT;
        }
        mark_touched(chain, n);
        if ((int64_t) marked.size() > n / MANY) {
            return NO_LIST;
        }
        found.resize(row_top_room(k) + marked.size());
        int32_t size;
        if (marked.empty()) {
            size = row_top(found.data(), row, n, k, maxima.data());
        } else {
            size = collect(row, n);
            change(chain);
            for (const auto & candidate : touched) {
                if (std::isnan(candidate.logit)) {
                    return BAD_LOGIT;
                }
                if (candidate.logit != -INFINITY) {
                    found[size++] = candidate;
                }
            }
            size = row_order(found.data(), size, k);
        }
        candidates->data     = (llama_token_data *) found.data();
        candidates->size     = size;
        candidates->selected = -1;
        candidates->sorted   = true;
        return size > 0 ? MADE : NO_LIST;
    }

private:
    struct token_bias {
        llama_token token;
        float       bias;
    };

    struct lead {
        int32_t                 index; // in the chain, or -1 when it has biases
        bool                    min_tokens;
        std::vector<token_bias> biases;
    };

    // more touched tokens than one in so many, and writing the row costs less
    enum : int32_t { MANY = 8 };

    // what a sampler may do to a token
    enum : uint8_t { LOWERED = 1, CHANGED = 2 };

    const int32_t                  k;
    std::vector<lead>              leads;
    std::vector<float>             maxima;  // of the blocks; of what is not marked in them; room
    std::vector<uint8_t>           marks;   // of all tokens
    std::vector<llama_token>       marked;
    std::vector<llamacy_candidate> found;   // candidates that no sampler before the link changes, and in the end all
    std::vector<llamacy_candidate> touched; // the others

    static bool by_token(const token_bias & a, const token_bias & b) {
        return a.token < b.token;
    }

    void mark(llama_token token, uint8_t how) {
        if ((uint32_t) token < marks.size()) {
            if (marks[token] == 0) {
                marked.push_back(token);
            }
            marks[token] |= how;
        }
    }

    void mark_touched(llama_sampler * chain, int32_t n) {
        for (const llama_token token : marked) {
            marks[token] = 0;
        }
        marked.clear();
        if (leads.empty()) {
            return;
        }
        if (marks.size() != (size_t) n) {
            marks.assign(n, 0);
        }
        for (const auto & one : leads) {
            if (one.min_tokens) {
                const auto & state = min_tokens_of(llama_sampler_chain_get(chain, one.index));
                for (const llama_token token : *state.masked) {
                    if (state.active()) {
                        mark(token, LOWERED);
                    }
                }
            } else if (one.index >= 0) {
                const auto & watched = watched_of(llama_sampler_chain_get(chain, one.index));
                const uint8_t how = watched.lowers ? LOWERED : CHANGED;
                watched.touched([&](llama_token token) { mark(token, how); });
            } else {
                for (const auto & biased : one.biases) {
                    mark(biased.token, biased.bias <= 0 ? LOWERED : CHANGED);
                }
            }
        }
    }

    // Collect the highest of what is not marked in `found`, and in `touched` all marked ones that may reach as high.
    int32_t collect(const float * row, int32_t n) {
        const int32_t n_blocks = row_n_blocks(n);
        float * others = maxima.data() + n_blocks;
        std::copy(maxima.data(), others, others);
        touched.clear();
        for (const llama_token token : marked) {
            const int32_t block = token / ROW_BLOCK;
            if (row[token] == maxima[block] && others[block] == maxima[block]) {
                const int32_t end = std::min((block + 1) * (int32_t) ROW_BLOCK, n);
                others[block] = -INFINITY;
                for (int32_t i = block * ROW_BLOCK; i < end; ++i) {
                    others[block] = marks[i] ? others[block] : higher(others[block], row[i]);
                }
            }
            if (marks[token] & CHANGED) {
                touched.push_back({ token, row[token], 0.0f });
            }
        }
        const float threshold = row_threshold(others, n_blocks, k, others + n_blocks);
        // a token that is lowered and below the threshold has at least k above it in the end
        return row_collect(found.data(), row, n, k, maxima.data(), threshold, [&](int32_t begin, int32_t end) {
            int32_t left = begin;
            for (int32_t i = begin; i < end; ++i) {
                const uint8_t mark = marks[found[i].id];
                if (mark == LOWERED) {
                    touched.push_back(found[i]);
                } else if (mark == 0) {
                    found[left++] = found[i];
                }
            }
            return left;
        });
    }

    // Run the samplers before the link on the touched candidates.
    void change(llama_sampler * chain) {
        for (const auto & one : leads) {
            if (one.index >= 0) {
                llama_token_data_array array = { (llama_token_data *) touched.data(), touched.size(), -1, false };
                llama_sampler_apply(llama_sampler_chain_get(chain, one.index), &array);
                continue;
            }
            for (auto & candidate : touched) {
                const auto at =
                    std::lower_bound(one.biases.begin(), one.biases.end(), token_bias { candidate.id, 0.0f }, by_token);
                if (at != one.biases.end() && at->token == candidate.id) {
                    candidate.logit += at->bias;
                }
            }
        }
    }
};

}  // namespace llamacy

#endif  // LLAMACY_SHORTLIST_H
