// See poolproof_messages.hpp.
#include "poolproof_messages.hpp"

#include <cctype>
#include <iostream>
#include <stdexcept>

namespace poolproof {
namespace {

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

} // namespace

Json read_json(const std::string &line) { return Reader(line).value(); }

std::string list_of(const std::vector<long> &values) {
    std::string text = "[";
    for (long value : values) text += (text.size() > 1 ? "," : "") + std::to_string(value);
    return text + "]";
}

std::string quoted(const std::string &text) { return '"' + text + '"'; }

std::vector<ExtraKey> extra_keys_in(const Json &keys) {
    std::vector<ExtraKey> found;
    for (const Json &key : keys.items) {
        const long end = key.items[3].is_null() ? -1 : key.items[3].number();
        found.push_back({key.items[0].word(), key.items[1].text, key.items[2].number(), end});
    }
    return found;
}

int serve_runs(const Introduction &introduction, const Served &served, const Begin &begin) {
    const std::string version = std::to_string(served.since);
    std::unique_ptr<Run> run;
    for (std::string line; std::getline(std::cin, line);) {
        try {
            const Json message = read_json(line);
            const std::string what = message.at("do").word();
            std::string answer;
            if (what == "start" && message.at("protocol").number() < served.since) {
                answer = ",\"protocol\":" + version + ",\"error\":" +
                         quoted(served.level + "s need version " + version);
            } else if (what == "start") {
                answer = ",\"protocol\":" + version + ",\"name\":" + quoted(introduction.name) +
                         ",\"version\":" + quoted(introduction.version) +
                         ",\"level\":" + quoted(served.level) + ",\"verbs\":" + served.verbs +
                         ",\"observers\":" + served.observers +
                         ",\"profile\":" + introduction.profile;
            } else if (what == "run") {
                run = begin(message);
                answer = "," + run->state() + "\"answers\":" + run->answers(message.at("commands"));
            } else if (what == "continue" && run) {
                answer = ",\"answers\":" + run->answers(message.at("commands"));
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
