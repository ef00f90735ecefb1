// The tokens of a vocabulary in the order of their texts. Who reads them in this order reads each beginning once, and passes
// over all that begin like one that does not fit.
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

    std::vector<llama_token> order;    // TEXT and SPECIAL tokens by text, equal ones by id; the place here is their rank
    std::vector<llama_token> specials; // SPECIAL tokens
    std::vector<llama_token> ends;     // END tokens
    size_t                   longest = 0; // bytes of the longest text

    int32_t n_tokens() const { return (int32_t) kinds.size(); }
    kind_of_token kind(llama_token token) const { return kinds[token]; }

    // The text of a token with a rank.
    int32_t rank(llama_token token) const { return ranks[token]; }
    const char * text(int32_t rank) const { return texts.data() + begin[rank]; }
    size_t size(int32_t rank) const { return begin[rank + 1] - begin[rank]; }

    // How many bytes, at most `most`, a text has in common with that of a lower rank.
    size_t shared(int32_t lower, int32_t rank, size_t most) const {
        if (lower + 1 == rank) {
            return std::min(common[rank], most);
        }
        most = std::min({ most, size(lower), size(rank) });
        return std::mismatch(text(lower), text(lower) + most, text(rank)).first - text(lower);
    }

    // The first rank above one whose text does not begin with the same `n` bytes.
    int32_t past(int32_t rank, size_t n) const {
        int32_t next = rank + 1;
        while (next < (int32_t) order.size() && common[next] >= n) {
            next = less[next];
        }
        return next;
    }

private:
    const llama_vocab *        vocab;
    std::once_flag             once;
    std::string                texts;
    std::vector<size_t>        begin;
    std::vector<kind_of_token> kinds;
    std::vector<int32_t>       ranks;
    std::vector<size_t>        common; // bytes that a text shares with the one before it
    std::vector<int32_t>       less;   // the next rank that shares less than this one with the one before it

    void arrange() {
        struct entry {
            uint64_t    first; // the first bytes, which mostly decide
            size_t      begin, size;
            llama_token token;
        };
        const llama_token n = llama_vocab_n_tokens(vocab);
        std::string pieces;
        std::vector<entry> entries;
        ranks.assign(n, -1);
        for (llama_token token = 0; token < n; ++token) {
            const std::string piece = token_piece(vocab, token);
            kinds.push_back(llama_vocab_is_eog(vocab, token) ? END
                            : piece.empty()                  ? NOTHING
                            : token_is_special(vocab, token) ? SPECIAL
                                                             : TEXT);
            if (kinds.back() == END) {
                ends.push_back(token);
            } else if (kinds.back() == SPECIAL) {
                specials.push_back(token);
            }
            if (kinds.back() == END || kinds.back() == NOTHING) {
                continue;
            }
            entry one = { 0, pieces.size(), piece.size(), token };
            for (size_t i = 0; i < 8; ++i) {
                one.first = one.first << 8 | (i < piece.size() ? (uint8_t) piece[i] : 0);
            }
            entries.push_back(one);
            pieces += piece;
        }
        std::sort(entries.begin(), entries.end(), [&](const entry & a, const entry & b) {
            if (a.first != b.first) {
                return a.first < b.first;
            }
            const int compared = std::memcmp(&pieces[a.begin], &pieces[b.begin], std::min(a.size, b.size));
            return compared != 0 ? compared < 0 : a.size != b.size ? a.size < b.size : a.token < b.token;
        });
        const int32_t n_ranks = (int32_t) entries.size();
        begin.assign(1, 0);
        common.assign(n_ranks, 0);
        texts.reserve(pieces.size());
        for (int32_t i = 0; i < n_ranks; ++i) {
            ranks[entries[i].token] = i;
            order.push_back(entries[i].token);
            texts.append(pieces, entries[i].begin, entries[i].size);
            begin.push_back(texts.size());
            longest = std::max(longest, entries[i].size);
            if (i > 0) {
                const size_t most = std::min(size(i - 1), size(i));
                common[i] = std::mismatch(text(i - 1), text(i - 1) + most, text(i)).first - text(i - 1);
            }
        }
        less.assign(n_ranks, n_ranks);
        for (int32_t i = n_ranks - 1; i >= 0; --i) {
            int32_t next = i + 1;
            while (next < n_ranks && common[next] >= common[i]) {
                next = less[next];
            }
            less[i] = next;
        }
    }
};

}  // namespace llamacy

#endif  // LLAMACY_TOKEN_TREE_H
