// Serves a KV-cache manager written in C++ to `poolproof certify 'cmd:./program'`.
//
// Implement poolproof::Manager and call poolproof::serve from main: commands are read from standard
// input and answered on standard output, one JSON object a line, until the other side is done
// (docs/protocol.md). What the manager itself wants to say belongs on standard error.
//
// Not covered: several cache groups, copies, and the verbs that lru_manager.cpp does not have.
#ifndef POOLPROOF_MANAGER_HPP
#define POOLPROOF_MANAGER_HPP

#include "poolproof_messages.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace poolproof {

enum : long { LATER = -1, NEVER = -2 };

class Manager {
  public:
    virtual ~Manager() = default;
    // How many tokens are cached, or LATER or NEVER, which change nothing.
    virtual long admit(long seq_id, const std::vector<long> &tokens,
                       const std::vector<ExtraKey> &extra_keys) = 0;
    // False where it has to wait; then nothing has changed.
    virtual bool append(long seq_id, const std::vector<long> &tokens) = 0;
    // Sequences, with how many of their tokens are computed.
    virtual void step(const std::vector<std::pair<long, long>> &batch) = 0;
    virtual void finish(long seq_id) = 0; // also abort and preempt

    virtual std::vector<long> sequences() const = 0;
    virtual const std::vector<long> &block_table(long seq_id) const = 0;
    virtual long num_free() const = 0;
    virtual std::vector<long> free_order() const = 0;
    virtual long ref_count(long block_id) const = 0;
    virtual bool is_cached(long block_id) const = 0;
};

using Create = std::function<std::unique_ptr<Manager>(long num_blocks, long block_size, bool caching)>;

// Returns the exit status for main: 0, or 2 where the other side cannot be understood.
int serve(const Introduction &introduction, const Create &create);

} // namespace poolproof

#endif
