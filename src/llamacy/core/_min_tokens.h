// A native sampler that rules out some tokens until so many were accepted.
#ifndef LLAMACY_MIN_TOKENS_H
#define LLAMACY_MIN_TOKENS_H

#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace llamacy {

struct min_tokens_state {
    std::shared_ptr<const std::vector<llama_token>> masked; // ascending
    int32_t n;
    int32_t n_accepted = 0;

    bool active() const { return n_accepted < n; }

    void apply(llama_token_data_array * candidates) const {
        if (!active() || masked->empty()) {
            return;
        }
        // those of a whole row stand at their ids
        size_t n_found = 0;
        for (const llama_token token : *masked) {
            if ((size_t) token < candidates->size && candidates->data[token].id == token) {
                candidates->data[token].logit = -INFINITY;
                ++n_found;
            }
        }
        if (n_found < masked->size()) {
            for (size_t i = 0; i < candidates->size; ++i) {
                if (std::binary_search(masked->begin(), masked->end(), candidates->data[i].id)) {
                    candidates->data[i].logit = -INFINITY;
                }
            }
        }
        candidates->sorted = false;
    }
};

inline min_tokens_state & min_tokens_of(const llama_sampler * sampler) {
    return *static_cast<min_tokens_state *>(sampler->ctx);
}

inline llama_sampler_i * min_tokens_interface();

inline llama_sampler * min_tokens_new(std::unique_ptr<min_tokens_state> state) {
    llama_sampler * result = llama_sampler_init(min_tokens_interface(), state.get());
    state.release();
    return result;
}

inline llama_sampler * min_tokens_new(std::vector<llama_token> masked, int32_t n) {
    auto state = std::make_unique<min_tokens_state>();
    state->masked = std::make_shared<const std::vector<llama_token>>(std::move(masked));
    state->n      = n;
    return min_tokens_new(std::move(state));
}

inline llama_sampler_i * min_tokens_interface() {
    static llama_sampler_i interface = [] {
        llama_sampler_i i = {};
        i.name   = [](const llama_sampler *) { return "min-tokens"; };
        i.accept = [](llama_sampler * sampler, llama_token) {
            auto & state = min_tokens_of(sampler);
            state.n_accepted += state.active();
        };
        i.apply  = [](llama_sampler * sampler, llama_token_data_array * array) { min_tokens_of(sampler).apply(array); };
        i.reset  = [](llama_sampler * sampler) { min_tokens_of(sampler).n_accepted = 0; };
        i.clone  = [](const llama_sampler * sampler) {
            return min_tokens_new(std::make_unique<min_tokens_state>(min_tokens_of(sampler)));
        };
        i.free   = [](llama_sampler * sampler) { delete &min_tokens_of(sampler); };
        return i;
    }();
    return &interface;
}

// The tokens that a sampler rules out now, when it is one of these; NULL when it is another, or does nothing any more.
inline const std::vector<llama_token> * min_tokens_masked(const llama_sampler * sampler) {
    const bool active = sampler->iface == min_tokens_interface() && min_tokens_of(sampler).active();
    return active ? min_tokens_of(sampler).masked.get() : nullptr;
}

}  // namespace llamacy

#endif  // LLAMACY_MIN_TOKENS_H
