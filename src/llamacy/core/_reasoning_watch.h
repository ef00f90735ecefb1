// Tells the reasoning of a model apart from the rest of its text, as the text comes.
#ifndef LLAMACY_REASONING_WATCH_H
#define LLAMACY_REASONING_WATCH_H

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace llamacy {

struct reasoning_tags {
    std::vector<std::string> starts;
    std::vector<std::string> ends;
    bool begun    = false; // the text begins within reasoning
    bool anywhere = false; // a start tag counts wherever it stands, not just first (white space aside)
};

// What a piece of text has of the text beside reasoning: from `begin` on, and before `end` where reasoning began again.
struct reasoning_outside {
    size_t begin = std::string::npos;
    size_t end   = std::string::npos;
};

class reasoning_watch {
public:
    bool inside = false;

    void reset(const reasoning_tags & tags) {
        *this = {};
        inside = tags.begun;
        first  = !tags.begun;
    }

    // Read a piece. `begin` of what is returned is npos when all of the piece is reasoning, and 0 when the text before it
    // goes on; only the last stretch is told when there are several, since a token is short.
    reasoning_outside read(const reasoning_tags & tags, const std::string & piece) {
        reasoning_outside found;
        if (!inside) {
            found.begin = 0;
        }
        for (size_t i = 0; i < piece.size(); ++i) {
            const char c = piece[i];
            if (inside && spoken) {
                // an end tag in quotes is spoken of
                if (c != spoken) {
                    leave();
                    found = { i, std::string::npos };
                }
                spoken = 0;
            }
            if (inside) {
                if (read_inside(tags, c)) {
                    found = { i + 1, std::string::npos };
                }
            } else if (tags.anywhere) {
                keep(c, tags.starts);
                if (const size_t length = tag_at_end(tags.starts)) {
                    found.end = i + 1 - std::min(length, i + 1);
                    enter();
                }
            } else if (first) {
                read_first(tags, c, i, found);
            }
        }
        return found;
    }

private:
    bool        first    = true; // nothing but white space, and perhaps the beginning of a tag, since reasoning may come
    char        spoken   = 0;    // the mark before an end tag, which has to stand after it as well
    bool        open[2]  = {};   // within backticks, within quotation marks, on this line
    std::string recent;          // as much of the text as a tag has; while `first`, what may be the beginning of one

    void enter() {
        inside  = true;
        open[0] = open[1] = false;
        recent.clear();
    }

    void leave() {
        inside = false;
        first  = true;
        recent.clear();
    }

    void keep(char c, const std::vector<std::string> & tags) {
        size_t most = 1;
        for (const auto & tag : tags) {
            most = std::max(most, tag.size());
        }
        recent += c;
        if (recent.size() > 2 * most + 16) {
            recent.erase(0, recent.size() - most - 1); // with the character before a tag
        }
    }

    size_t tag_at_end(const std::vector<std::string> & tags) const {
        size_t longest = 0;
        for (const auto & tag : tags) {
            const size_t n = tag.size();
            if (n > longest && n <= recent.size() && recent.compare(recent.size() - n, n, tag) == 0) {
                longest = n;
            }
        }
        return longest;
    }

    // Whether this character ends the reasoning.
    bool read_inside(const reasoning_tags & tags, char c) {
        open[0] = c != '\n' && open[0] != (c == '`');
        open[1] = c != '\n' && open[1] != (c == '"');
        keep(c, tags.ends);
        const size_t length = tag_at_end(tags.ends);
        if (length == 0) {
            return false;
        }
        const char before = length < recent.size() ? recent[recent.size() - length - 1] : '\0';
        if (before == '\'' || (before == '`' && open[0]) || (before == '"' && open[1])) {
            spoken = before;
            return false;
        }
        leave();
        return true;
    }

    void read_first(const reasoning_tags & tags, char c, size_t i, reasoning_outside & found) {
        if (recent.empty() && (c == ' ' || (c >= '\t' && c <= '\r'))) {
            return;
        }
        recent += c;
        if (contains(tags.starts)) {
            found.end = i + 1 - std::min(recent.size(), i + 1);
            enter();
        } else if (contains(tags.ends)) {
            found = { i + 1, std::string::npos };
            leave();
        } else {
            first = begins(tags.starts) || begins(tags.ends);
        }
    }

    bool contains(const std::vector<std::string> & tags) const {
        return std::find(tags.begin(), tags.end(), recent) != tags.end();
    }

    bool begins(const std::vector<std::string> & tags) const {
        return std::any_of(tags.begin(), tags.end(), [this](const auto & tag) {
            return tag.compare(0, recent.size(), recent) == 0;
        });
    }
};

}  // namespace llamacy

#endif  // LLAMACY_REASONING_WATCH_H
