// Whether bytes are a state that llama.cpp can read, found out before it touches the memory.
//
// llama.cpp takes what a state says about cells on trust: a count or position that no save can have written trips an
// assertion, which ends the process, or leaves bookkeeping that trips one later, and a state that turns out to be short
// has already emptied the sequence (src/llama-kv-cache.cpp and src/llama-memory-recurrent.cpp, state_read). This walks
// the same layout without writing anything. Numbers that llama.cpp compares itself (types, row sizes, layers) are left
// to it; tensor data is not looked at.
#ifndef LLAMACY_STATE_LAYOUT_H
#define LLAMACY_STATE_LAYOUT_H

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace llamacy {

struct state_shape {
    const char * arch         = nullptr;  // of a whole state; null for the state of one sequence
    bool         walk         = true;     // false for memory whose layout is not known here
    bool         recurrent    = false;    // a recurrent part comes after the attention caches
    bool         attention    = false;    // some layers have attention caches instead of recurrent state
    bool         cell_ext     = false;    // cells carry a 2-D position (M-RoPE)
    bool         on_device    = false;    // tensor data is not in the bytes
    int          n_caches_min = 0;        // attention caches
    int          n_caches_max = 0;
    uint32_t     n_streams    = 1;
    uint32_t     n_seq_max    = 1;
};

constexpr uint32_t STATE_SEQ_MAGIC = 0xaf143cd8;  // io_magic of src/llama-context.cpp
constexpr size_t   STATE_SEQ_HEADER = 8;
constexpr size_t   STATE_CELL_EXT  = 12;          // sizeof(llama_kv_cell_ext)

class state_walker {
  public:
    state_walker(const uint8_t * data, size_t size, const state_shape & shape) :
        end(data + size), shape(shape), whole(shape.arch != nullptr) {}

    bool any_cell = false;  // something is in the state; meaningful once it is found in order

    // null when the bytes are in order, else what is wrong with them
    const char * run(const uint8_t * data) {
        const uint8_t * at = data;
        if (whole ? !read_arch(at) : !read_header(at)) {
            return error;
        }
        if (!shape.walk || read_parts(at, 0)) {
            return nullptr;
        }
        return error ? error : "it ends too early";
    }

  private:
    const uint8_t *     end;
    const state_shape & shape;
    const bool          whole;
    const char *        error     = nullptr;
    const uint8_t *     error_at  = nullptr;

    // the message of the alternative that got furthest is the one to tell
    bool fail(const uint8_t * at, const char * message) {
        if (!error || at >= error_at) {
            error    = message;
            error_at = at;
        }
        return false;
    }

    template <typename T> bool read(const uint8_t *& at, T & value) {
        if (size_t(end - at) < sizeof(T)) {
            return fail(end, "it ends too early");
        }
        std::memcpy(&value, at, sizeof(T));
        at += sizeof(T);
        return true;
    }

    bool skip(const uint8_t *& at, uint64_t n, uint64_t times) {
        if (shape.on_device) {
            return true;
        }
        if (times != 0 && n > uint64_t(end - at) / times) {
            return fail(end, "it ends too early");
        }
        at += n * times;
        return true;
    }

    bool read_header(const uint8_t *& at) {
        uint32_t magic;
        int32_t  seq_id;
        if (!read(at, magic) || !read(at, seq_id)) {
            return false;
        }
        if (magic != STATE_SEQ_MAGIC) {
            return fail(at, "it does not begin like the state of a sequence");
        }
        return true;
    }

    bool read_arch(const uint8_t *& at) {
        uint32_t size;
        if (!read(at, size)) {
            return false;
        }
        if (size != std::strlen(shape.arch) || size_t(end - at) < size || std::memcmp(at, shape.arch, size) != 0) {
            return fail(at, "it is not a state of this architecture");
        }
        at += size;
        return true;
    }

    bool read_parts(const uint8_t * at, int n_caches) {
        if (n_caches >= shape.n_caches_min) {
            if (shape.recurrent) {
                const uint8_t * next = at;
                if (read_recurrent(next)) {
                    return true;
                }
            } else if (at == end) {
                return true;
            } else {
                fail(at, "something follows its end");
            }
        }
        if (n_caches < shape.n_caches_max) {
            // caches of multi-head latent attention have no V
            for (const bool with_v : { true, false }) {
                const uint8_t * next = at;
                if (read_cache(next, with_v) && read_parts(next, n_caches + 1)) {
                    return true;
                }
            }
        }
        return false;
    }

    bool read_pos(const uint8_t *& at) {
        int32_t pos;
        if (!read(at, pos)) {
            return false;
        }
        return (pos >= 0 && pos < INT32_MAX) || fail(at, "a cell has an impossible position");
    }

    bool read_seq_ids(const uint8_t *& at, uint32_t n, uint32_t stream) {
        int32_t last = -1;
        for (uint32_t i = 0; i < n; ++i) {
            int32_t seq_id;
            if (!read(at, seq_id)) {
                return false;
            }
            if (seq_id <= last || uint32_t(seq_id) >= shape.n_seq_max ||
                (shape.n_streams > 1 && stream != UINT32_MAX && uint32_t(seq_id) != stream)) {
                return fail(at, "a cell belongs to a sequence that this context does not have");
            }
            last = seq_id;
        }
        return true;
    }

    // llama_kv_cache::state_write
    bool read_cache(const uint8_t *& at, bool with_v) {
        uint32_t n_streams;
        if (!read(at, n_streams)) {
            return false;
        }
        if (n_streams != shape.n_streams) {
            return fail(at, "it is of a context with other n_seq_max or kv_unified");
        }
        bool seen = false;
        for (uint32_t stream = 0; stream < n_streams; ++stream) {
            uint32_t n_cells;
            if (!read(at, n_cells)) {
                return false;
            }
            any_cell = any_cell || n_cells > 0;
            if (n_cells == 0) {
                continue;
            }
            if (!whole && seen) {
                return fail(at, "its sequence is in two streams");
            }
            seen = true;
            if (!read_cells(at, n_cells, stream) || !read_rows(at, n_cells, with_v)) {
                return false;
            }
        }
        return true;
    }

    bool read_cells(const uint8_t *& at, uint32_t n_cells, uint32_t stream) {
        for (uint32_t i = 0; i < n_cells; ++i) {
            uint32_t n_seq_ids;
            if (!read_pos(at) || !read(at, n_seq_ids)) {
                return false;
            }
            if (whole ? n_seq_ids < 1 || n_seq_ids > shape.n_seq_max : n_seq_ids != 1) {
                return fail(at, "a cell belongs to an impossible number of sequences");
            }
            if (shape.cell_ext) {
                if (size_t(end - at) < STATE_CELL_EXT) {
                    return fail(end, "it ends too early");
                }
                at += STATE_CELL_EXT;
            }
            if (whole) {
                if (!read_seq_ids(at, n_seq_ids, stream)) {
                    return false;
                }
            } else {
                int32_t seq_id;
                if (!read(at, seq_id)) {
                    return false;
                }
            }
        }
        return true;
    }

    bool read_rows(const uint8_t *& at, uint32_t n_cells, bool with_v) {
        uint32_t v_trans, n_layers, n_rot_k, n_rot_v;
        if (!read(at, v_trans) || !read(at, n_layers) || !read(at, n_rot_k) || !read(at, n_rot_v)) {
            return false;
        }
        for (uint32_t layer = 0; layer < n_layers; ++layer) {
            int32_t  type;
            uint64_t row_bytes;
            if (!read(at, type) || !read(at, row_bytes) || !skip(at, row_bytes, n_cells)) {
                return false;
            }
        }
        for (uint32_t layer = 0; with_v && layer < n_layers; ++layer) {
            int32_t  type;
            uint64_t row_bytes;
            uint32_t element_bytes, n_embd;
            if (!read(at, type)) {
                return false;
            }
            if (!v_trans) {
                if (!read(at, row_bytes) || !skip(at, row_bytes, n_cells)) {
                    return false;
                }
            } else if (!read(at, element_bytes) || !read(at, n_embd) ||
                       !skip(at, uint64_t(element_bytes) * n_embd, n_cells)) {
                return false;
            }
        }
        return true;
    }

    // llama_memory_recurrent::state_write, up to the end: a row of R for each recurrent layer, then a row of S for each
    bool read_recurrent(const uint8_t *& at) {
        uint32_t n_cells, s_trans, n_layers;
        if (!read(at, n_cells)) {
            return false;
        }
        any_cell = any_cell || n_cells > 0;
        // llama.cpp asserts that the cell it found for the sequence is the only one
        if (n_cells > (whole ? shape.n_seq_max : 1)) {
            return fail(at, "it has too many recurrent cells");
        }
        for (uint32_t i = 0; i < n_cells; ++i) {
            uint32_t n_seq_ids;
            if (!read_pos(at) || !read(at, n_seq_ids)) {
                return false;
            }
            if (whole ? n_seq_ids < 1 || n_seq_ids > shape.n_seq_max : n_seq_ids != 0) {
                return fail(at, "a cell belongs to an impossible number of sequences");
            }
            if (!read_seq_ids(at, n_seq_ids, UINT32_MAX)) {
                return false;
            }
        }
        if (!read(at, s_trans) || !read(at, n_layers)) {
            return false;
        }
        uint64_t n_tensors = 0;
        while (at != end) {
            int32_t  type;
            uint64_t row_bytes;
            if (!read(at, type) || !read(at, row_bytes) || !skip(at, row_bytes, n_cells)) {
                return false;
            }
            ++n_tensors;
        }
        // in a model with attention, layers without recurrent state are left out
        if (shape.attention ? n_tensors % 2 != 0 || n_tensors > 2 * uint64_t(n_layers) : n_tensors != 2 * uint64_t(n_layers)) {
            return fail(at, "it has too few or too many recurrent layers");
        }
        return true;
    }
};

inline const char * state_check(const uint8_t * data, size_t size, const state_shape & shape, bool & is_empty) {
    state_walker walker(data, size, shape);
    const char * error = walker.run(data);
    is_empty = shape.walk && !walker.any_cell;
    return error;
}

}  // namespace llamacy

#endif  // LLAMACY_STATE_LAYOUT_H
