// Serves an engine written in C++ to `poolproof certify 'cmd:./program'`.
//
// Implement poolproof::Engine and call poolproof::serve_engine from main, as with a manager
// (poolproof_manager.hpp).
//
// Not covered: several cache groups, drafts, copies, transfers, priorities.
#ifndef POOLPROOF_ENGINE_HPP
#define POOLPROOF_ENGINE_HPP

#include "poolproof_messages.hpp"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace poolproof {

// Positions `first` to `first` + `count` - 1 of a request, computed through its whole table.
struct Part {
    long request_id, first, count;
    std::vector<long> blocks;
};

// What a step computes, and the requests that lost their blocks while it was planned.
struct Plan {
    std::vector<Part> compute;
    std::vector<long> preempted;
};

// What the user of a request is given.
struct Output {
    long request_id;
    std::vector<long> tokens;
    bool ended;
};

class Engine {
  public:
    virtual ~Engine() = default;
    virtual void submit(long request_id, const std::vector<long> &tokens, long max_new_tokens,
                        const std::vector<ExtraKey> &extra_keys) = 0;
    virtual Plan plan() = 0;
    // By request, what was sampled in the oldest step that was not answered.
    virtual std::vector<Output> answer(const std::map<long, std::vector<long>> &sampled) = 0;
    virtual void cancel(long request_id) = 0;
    virtual bool reset() = 0; // whether the prefix cache was emptied

    virtual long num_free() const = 0;
    virtual std::vector<long> unfinished() const = 0;
};

using CreateEngine =
    std::function<std::unique_ptr<Engine>(long num_blocks, long block_size, bool caching)>;

// Returns the exit status for main: 0, or 2 where the other side cannot be understood.
int serve_engine(const Introduction &introduction, const CreateEngine &create);

} // namespace poolproof

#endif
