// See poolproof_manager.hpp. A small JSON reader, the loop over messages, what is shown.
#include "poolproof_manager.hpp"

#include <cctype>
#include <iostream>
#include <map>
#include <stdexcept>

namespace poolproof {
namespace {

constexpr long VERSION = 2; // of the protocol: the one that has managers

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

class Reader {
  public:
    explicit Reader(const std::string &line) : line_(line) {}

    Json value() {
        skip_spaces();
        const std::size_t begin = at_;
        Json found;
        if (peek() == '{') {
            each('}', [&] {
                const std::string key = value().word();
                expect(':');
                found.fields[key] = value();
            });
        } else if (peek() == '[') {
            each(']', [&] { found.items.push_back(value()); });
        } else if (peek() == '"') {
            for (at_++; peek() != '"'; at_++)
                if (peek() == '\\') at_++;
            at_++;
        } else {
            while (at_ < line_.size() && (std::isalnum(line_[at_]) || line_[at_] == '-')) at_++;
            if (at_ == begin) throw std::runtime_error("a value was expected");
        }
        found.text = line_.substr(begin, at_ - begin);
        return found;
    }

  private:
    const std::string &line_;
    std::size_t at_ = 0;

    char peek() const {
        if (at_ >= line_.size()) throw std::runtime_error("the line ends too soon");
        return line_[at_];
    }
    void skip_spaces() {
        while (at_ < line_.size() && std::isspace(line_[at_])) at_++;
    }
    void expect(char wanted) {
        skip_spaces();
        if (peek() != wanted) throw std::runtime_error(std::string("expected ") + wanted);
        at_++;
    }
    void each(char end, const std::function<void()> &read) {
        at_++;
        skip_spaces();
        if (peek() != end) {
            read();
            for (skip_spaces(); peek() == ','; skip_spaces()) {
                at_++;
                read();
            }
        }
        expect(end);
    }
};

std::string list_of(const std::vector<long> &values) {
    std::string text = "[";
    for (long value : values) text += (text.size() > 1 ? "," : "") + std::to_string(value);
    return text + "]";
}

std::string quoted(const std::string &text) { // of our own words, which need no escapes
    return '"' + text + '"';
}

std::vector<ExtraKey> extra_keys_in(const Json &keys) {
    std::vector<ExtraKey> found;
    for (const Json &key : keys.items) {
        const long end = key.items[3].is_null() ? -1 : key.items[3].number();
        found.push_back({key.items[0].word(), key.items[1].text, key.items[2].number(), end});
    }
    return found;
}

// One instance, and what was shown of it last.
class Run {
  public:
    Run(std::unique_ptr<Manager> manager, const Json &message)
        : manager_(std::move(manager)), num_blocks_(message.at("num_blocks").number()),
          shows_state_(message.at("show").word() == "state") {}

    std::string answers(const Json &commands) {
        std::string text = "\"answers\":[";
        for (const Json &command : commands.items) {
            if (&command != &commands.items.front()) text += ",";
            const bool is_look = command.at("do").word() == "show";
            std::string answer = is_look ? "" : result(command);
            if (!answer.empty()) answer = "\"result\":" + answer;
            if (shows_state_ || is_look) answer = changes(answer);
            text += "{" + answer + "}";
        }
        return text + "]";
    }

    std::string state() { return shows_state_ ? "\"state\":{" + changes("") + "}," : ""; }

  private:
    std::unique_ptr<Manager> manager_;
    long num_blocks_;
    bool shows_state_;
    std::map<std::string, std::string> shown_;

    // What a verb or a question answers, as JSON; empty for nothing.
    std::string result(const Json &command) {
        const std::string verb = command.at("do").word();
        if (verb == "num_free") return std::to_string(manager_->num_free());
        if (verb == "step") {
            std::vector<std::pair<long, long>> batch;
            for (const Json &entry : command.at("batch").items)
                batch.emplace_back(entry.items[0].number(), entry.items[1].number());
            manager_->step(batch);
            return "";
        }
        const long seq_id = command.at("seq_id").number();
        // A list for each cache group, and there is one.
        if (verb == "block_table") return "[" + list_of(manager_->block_table(seq_id)) + "]";
        if (verb == "finish" || verb == "abort" || verb == "preempt") {
            manager_->finish(seq_id);
            return "";
        }
        const std::vector<long> tokens = command.at("tokens").numbers();
        if (verb == "append") return manager_->append(seq_id, tokens) ? "" : quoted("later");
        const long cached = manager_->admit(seq_id, tokens, extra_keys_in(command.at("extra_keys")));
        if (cached == LATER) return quoted("later");
        return cached == NEVER ? quoted("never") : std::to_string(cached);
    }

    // The parts of the state that are not as they were when they were shown last, behind `answer`.
    std::string changes(std::string answer) {
        const auto put = [&](const std::string &key, const std::string &value) {
            answer += (answer.empty() ? "" : ",") + quoted(key) + ":" + value;
        };
        const auto show = [&](const std::string &key, const std::string &value) {
            if (std::exchange(shown_[key], value) != value) put(key, value);
        };
        std::vector<long> counts;
        std::string cached = "[";
        for (long block = 0; block < num_blocks_; block++) {
            counts.push_back(manager_->ref_count(block));
            cached += (block ? "," : "") + std::string(manager_->is_cached(block) ? "true" : "false");
        }
        show("num_free", std::to_string(manager_->num_free()));
        show("free_order", list_of(manager_->free_order()));
        show("ref_counts", list_of(counts));
        show("cached", cached + "]");
        std::string tables;
        for (long seq_id : manager_->sequences()) {
            const std::string table = "[" + list_of(manager_->block_table(seq_id)) + "]";
            const std::string key = std::to_string(seq_id);
            if (std::exchange(shown_[key], table) != table)
                tables += (tables.empty() ? "" : ",") + quoted(key) + ":" + table;
        }
        if (!tables.empty()) put("tables", "{" + tables + "}");
        return answer;
    }
};

} // namespace

int serve(const Introduction &introduction, const Create &create) {
    std::unique_ptr<Run> run;
    for (std::string line; std::getline(std::cin, line);) {
        try {
            const Json message = Reader(line).value();
            const std::string what = message.at("do").word();
            std::string answer;
            if (what == "start" && message.at("protocol").number() < VERSION) {
                answer = ",\"protocol\":2,\"error\":\"managers need version 2\"";
            } else if (what == "start") {
                answer = ",\"protocol\":2,\"name\":" + quoted(introduction.name) +
                         ",\"version\":" + quoted(introduction.version) +
                         ",\"level\":\"manager\",\"verbs\":[\"admit\",\"append\",\"step\","
                         "\"finish\",\"abort\",\"preempt\"],\"observers\":[\"num_free\","
                         "\"free_order\",\"ref_count\",\"is_cached\"],\"profile\":" +
                         introduction.profile;
            } else if (what == "run") {
                run = std::make_unique<Run>(create(message.at("num_blocks").number(),
                                                   message.at("block_size").number(),
                                                   message.at("enable_caching").text == "true"),
                                            message);
                answer = "," + run->state() + run->answers(message.at("commands"));
            } else if (what == "continue" && run) {
                answer = "," + run->answers(message.at("commands"));
            } else if (what != "stop") {
                answer = ",\"error\":\"no run has begun\"";
            }
            std::cout << "{\"seq\":" << message.at("seq").text << answer << "}" << std::endl;
            if (what == "stop") return 0;
        } catch (const std::exception &error) {
            std::cerr << "a message cannot be carried out: " << error.what() << "\n";
            return 2;
        }
    }
    return 0;
}

} // namespace poolproof
