// The native side of bench_embed: texts to unit vectors, in a loop on llama.h as short as it can be.
//
// embed MODEL N_MOST TEXTS [BACKENDS] reads one text a line from TEXTS. Each line "embed PACK" on standard input computes
// all of them, in the order of their length, as many in a batch as have up to PACK tokens, and answers with a line of JSON.

#include "ggml-backend.h"
#include "llama.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

static const int MAX_TEXTS = 64;  // in a batch
static const int SHOWN = 8;       // vectors in an answer

static double seconds(clockid_t clock) {
    timespec now {};
    clock_gettime(clock, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

[[noreturn]] static void fail(const std::string & what) {
    std::fprintf(stderr, "embed: %s\n", what.c_str());
    std::exit(1);
}

int main(int argc, char ** argv) {
    if (argc < 4) {
        fail("usage: embed MODEL N_MOST TEXTS [BACKENDS]");
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    if (argc > 4) {
        ggml_backend_load_all_from_path(argv[4]);
    }
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == nullptr) {
        fail("can't load the model");
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int32_t n_most = std::atoi(argv[2]);
    const int32_t n_embd = llama_model_n_embd(model);
    std::vector<std::string> texts;
    std::ifstream file(argv[3]);
    for (std::string line; std::getline(file, line);) {
        texts.push_back(line);
    }
    const size_t n = texts.size();

    llama_context * ctx = nullptr;
    int32_t n_batch = 0;
    llama_batch batch {};
    std::cout << "{\"name\": \"native\"}" << std::endl;

    for (std::string line; std::getline(std::cin, line);) {
        const int32_t pack = std::max(std::atoi(line.c_str() + std::string("embed").size()), n_most);
        if (pack > n_batch) {
            if (ctx != nullptr) {
                llama_free(ctx);
                llama_batch_free(batch);
            }
            n_batch = (pack + MAX_TEXTS - 1) / MAX_TEXTS * MAX_TEXTS;
            llama_context_params params = llama_context_default_params();
            params.n_ctx = params.n_batch = params.n_ubatch = n_batch;
            params.n_seq_max = MAX_TEXTS;
            params.n_threads = params.n_threads_batch = 1;
            params.embeddings = true;
            params.kv_unified = true;
            ctx = llama_init_from_model(model, params);
            if (ctx == nullptr) {
                fail("can't create the context");
            }
            batch = llama_batch_init(n_batch, 0, 1);
        }
        const int32_t most = std::atoi(line.c_str() + std::string("embed").size());
        const double wall = seconds(CLOCK_MONOTONIC);
        const double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);

        std::vector<std::vector<llama_token>> tokens(n);
        size_t n_tokens = 0;
        for (size_t i = 0; i < n; ++i) {
            tokens[i].resize(texts[i].size() + 16);
            tokens[i].resize(size_t(llama_tokenize(vocab, texts[i].data(), int32_t(texts[i].size()), tokens[i].data(),
                                                   int32_t(tokens[i].size()), true, false)));
            n_tokens += tokens[i].size();
        }
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return tokens[a].size() < tokens[b].size(); });
        std::vector<float> vectors(n * size_t(n_embd));
        for (size_t begin = 0; begin < n;) {
            size_t end = begin;
            batch.n_tokens = 0;
            while (end < n && end - begin < MAX_TEXTS) {
                const auto & text = tokens[order[end]];
                if (end > begin && batch.n_tokens + int32_t(text.size()) > most) {
                    break;
                }
                for (size_t j = 0; j < text.size(); ++j) {
                    const int32_t k = batch.n_tokens++;
                    batch.token[k] = text[j];
                    batch.pos[k] = int32_t(j);
                    batch.n_seq_id[k] = 1;
                    batch.seq_id[k][0] = int32_t(end - begin);
                    batch.logits[k] = 1;
                }
                ++end;
            }
            if (llama_decode(ctx, batch) != 0) {
                fail("a decode failed");
            }
            for (size_t i = begin; i < end; ++i) {
                const float * from = llama_get_embeddings_seq(ctx, llama_seq_id(i - begin));
                float * to = vectors.data() + order[i] * size_t(n_embd);
                double sum = 0;
                for (int32_t j = 0; j < n_embd; ++j) {
                    sum += double(from[j]) * from[j];
                }
                const double scale = sum > 0 ? 1 / std::sqrt(sum) : 0;
                for (int32_t j = 0; j < n_embd; ++j) {
                    to[j] = float(from[j] * scale);
                }
            }
            begin = end;
        }

        const double wall_end = seconds(CLOCK_MONOTONIC);
        const double cpu_end = seconds(CLOCK_PROCESS_CPUTIME_ID);
        std::printf("{\"n_tokens\": %zu, \"tokens\": [], \"wall\": [%.9f], \"cpu\": [%.9f], \"text\": \"", n_tokens,
                    wall_end - wall, cpu_end - cpu);
        const auto * bytes = reinterpret_cast<const unsigned char *>(vectors.data());
        for (size_t i = 0; i < std::min(n, size_t(SHOWN)) * size_t(n_embd) * sizeof(float); ++i) {
            std::printf("%02x", bytes[i]);
        }
        std::printf("\"}\n");
        std::fflush(stdout);
    }
    if (ctx != nullptr) {
        llama_free(ctx);
        llama_batch_free(batch);
    }
    llama_model_free(model);
    return 0;
}
