// A sampler of llama.cpp that lowers or raises the logits of tokens it has accepted lately, and which tokens these are.
//
// llama.cpp doesn't tell (llama-sampler.cpp, llama_sampler_penalties, llama_sampler_dry). This one hands everything on to
// the native sampler and keeps the accepted tokens beside it, so that whoever accepts, resets, clones or copies the state
// keeps both alike.
#ifndef LLAMACY_WATCHED_SAMPLER_H
#define LLAMACY_WATCHED_SAMPLER_H

#include "llama.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace llamacy {

struct watched_sampler {
    llama_sampler *          native;
    bool                     lowers;  // never raises a logit
    bool                     follows; // changes only tokens that came after an earlier place of the last token
    std::vector<llama_token> ring;
    size_t                   n_accepted = 0; // since the start

    watched_sampler(llama_sampler * native, bool lowers, bool follows, std::vector<llama_token> ring)
        : native(native), lowers(lowers), follows(follows), ring(std::move(ring)) {}
    ~watched_sampler() { llama_sampler_free(native); }
    watched_sampler(const watched_sampler &) = delete;
    watched_sampler & operator=(const watched_sampler &) = delete;

    size_t size() const { return n_accepted < ring.size() ? n_accepted : ring.size(); }

    // Call `visit` with each token that the sampler may change, some of them more than once.
    template <typename Visit> void touched(Visit visit) const {
        const size_t n = size();
        if (n == 0) {
            return;
        }
        if (!follows) {
            for (size_t i = 0; i < n; ++i) {
                visit(ring[i]);
            }
            return;
        }
        size_t at = n_accepted % ring.size(); // behind the last token
        const auto step_back = [&] { return at = (at == 0 ? ring.size() : at) - 1; };
        const llama_token last = ring[step_back()];
        llama_token next = last; // the token after the one that is looked at
        for (size_t i = 1; i < n; ++i) {
            const llama_token token = ring[step_back()];
            if (token == last) {
                visit(next);
            }
            next = token;
        }
    }
};

inline watched_sampler & watched_of(const llama_sampler * sampler) {
    return *(watched_sampler *) sampler->ctx;
}

inline const char * watched_name(const llama_sampler * sampler) {
    return llama_sampler_name(watched_of(sampler).native);
}

inline void watched_accept(llama_sampler * sampler, llama_token token) {
    auto & self = watched_of(sampler);
    llama_sampler_accept(self.native, token);
    self.ring[self.n_accepted++ % self.ring.size()] = token;
}

inline void watched_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    llama_sampler_apply(watched_of(sampler).native, candidates);
}

inline void watched_reset(llama_sampler * sampler) {
    llama_sampler_reset(watched_of(sampler).native);
    watched_of(sampler).n_accepted = 0;
}

inline void watched_free(llama_sampler * sampler) {
    delete &watched_of(sampler);
}

inline llama_sampler * watched_clone(const llama_sampler * sampler);

inline void watched_copy_state(const llama_sampler * from, llama_sampler * to) {
    llama_sampler_copy(watched_of(from).native, watched_of(to).native);
    watched_of(to).ring       = watched_of(from).ring;
    watched_of(to).n_accepted = watched_of(from).n_accepted;
}

// What a backend asks is asked of the native sampler.

inline bool watched_backend_init(llama_sampler * sampler, ggml_backend_buffer_type_t type, uint32_t n_outputs) {
    auto * native = watched_of(sampler).native;
    return native->iface->backend_init != nullptr && native->iface->backend_init(native, type, n_outputs);
}

inline void watched_backend_accept(llama_sampler * sampler, ggml_context * ctx, ggml_cgraph * graph, ggml_tensor * id) {
    auto * native = watched_of(sampler).native;
    if (native->iface->backend_accept != nullptr) {
        native->iface->backend_accept(native, ctx, graph, id);
    }
}

inline void watched_backend_apply(
    llama_sampler * sampler, ggml_context * ctx, ggml_cgraph * graph, llama_sampler_data * data
) {
    auto * native = watched_of(sampler).native;
    if (native->iface->backend_apply != nullptr) {
        native->iface->backend_apply(native, ctx, graph, data);
    }
}

inline void watched_backend_set_input(llama_sampler * sampler) {
    auto * native = watched_of(sampler).native;
    if (native->iface->backend_set_input != nullptr) {
        native->iface->backend_set_input(native);
    }
}

inline void watched_backend_reset(llama_sampler * sampler) {
    auto * native = watched_of(sampler).native;
    if (native->iface->backend_reset != nullptr) {
        native->iface->backend_reset(native);
    }
}

static llama_sampler_i watched_interface = {
    watched_name,
    watched_accept,
    watched_apply,
    watched_reset,
    watched_clone,
    watched_free,
    watched_backend_init,
    watched_backend_accept,
    watched_backend_apply,
    watched_backend_set_input,
    watched_backend_reset,
    watched_copy_state,
};

// Watch a sampler that looks at the last `n_last` tokens, and own it, also when this throws. One that does nothing, which
// its name says by a "?", is returned as it is.
inline llama_sampler * watched_new(llama_sampler * native, size_t n_last, bool lowers, bool follows) {
    if (llama_sampler_name(native)[0] == '?') {
        return native;
    }
    std::unique_ptr<llama_sampler, void (*)(llama_sampler *)> owner(native, llama_sampler_free);
    std::vector<llama_token> ring(n_last);
    auto self = std::make_unique<watched_sampler>(native, lowers, follows, std::move(ring));
    owner.release();
    auto * sampler = llama_sampler_init(&watched_interface, self.get());
    self.release();
    return sampler;
}

inline llama_sampler * watched_clone(const llama_sampler * sampler) {
    const auto & self = watched_of(sampler);
    auto * copy = watched_new(llama_sampler_clone(self.native), self.ring.size(), self.lowers, self.follows);
    watched_of(copy).ring       = self.ring;
    watched_of(copy).n_accepted = self.n_accepted;
    return copy;
}

}  // namespace llamacy

#endif  // LLAMACY_WATCHED_SAMPLER_H
