// See poolproof_engine.hpp. What a command asks of an engine, and its answer as JSON.
#include "poolproof_engine.hpp"

#include <utility>

namespace poolproof {
namespace {

std::string text_of(const Plan &plan) {
    std::string compute;
    for (const Part &part : plan.compute) {
        compute += (compute.empty() ? "" : ",") + std::string("{\"request\":") +
                   std::to_string(part.request_id) + ",\"first\":" + std::to_string(part.first) +
                   ",\"count\":" + std::to_string(part.count) +
                   // A list for each cache group, and there is one.
                   ",\"blocks\":[" + list_of(part.blocks) + "]}";
    }
    return "{\"compute\":[" + compute + "],\"preempted\":" + list_of(plan.preempted) + "}";
}

std::string text_of(const std::vector<Output> &outputs) {
    std::string text;
    for (const Output &output : outputs) {
        text += (text.empty() ? "[" : ",[") + std::to_string(output.request_id) + "," +
                list_of(output.tokens) + (output.ended ? ",true]" : ",false]");
    }
    return "[" + text + "]";
}

class EngineRun final : public Run {
  public:
    explicit EngineRun(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

    std::string answers(const Json &commands) override {
        std::string text = "[";
        for (const Json &command : commands.items) {
            const std::string found = result(command);
            text += text.size() > 1 ? "," : "";
            text += found.empty() ? "{}" : "{\"result\":" + found + "}";
        }
        return text + "]";
    }

  private:
    std::unique_ptr<Engine> engine_;

    // What a verb or a question answers, as JSON; empty for nothing.
    std::string result(const Json &command) {
        const std::string verb = command.at("do").word();
        if (verb == "plan") return text_of(engine_->plan());
        if (verb == "num_free") return std::to_string(engine_->num_free());
        if (verb == "unfinished") return list_of(engine_->unfinished());
        if (verb == "reset") return engine_->reset() ? "true" : "false";
        if (verb == "answer") {
            std::map<long, std::vector<long>> sampled;
            for (const Json &pair : command.at("tokens").items)
                sampled[pair.items[0].number()] = pair.items[1].numbers();
            return text_of(engine_->answer(sampled));
        }
        const long request_id = command.at("request_id").number();
        if (verb == "cancel") {
            engine_->cancel(request_id);
        } else {
            engine_->submit(request_id, command.at("tokens").numbers(),
                            command.at("max_new_tokens").number(),
                            extra_keys_in(command.at("extra_keys")));
        }
        return "";
    }
};

const char *const VERBS = R"(["submit","plan","answer","cancel","reset"])";
const char *const OBSERVERS = R"(["num_free","unfinished"])";

} // namespace

int serve_engine(const Introduction &introduction, const CreateEngine &create) {
    return serve_runs(introduction, {"engine", 3, VERBS, OBSERVERS}, [&](const Json &message) {
        return std::make_unique<EngineRun>(create(message.at("num_blocks").number(),
                                                  message.at("block_size").number(),
                                                  message.at("enable_caching").text == "true"));
    });
}

} // namespace poolproof
