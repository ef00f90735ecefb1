// The tokens of a vocabulary as a tree: below a token stand those whose text begins with its text. Who reads down from the
// top reads each beginning once, and nothing below one that does not fit.
#ifndef LLAMACY_TOKEN_TREE_H
#define LLAMACY_TOKEN_TREE_H

#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace llamacy {

inline std::string token_piece(const llama_vocab * vocab, llama_token token) {
    std::string piece(64, '\0');
    int32_t n = llama_token_to_piece(vocab, token, &piece[0], (int32_t) piece.size(), 0, true);
    if (n < 0) {
        piece.resize(-n);
        n = llama_token_to_piece(vocab, token, &piece[0], (int32_t) piece.size(), 0, true);
    }
    piece.resize(std::max(n, 0));
    return piece;
}

// Whether a token has no text unless special tokens are spelled out.
inline bool token_is_special(const llama_vocab * vocab, llama_token token) {
    return (llama_vocab_get_attr(vocab, token) & (LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_CONTROL)) != 0;
}

// What has been read of a character in UTF-8 (the well-formed sequences of the Unicode standard, table 3-7).
struct utf8_state {
    uint8_t left = 0;                  // bytes that the character still needs
    uint8_t low = 0x80, high = 0xBF;   // what the next of them may be

    // Read bytes; false when they are not well-formed.
    bool read(const char * text, size_t n) {
        for (size_t i = 0; i < n; ++i) {
            const uint8_t byte = (uint8_t) text[i];
            if (left > 0) {
                if (byte < low || byte > high) {
                    return false;
                }
                --left;
                low  = 0x80;
                high = 0xBF;
            } else if (byte >= 0x80) {
                if (byte < 0xC2 || byte > 0xF4) {
                    return false;
                }
                left = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
                low  = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
                high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
            }
        }
        return true;
    }
};

class token_tree {
public:
    enum kind_of_token : uint8_t { TEXT, SPECIAL, END, NOTHING };

    explicit token_tree(const llama_vocab * vocab) : vocab(vocab) {}

    // Arrange the tokens; the vocabulary must be alive the first time.
    void build() {
        std::call_once(once, [this] { arrange(); });
    }

    std::vector<llama_token> roots;    // tokens with text whose text begins with that of no other
    std::vector<llama_token> apart;    // special tokens and ends of generation: what they are decides, too

    kind_of_token kind(llama_token token) const { return kinds[token]; }
    const char * text(llama_token token) const { return texts.data() + begin[token]; }
    size_t size(llama_token token) const { return begin[token + 1] - begin[token]; }

    // The tokens right below one.
    const llama_token * below(llama_token token) const { return children.data() + first[token]; }
    const llama_token * below_end(llama_token token) const { return children.data() + first[token + 1]; }

private:
    const llama_vocab *        vocab;
    std::once_flag             once;
    std::string                texts;
    std::vector<size_t>        begin;
    std::vector<kind_of_token> kinds;
    std::vector<llama_token>   children;
    std::vector<uint32_t>      first;

    void arrange() {
        const llama_token n = llama_vocab_n_tokens(vocab);
        std::vector<llama_token> order;
        begin.assign(1, 0);
        for (llama_token token = 0; token < n; ++token) {
            texts += token_piece(vocab, token);
            begin.push_back(texts.size());
            kinds.push_back(llama_vocab_is_eog(vocab, token)   ? END
                            : token_is_special(vocab, token)   ? SPECIAL
                            : begin[token] < begin[token + 1] ? TEXT
                                                               : NOTHING);
            if (kinds.back() == TEXT) {
                order.push_back(token);
            } else if (kinds.back() != NOTHING) {
                apart.push_back(token);
            }
        }
        std::sort(order.begin(), order.end(), [this](llama_token a, llama_token b) {
            const int compared = std::memcmp(text(a), text(b), std::min(size(a), size(b)));
            return compared != 0 ? compared < 0 : size(a) != size(b) ? size(a) < size(b) : a < b;
        });
        // in this order, what a text begins with comes before it, and the nearest of them is the last one still open
        std::vector<llama_token> open, parent(n, LLAMA_TOKEN_NULL);
        first.assign(n + 1, 0);
        for (const llama_token token : order) {
            while (!open.empty() && (size(open.back()) > size(token) ||
                                     std::memcmp(text(open.back()), text(token), size(open.back())) != 0)) {
                open.pop_back();
            }
            if (open.empty()) {
                roots.push_back(token);
            } else {
                parent[token] = open.back();
                ++first[open.back() + 1];
            }
            open.push_back(token);
        }
        for (llama_token token = 0; token < n; ++token) {
            first[token + 1] += first[token];
        }
        children.resize(first[n]);
        std::vector<uint32_t> next(first.begin(), first.end() - 1);
        for (const llama_token token : order) {
            if (parent[token] != LLAMA_TOKEN_NULL) {
                children[next[parent[token]]++] = token;
            }
        }
    }
};

}  // namespace llamacy

#endif  // LLAMACY_TOKEN_TREE_H
