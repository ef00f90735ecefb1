// Lines of the native log, put together from the pieces that llama.cpp logs, and the last warnings and errors of each
// thread, kept for the exception that may follow.
#ifndef LLAMACY_LOG_LINES_H
#define LLAMACY_LOG_LINES_H

#include <deque>
#include <stdexcept>
#include <string>

namespace llamacy {

constexpr int    LOG_WARN      = 3;
constexpr int    LOG_CONT      = 5;
constexpr size_t LOG_KEPT      = 8;
constexpr size_t LOG_LINE_MAX  = 4096;

// A look at each piece of text before it is put together, for a native call whose progress shows in its log only.
// LOG_STOP throws, through the native function that logs, which must be one that catches exceptions.
constexpr int LOG_PASS    = 0;
constexpr int LOG_SWALLOW = 1;
constexpr int LOG_STOP    = 2;
typedef int (*log_observer)(int level, const char * text, void * data);

struct log_stopped : std::runtime_error {
    log_stopped() : std::runtime_error("stopped") {}
};

struct log_lines {
    log_observer            observer      = nullptr;
    void *                  observer_data = nullptr;
    int                     level         = 2;
    std::string             partial;
    std::string             line;
    std::deque<std::string> kept;
};

inline log_lines & thread_log_lines() {
    static thread_local log_lines lines;
    return lines;
}

// Take one piece of text; true when it ended a line, which is then in `line` with its `level`.
inline bool log_feed(int level, const char * text) {
    log_lines & lines = thread_log_lines();
    if (lines.observer) {
        const int verdict = lines.observer(level, text ? text : "", lines.observer_data);
        if (verdict == LOG_STOP) {
            throw log_stopped();
        }
        if (verdict == LOG_SWALLOW) {
            return false;
        }
    }
    if (level != LOG_CONT) {
        lines.level = level;
    }
    lines.partial += text ? text : "";
    if (lines.partial.empty() || (lines.partial.back() != '\n' && lines.partial.size() < LOG_LINE_MAX)) {
        return false;
    }
    while (!lines.partial.empty() && (lines.partial.back() == '\n' || lines.partial.back() == '\r')) {
        lines.partial.pop_back();
    }
    lines.line.swap(lines.partial);
    lines.partial.clear();
    if (lines.line.empty()) {
        return false;
    }
    if (lines.level >= LOG_WARN) {
        lines.kept.push_back(lines.line);
        if (lines.kept.size() > LOG_KEPT) {
            lines.kept.pop_front();
        }
    }
    return true;
}

}  // namespace llamacy

#endif  // LLAMACY_LOG_LINES_H
