// See poolproof_manager.hpp. What a command asks of a manager, and what is shown.
#include "poolproof_manager.hpp"

#include <map>
#include <utility>

namespace poolproof {
namespace {

// One instance, and what was shown of it last.
class ManagerRun final : public Run {
  public:
    ManagerRun(std::unique_ptr<Manager> manager, const Json &message)
        : manager_(std::move(manager)), num_blocks_(message.at("num_blocks").number()),
          shows_state_(message.at("show").word() == "state") {}

    std::string answers(const Json &commands) override {
        std::string text = "[";
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

    std::string state() override {
        return shows_state_ ? "\"state\":{" + changes("") + "}," : "";
    }

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

const char *const VERBS = R"(["admit","append","step","finish","abort","preempt"])";
const char *const OBSERVERS = R"(["num_free","free_order","ref_count","is_cached"])";

} // namespace

int serve(const Introduction &introduction, const Create &create) {
    return serve_runs(introduction, {"manager", 2, VERBS, OBSERVERS}, [&](const Json &message) {
        return std::make_unique<ManagerRun>(create(message.at("num_blocks").number(),
                                                   message.at("block_size").number(),
                                                   message.at("enable_caching").text == "true"),
                                            message);
    });
}

} // namespace poolproof
