// Which tokens of a vocabulary consist of nothing but characters of a set. Where a grammar lets any of these follow each
// other, as within a string, that is most of its answer.
#ifndef LLAMACY_TOKEN_SLICES_H
#define LLAMACY_TOKEN_SLICES_H

#include "_token_tree.h"

#include <array>
#include <map>
#include <memory>
#include <utility>

namespace llamacy {

// A set of small numbers: tokens, or their ranks.
class number_set {
public:
    explicit number_set(int32_t end = 0) : end(end), words((end + 63) / 64) {}

    void add(int32_t one) { words[one / 64] |= bit(one); }
    void remove(int32_t one) { words[one / 64] &= ~bit(one); }
    bool has(int32_t one) const { return (words[one / 64] & bit(one)) != 0; }

    // The first number from one on that is not in the set, or `end`.
    int32_t next_other(int32_t from) const {
        for (size_t i = from / 64; i < words.size(); ++i) {
            uint64_t others = ~words[i];
            if (i == (size_t) from / 64) {
                others &= ~(uint64_t) 0 << (from % 64);
            }
            if (others != 0) {
                return std::min((int32_t) (64 * i) + lowest(others), end);
            }
        }
        return end;
    }

    template <typename Visit> void for_each(Visit visit) const {
        for (size_t i = 0; i < words.size(); ++i) {
            if (words[i] == ~(uint64_t) 0) {
                for (int32_t j = 0; j < 64; ++j) {
                    visit((int32_t) (64 * i) + j);
                }
                continue;
            }
            for (uint64_t left = words[i]; left != 0; left &= left - 1) {
                visit((int32_t) (64 * i) + lowest(left));
            }
        }
    }

private:
    int32_t               end;
    std::vector<uint64_t> words;

    static uint64_t bit(int32_t one) { return (uint64_t) 1 << (one % 64); }

    static int32_t lowest(uint64_t bits) {
#if defined(__GNUC__)
        return __builtin_ctzll(bits);
#else
        int32_t n = 0;
        for (; (bits & 1) == 0; bits >>= 1) {
            ++n;
        }
        return n;
#endif
    }
};

using character_ranges = std::vector<std::pair<uint32_t, uint32_t>>;

// The tokens of at most so many characters, all of a set; and of each text how much is not of the set.
struct token_slice {
    static constexpr std::array<int32_t, 6> LENGTHS = { 1, 2, 4, 8, 16, INT32_MAX };

    std::array<number_set, LENGTHS.size()> tokens;
    std::array<number_set, LENGTHS.size()> ranks;
    std::vector<uint16_t>                  heads; // bytes after which a text has nothing but whole characters of the set

    token_slice(const token_tree & tree, const character_ranges & characters) {
        const int32_t n_ranks = (int32_t) tree.order.size();
        tokens.fill(number_set(tree.n_tokens()));
        ranks.fill(number_set(n_ranks));
        for (int32_t rank = 0; rank < n_ranks; ++rank) {
            const reading found = read(characters, tree.text(rank), tree.size(rank));
            heads.push_back((uint16_t) std::min<size_t>(found.head, UINT16_MAX));
            for (size_t i = LENGTHS.size(); found.head == 0 && i-- > 0 && found.length <= LENGTHS[i];) {
                tokens[i].add(tree.order[rank]);
                ranks[i].add(rank);
            }
        }
    }

    // Which of the lengths is the longest that is not above one.
    static size_t find_length(int32_t length) {
        return std::upper_bound(LENGTHS.begin(), LENGTHS.end(), length) - LENGTHS.begin() - 1;
    }

private:
    struct reading {
        size_t  head   = 0;
        int32_t length = 0; // characters after that
    };

    static reading read(const character_ranges & characters, const char * text, size_t size) {
        reading found;
        utf8_state utf8;
        uint32_t value = 0;
        for (size_t i = 0; i < size; ++i) {
            const bool first = utf8.left == 0;
            const uint8_t byte = (uint8_t) text[i];
            if (!utf8.read(text + i, 1)) {
                return { UINT16_MAX, 0 };
            }
            value = !first ? value << 6 | (byte & 0x3F) : utf8.left == 0 ? byte : byte & (0x3F >> utf8.left);
            if (utf8.left > 0) {
                continue;
            }
            const auto above = std::upper_bound(characters.begin(), characters.end(), value,
                                                [](uint32_t one, const auto & range) { return one < range.first; });
            if (above == characters.begin() || value > std::prev(above)->second) {
                found = { i + 1, 0 };
            } else {
                ++found.length;
            }
        }
        return utf8.left == 0 ? found : reading { UINT16_MAX, 0 };
    }
};

// A vocabulary with the slices of it that grammars have asked for. Threads may share it.
class sliced_vocab {
public:
    explicit sliced_vocab(const llama_vocab * vocab) : tree(vocab) {}

    token_tree tree;

    // The slice of some characters, or nothing the first time: making it takes as long as doing without. The tree must have
    // been built.
    std::shared_ptr<const token_slice> find(const character_ranges & characters) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            const auto found = slices.find(characters);
            if (found == slices.end()) {
                if (slices.size() >= MOST) {
                    slices.clear();
                }
                slices.emplace(characters, nullptr);
                return nullptr;
            }
            if (found->second) {
                return found->second;
            }
        }
        auto made = std::make_shared<const token_slice>(tree, characters);
        const std::lock_guard<std::mutex> lock(mutex);
        slices[characters] = made;
        return made;
    }

private:
    enum : size_t { MOST = 16 }; // each takes up to a megabyte for a vocabulary of 262,144 tokens

    std::mutex mutex;
    std::map<character_ranges, std::shared_ptr<const token_slice>> slices;
};

}  // namespace llamacy

#endif  // LLAMACY_TOKEN_SLICES_H
