// The loop that llamacy is measured against: llama.h used as well as C++ allows, on the libraries that llamacy uses.
//
//   loop MODEL N_CTX N_BATCH N_UBATCH OFFSET [FOLDER OF BACKENDS]
//
// OFFSET is a number of bytes to allocate before anything else, so that all that follows lies elsewhere. The process loads
// the model, says "{"ready": true, ...}" and then answers one line of standard input after the other:
//
//   run SAMPLER TEXT N_GENERATE SEED N_MARKS MARK... N_TOKENS TOKEN...
//   rss
//
// SAMPLER is "greedy" or "default" (top_k 40, top_p 0.95, min_p 0.05, temperature 0.8, dist), TEXT is 1 to turn tokens into
// text as well. A MARK is a number of generated tokens; the answer has the time at each, from the beginning of the request.

#include "ggml-backend.h"
#include "llama.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Request {
    std::string sampler;
    bool text = false;
    int n_generate = 0;
    uint32_t seed = 0;
    std::vector<int> marks;
    std::vector<llama_token> prompt;
};

struct Moment {
    double wall;
    double cpu;
};

double seconds(clockid_t clock) {
    timespec now {};
    clock_gettime(clock, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

Moment now() {
    return { seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID) };
}

long long peak_rss() {
    // Not getrusage where it can be helped: on Linux that has the peak of the process before exec in it.
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return 1024 * std::atoll(line.c_str() + 6);
        }
    }
    rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    return usage.ru_maxrss;
#else
    return 1024LL * usage.ru_maxrss;
#endif
}

[[noreturn]] void fail(const std::string & what) {
    std::fprintf(stderr, "loop: %s\n", what.c_str());
    std::exit(1);
}

llama_sampler * make_sampler(const Request & request) {
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (request.sampler == "greedy") {
        llama_sampler_chain_add(chain, llama_sampler_init_greedy());
        return chain;
    }
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.95f, 0));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.05f, 0));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(0.8f));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(request.seed));
    return chain;
}

bool parse(std::istringstream & line, Request & request) {
    size_t n = 0;
    if (!(line >> request.sampler >> request.text >> request.n_generate >> request.seed >> n)) {
        return false;
    }
    request.marks.resize(n);
    for (int & mark : request.marks) {
        line >> mark;
    }
    line >> n;
    request.prompt.resize(n);
    for (llama_token & token : request.prompt) {
        line >> token;
    }
    return bool(line) && !request.prompt.empty();
}

void print_times(const char * name, const std::vector<Moment> & times, const Moment & begin, double Moment::* clock) {
    std::printf(", \"%s\": [", name);
    for (size_t i = 0; i < times.size(); i++) {
        std::printf("%s%.9f", i ? ", " : "", times[i].*clock - begin.*clock);
    }
    std::printf("]");
}

void answer(const Request & request, const std::vector<llama_token> & tokens, const std::string & text,
            const std::vector<Moment> & times, const Moment & begin, const Moment & first, const Moment & last) {
    std::printf("{\"n_tokens\": %zu, \"tokens\": [", tokens.size());
    for (size_t i = 0; i < tokens.size(); i++) {
        std::printf("%s%d", i ? ", " : "", tokens[i]);
    }
    std::printf("], \"text\": \"");
    for (const char byte : text) {
        std::printf("%02x", (unsigned char) byte);
    }
    std::printf("\"");
    print_times("wall", times, begin, &Moment::wall);
    print_times("cpu", times, begin, &Moment::cpu);
    std::printf(", \"prompt_tokens_per_s\": %.3f", double(request.prompt.size()) / (first.wall - begin.wall));
    std::printf(", \"tokens_per_s\": %.3f",
                tokens.size() > 1 ? double(tokens.size() - 1) / (last.wall - first.wall) : 0.0);
    std::printf(", \"peak_rss_bytes\": %lld}\n", peak_rss());
    std::fflush(stdout);
}

// The same batch as llamacy hands over: positions, sequences and outputs filled in, memory used again.
void decode(llama_context * ctx, llama_batch & batch, const llama_token * tokens, int n, int n_past, bool output) {
    for (int i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = n_past + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 0;
    }
    batch.logits[n - 1] = output;
    batch.n_tokens = n;
    const int status = llama_decode(ctx, batch);
    if (status != 0) {
        fail("llama_decode returned " + std::to_string(status));
    }
}

void run(llama_context * ctx, llama_batch & batch, const llama_vocab * vocab, const Request & request) {
    std::vector<llama_token> tokens;
    std::vector<Moment> times;
    std::string text;
    char piece[256];
    tokens.reserve(request.n_generate);
    times.reserve(request.marks.size());
    text.reserve(8 * size_t(request.n_generate));
    const int n_prompt = int(request.prompt.size());
    const int n_batch = int(llama_n_batch(ctx));
    size_t next = 0;

    const Moment begin = now();
    llama_memory_seq_rm(llama_get_memory(ctx), 0, -1, -1);
    llama_sampler * sampler = make_sampler(request);
    for (int at = 0; at < n_prompt; at += n_batch) {
        const int n = std::min(n_batch, n_prompt - at);
        decode(ctx, batch, request.prompt.data() + at, n, at, at + n == n_prompt);
    }
    Moment first = begin;
    for (int n = 1; n <= request.n_generate; n++) {
        const llama_token token = llama_sampler_sample(sampler, ctx, -1);
        tokens.push_back(token);
        if (request.text) {
            const int size = llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, false);
            text.append(piece, std::max(size, 0));
        }
        if (n == 1) {
            first = now();
        }
        if (next < request.marks.size() && n == request.marks[next]) {
            times.push_back(now());
            next++;
        }
        if (llama_vocab_is_eog(vocab, token)) {
            break;
        }
        if (n < request.n_generate) {
            decode(ctx, batch, &token, 1, n_prompt + n - 1, true);
        }
    }
    llama_sampler_free(sampler);
    const Moment last = now();
    times.push_back(last);
    answer(request, tokens, text, times, begin, first, last);
}

void quiet(ggml_log_level, const char *, void *) {}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 6) {
        fail("usage: loop MODEL N_CTX N_BATCH N_UBATCH OFFSET [FOLDER OF BACKENDS]");
    }
    static const std::vector<char> offset(std::strtoull(argv[5], nullptr, 10));
    llama_log_set(quiet, nullptr);
    if (argc > 6) {
        ggml_backend_load_all_from_path(argv[6]);
    }
    llama_backend_init();
    const Moment begin = now();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == nullptr) {
        fail(std::string("can't load ") + argv[1]);
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = uint32_t(std::atoi(argv[2]));
    params.n_batch = uint32_t(std::atoi(argv[3]));
    params.n_ubatch = uint32_t(std::atoi(argv[4]));
    params.n_threads = 1;
    params.n_threads_batch = 1;
    llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == nullptr) {
        fail("can't create the context");
    }
    std::printf("{\"ready\": true, \"load_s\": %.6f, \"version\": \"%s\"}\n", now().wall - begin.wall, llama_version());
    std::fflush(stdout);

    const llama_vocab * vocab = llama_model_get_vocab(model);
    llama_batch batch = llama_batch_init(int32_t(llama_n_batch(ctx)), 0, 1);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command;
        words >> command;
        Request request;
        if (command == "run" && parse(words, request)) {
            run(ctx, batch, vocab, request);
        } else if (command == "rss") {
            std::printf("{\"peak_rss_bytes\": %lld}\n", peak_rss());
            std::fflush(stdout);
        } else {
            fail("what does this mean: " + line.substr(0, 80));
        }
    }
    llama_batch_free(batch);
    llama_free(ctx);
    llama_model_free(model);
    llama_backend_free();
}
