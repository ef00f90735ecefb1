// A native sampler that ends a block of reasoning after so many tokens: it forces a message and the end tag. The tags are
// looked for in the bytes of the text, since a model may spell them with other tokens than the tokenizer does. The states
// are those of llama.cpp's common/reasoning-budget.cpp, but only the first block counts.
#ifndef LLAMACY_BUDGET_SAMPLER_H
#define LLAMACY_BUDGET_SAMPLER_H

#include "_token_tree.h"
#include "llama.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace llamacy {

enum budget_phase { BUDGET_IDLE, BUDGET_COUNTING, BUDGET_WAITING, BUDGET_FORCING, BUDGET_DONE };

// Finds a tag in a stream of bytes (Knuth, Morris, Pratt).
class tag_matcher {
public:
    tag_matcher() = default;

    explicit tag_matcher(std::string text) : tag(std::move(text)), fallback(tag.size(), 0) {
        for (size_t i = 1, n = 0; i < tag.size(); ++i) {
            while (n > 0 && tag[i] != tag[n]) {
                n = fallback[n - 1];
            }
            fallback[i] = n += tag[i] == tag[n];
        }
    }

    // Read one more byte; true at the end of the tag.
    bool read(char byte) {
        while (n_read > 0 && tag[n_read] != byte) {
            n_read = fallback[n_read - 1];
        }
        n_read += tag[n_read] == byte;
        if (n_read < tag.size()) {
            return false;
        }
        n_read = 0;
        return true;
    }

    size_t n_read = 0; // bytes of the tag that the text ends with

private:
    std::string tag;
    std::vector<size_t> fallback;
};

inline bool read_tags(std::vector<tag_matcher> & tags, char byte) {
    bool found = false;
    for (auto & tag : tags) {
        found |= tag.read(byte);
    }
    return found;
}

struct budget_config {
    const llama_vocab * vocab = nullptr;
    std::vector<tag_matcher> starts, ends;  // the first end is what is forced
    std::vector<llama_token> forced;
    std::vector<size_t> forced_sizes;       // bytes of the end tag up to each forced token; empty when a message comes first
    int32_t budget = 0;
    int32_t start_within = 0;               // tokens in which the block must begin, or 0
    bool in_block = false;                  // the prompt has begun it
};

struct budget_state {
    explicit budget_state(std::shared_ptr<const budget_config> shared) : config(std::move(shared)) {
        reset();
    }

    budget_state(const budget_state & other)
        : config(other.config), phase(other.phase.load()), end_wanted(other.end_wanted.load()), starts(other.starts),
          ends(other.ends), utf8(other.utf8), n_seen(other.n_seen), n_waited(other.n_waited), remaining(other.remaining),
          position(other.position) {}

    void reset() {
        phase = BUDGET_IDLE;
        end_wanted = false;
        n_seen = n_waited = 0;
        position = 0;
        starts = config->starts;
        if (config->in_block) {
            enter();
        }
    }

    void accept(llama_token token) {
        if (phase == BUDGET_DONE) {
            return;
        }
        if (phase == BUDGET_FORCING) {
            if (token == config->forced[position] && ++position == config->forced.size()) {
                phase = BUDGET_DONE;
            }
            return;
        }
        const std::string piece = token_piece(config->vocab, token);
        size_t i = 0;
        if (phase == BUDGET_IDLE) {
            for (; i < piece.size(); ++i) {
                if (read_tags(starts, piece[i])) {
                    enter();
                    break;
                }
            }
            if (phase == BUDGET_IDLE && ++n_seen == config->start_within) {
                phase = BUDGET_DONE;
            }
            for (++i; i < piece.size() && phase == BUDGET_COUNTING; ++i) {
                read(piece[i]);
            }
            return;
        }
        for (; i < piece.size(); ++i) {
            if (read(piece[i])) {
                return;
            }
        }
        if (phase == BUDGET_COUNTING) {
            if (--remaining <= 0) {
                exhaust();
            }
        } else if (utf8.left == 0 || ++n_waited == 3) {
            force(); // a character has at most three more tokens, whatever the model goes on with
        }
    }

    // The token to force now, or -1.
    llama_token forced() {
        if (phase == BUDGET_COUNTING && end_wanted) {
            exhaust();
        }
        return phase == BUDGET_FORCING ? config->forced[position] : LLAMA_TOKEN_NULL;
    }

    void apply(llama_token_data_array * candidates) {
        const llama_token token = forced();
        if (token < 0 || candidates->size == 0) {
            return;
        }
        llama_token_data chosen = { token, 0.0f, 0.0f };
        for (size_t i = 0; i < candidates->size; ++i) {
            if (candidates->data[i].id == token) {
                chosen = candidates->data[i];
                break;
            }
        }
        candidates->data[0] = chosen;
        candidates->size = 1;
        candidates->sorted = true;
    }

    std::shared_ptr<const budget_config> config;
    std::atomic<int> phase;                 // atomic: other threads may look at it, and want the end
    std::atomic<bool> end_wanted;

private:
    void enter() {
        ends = config->ends;
        utf8 = {};
        remaining = config->budget;
        phase = BUDGET_COUNTING;
        if (remaining <= 0) {
            exhaust();
        }
    }

    // Read a byte of the block; true when it is the last one.
    bool read(char byte) {
        if (!utf8.read(&byte, 1)) {
            utf8 = {};
            utf8.read(&byte, 1); // it may begin another character
        }
        if (read_tags(ends, byte)) {
            phase = BUDGET_DONE;
            return true;
        }
        return false;
    }

    void exhaust() {
        if (utf8.left > 0) {
            phase = BUDGET_WAITING;
        } else {
            force();
        }
    }

    // Go on from where the model is when it has begun to write the end tag itself.
    void force() {
        position = 0;
        for (size_t i = 0; i + 1 < config->forced_sizes.size(); ++i) {
            if (ends[0].n_read > 0 && config->forced_sizes[i] == ends[0].n_read) {
                position = i + 1;
            }
        }
        phase = BUDGET_FORCING;
    }

    std::vector<tag_matcher> starts, ends;
    utf8_state utf8;
    int32_t n_seen, n_waited, remaining = 0;
    size_t position;
};

inline budget_state & budget_of(const llama_sampler * sampler) {
    return *static_cast<budget_state *>(sampler->ctx);
}

inline llama_sampler_i * budget_interface();

inline llama_sampler * budget_new(std::unique_ptr<budget_state> state) {
    llama_sampler * result = llama_sampler_init(budget_interface(), state.get());
    state.release();
    return result;
}

inline llama_sampler * budget_new(std::shared_ptr<budget_config> config) {
    return budget_new(std::make_unique<budget_state>(std::move(config)));
}

inline llama_sampler_i * budget_interface() {
    static llama_sampler_i interface = [] {
        llama_sampler_i i = {};
        i.name   = [](const llama_sampler *) { return "reasoning-budget"; };
        i.accept = [](llama_sampler * sampler, llama_token token) { budget_of(sampler).accept(token); };
        i.apply  = [](llama_sampler * sampler, llama_token_data_array * array) { budget_of(sampler).apply(array); };
        i.reset  = [](llama_sampler * sampler) { budget_of(sampler).reset(); };
        i.clone  = [](const llama_sampler * sampler) {
            return budget_new(std::make_unique<budget_state>(budget_of(sampler)));
        };
        i.free   = [](llama_sampler * sampler) { delete &budget_of(sampler); };
        return i;
    }();
    return &interface;
}

// The state of the first budget in a sampler, which may be a chain of chains; NULL when there is none.
inline budget_state * find_budget(llama_sampler * sampler) {
    if (sampler->iface == budget_interface()) {
        return &budget_of(sampler);
    }
    if (llama_sampler_chain_get(sampler, -1) != nullptr) {
        for (int32_t i = 0; i < llama_sampler_chain_n(sampler); ++i) {
            if (budget_state * found = find_budget(llama_sampler_chain_get(sampler, i))) {
                return found;
            }
        }
    }
    return nullptr;
}

// Make the end tag come as soon as a whole character stands there; false outside of a block.
inline bool budget_end(budget_state & state) {
    const int phase = state.phase;
    if (phase == BUDGET_COUNTING) {
        state.end_wanted = true;
    }
    return phase == BUDGET_COUNTING || phase == BUDGET_WAITING;
}

}  // namespace llamacy

#endif  // LLAMACY_BUDGET_SAMPLER_H
