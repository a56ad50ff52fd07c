// What serving a manager and serving an engine have in common: a small JSON reader, the loop over
// messages.
#ifndef POOLPROOF_MESSAGES_HPP
#define POOLPROOF_MESSAGES_HPP

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace poolproof {

// What the KV from position `first` to `end` - 1 depends on besides the tokens; an `end` of -1 is
// the end of the sequence. `value` is the text of a JSON value.
struct ExtraKey {
    std::string kind, value;
    long first, end;
};

// A JSON value: its own text, and its parts if it is a list or an object.
struct Json {
    std::string text;
    std::vector<Json> items;
    std::map<std::string, Json> fields;

    bool is_null() const { return text == "null"; }
    long number() const { return std::stol(text); }
    std::string word() const { return text.substr(1, text.size() - 2); } // no escapes: names
    const Json &at(const std::string &key) const { return fields.at(key); }
    std::vector<long> numbers() const {
        std::vector<long> found;
        for (const Json &item : items) found.push_back(item.number());
        return found;
    }
};

// Raises std::runtime_error for a line that is not JSON.
Json read_json(const std::string &line);
std::string list_of(const std::vector<long> &values);
std::string quoted(const std::string &text); // of our own words, which need no escapes
std::vector<ExtraKey> extra_keys_in(const Json &keys);

struct Introduction {
    std::string name, version;
    std::string profile; // a JSON object, such as {"max_running": 4}
};

// One instance of what is served.
class Run {
  public:
    virtual ~Run() = default;
    // The answer to each command, as a JSON list.
    virtual std::string answers(const Json &commands) = 0;
    // `"state":{...},` where the run asked for it.
    virtual std::string state() { return ""; }
};

// What a program serves: since which version of the protocol there is such a thing, and the JSON
// lists of what it can do.
struct Served {
    std::string level;
    long since;
    std::string verbs, observers;
};

using Begin = std::function<std::unique_ptr<Run>(const Json &message)>;

// Returns the exit status for main: 0, or 2 where the other side cannot be understood.
int serve_runs(const Introduction &introduction, const Served &served, const Begin &begin);

} // namespace poolproof

#endif
