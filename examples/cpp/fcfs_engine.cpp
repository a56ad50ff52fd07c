// An engine over the manager of lru_manager.hpp, first come, first served, as a program:
//
//     poolproof certify 'cmd:./fcfs_engine_cpp'
//     poolproof certify 'cmd:./fcfs_engine_cpp --bug resumes-where-it-was'     is refused
//
// A prompt is computed in chunks, as far as the budget of a step goes. Where a request needs a slot
// and no block is free, the last one that runs gives way: it loses its blocks, and waits before all
// others. Requests run in the order in which they came, so the first one always gets on. A block can
// be found by others once the step that computed it is answered, which is when the manager hears of
// the step.
//
// The planted bug: who gave way goes on at the position that it had reached, as if its blocks were
// still there. It reads what the next owner of its blocks has left in them, or nothing.
#include "lru_manager.hpp"
#include "poolproof_engine.hpp"

#include <algorithm>
#include <deque>
#include <iostream>

namespace {

using poolproof::Output;
using poolproof::Part;
using poolproof::Plan;

// The most positions, and the most requests, of a step: what the profile below says.
constexpr long MOST_TOKENS = 16, MOST_RUNNING = 4;
constexpr long STOP_TOKEN = 0; // a request ends where this is sampled

struct Request {
    long id;
    Tokens tokens;
    long most_tokens; // it ends when it has so many
    std::vector<ExtraKey> extra_keys;
    // Of its tokens, those that the manager has slots for, and those that are computed.
    long slots, computed;
};

// What the step in flight computes of a request.
struct Planned {
    long id, count;
    bool samples;
};

class FcfsEngine final : public poolproof::Engine {
  public:
    FcfsEngine(long num_blocks, long block_size, bool caching, bool resumes_where_it_was)
        : create_manager_([=] {
              return std::make_unique<LruManager>(num_blocks, block_size, caching, false);
          }),
          manager_(create_manager_()), resumes_where_it_was_(resumes_where_it_was) {}

    void submit(long request_id, const Tokens &tokens, long max_new_tokens,
                const std::vector<ExtraKey> &extra_keys) override {
        const long most = length(tokens) + max_new_tokens;
        waiting_.push_back({request_id, tokens, most, extra_keys, 0, 0});
    }

    Plan plan() override {
        Plan plan;
        long budget = MOST_TOKENS;
        std::vector<long> ids;
        for (const Request &request : running_) ids.push_back(request.id);
        for (long id : ids) {
            if (budget && make_room(id, plan)) compute(*find(running_, id), plan, budget);
        }
        // What the preempted gave back is for those who go on.
        if (plan.preempted.empty()) admit(plan, budget);
        return plan;
    }

    std::vector<Output> answer(const std::map<long, Tokens> &sampled) override {
        std::vector<Output> outputs;
        for (const Planned &planned : in_flight_) {
            const auto request = find(running_, planned.id);
            if (request == running_.end()) continue; // its user has gone
            request->computed += planned.count;
            manager_->step({{planned.id, planned.count}});
            if (planned.samples) outputs.push_back(give(*request, sampled.at(planned.id)));
        }
        in_flight_.clear();
        for (const Output &output : outputs) {
            if (output.ended) cancel(output.request_id);
        }
        return outputs;
    }

    void cancel(long request_id) override {
        manager_->finish(request_id);
        const auto running = find(running_, request_id);
        if (running != running_.end()) running_.erase(running);
        const auto waiting = find(waiting_, request_id);
        if (waiting != waiting_.end()) waiting_.erase(waiting);
    }

    bool reset() override {
        if (running_.empty()) manager_ = create_manager_();
        return running_.empty();
    }

    long num_free() const override { return manager_->num_free(); }

    std::vector<long> unfinished() const override {
        std::vector<long> ids;
        for (const Request &request : running_) ids.push_back(request.id);
        for (const Request &request : waiting_) ids.push_back(request.id);
        return ids;
    }

  private:
    std::function<std::unique_ptr<LruManager>()> create_manager_;
    std::unique_ptr<LruManager> manager_;
    bool resumes_where_it_was_;
    // In the order in which they came, all that run before all that wait.
    std::deque<Request> running_, waiting_;
    std::vector<Planned> in_flight_;

    template <typename Items> static long length(const Items &items) {
        return static_cast<long>(items.size());
    }
    static std::deque<Request>::iterator find(std::deque<Request> &requests, long id) {
        return std::find_if(requests.begin(), requests.end(),
                            [&](const Request &request) { return request.id == id; });
    }

    // Slots for all tokens of a request, at the cost of those behind it; false: it gave way itself,
    // or had done so before.
    bool make_room(long id, Plan &plan) {
        for (auto request = find(running_, id); request != running_.end();
             request = find(running_, id)) {
            const Tokens missing(request->tokens.begin() + request->slots, request->tokens.end());
            if (manager_->append(id, missing)) {
                request->slots = length(request->tokens);
                return true;
            }
            preempt(plan);
        }
        return false;
    }

    // The last running request gives its blocks back.
    void preempt(Plan &plan) {
        manager_->finish(running_.back().id);
        plan.preempted.push_back(running_.back().id);
        waiting_.push_front(std::move(running_.back()));
        running_.pop_back();
    }

    // As many positions of a running request as the budget allows.
    void compute(const Request &request, Plan &plan, long &budget) {
        const long count = std::min(budget, length(request.tokens) - request.computed);
        budget -= count;
        const bool samples = request.computed + count == length(request.tokens);
        in_flight_.push_back({request.id, count, samples});
        plan.compute.push_back(
            {request.id, request.computed, count, manager_->block_table(request.id)});
    }

    // Those that wait begin, in order, while there are seats, blocks and positions for them.
    void admit(Plan &plan, long &budget) {
        while (!waiting_.empty() && length(running_) < MOST_RUNNING && budget) {
            Request &request = waiting_.front();
            const long cached = manager_->admit(request.id, request.tokens, request.extra_keys);
            if (cached < 0) return; // later
            request.slots = length(request.tokens);
            // It begins with what is cached, also if it had got further before it gave way.
            if (!resumes_where_it_was_ || request.computed < cached) request.computed = cached;
            running_.push_back(std::move(request));
            waiting_.pop_front();
            compute(running_.back(), plan, budget);
        }
    }

    // What a request was given: up to the stop token, and up to its limit.
    static Output give(Request &request, const Tokens &sampled) {
        Output output{request.id, {}, false};
        for (long token : sampled) {
            if (output.ended) break;
            request.tokens.push_back(token);
            output.tokens.push_back(token);
            output.ended = token == STOP_TOKEN || length(request.tokens) == request.most_tokens;
        }
        return output;
    }
};

} // namespace

int main(int argc, char **argv) {
    const bool resumes_where_it_was = argc == 3 && std::string(argv[1]) == "--bug" &&
                                      std::string(argv[2]) == "resumes-where-it-was";
    if (argc != 1 && !resumes_where_it_was) {
        std::cerr << "usage: " << argv[0] << " [--bug resumes-where-it-was]\n";
        return 2;
    }
    return poolproof::serve_engine(
        {"fcfs-engine-cpp", "1", R"({"policy":"fcfs","max_batch_tokens":16,"max_running":4})"},
        [=](long num_blocks, long block_size, bool caching) {
            return std::make_unique<FcfsEngine>(num_blocks, block_size, caching,
                                                resumes_where_it_was);
        });
}
