// Poolproof's own manager, embedded in a program in C++, as a program that Poolproof certifies.
//
//     make embedded
//     poolproof certify 'cmd:build/embedded/embedded_manager'
//     poolproof certify 'cmd:build/embedded/embedded_manager --bug no-extra-keys'     is refused
//
// An engine calls poolproof.h as this does: a request is looked up and given slots when it comes,
// and its full blocks are found once a step has computed them.
#include "../cpp/poolproof_manager.hpp"
#include "poolproof.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>

using poolproof::ExtraKey;

constexpr std::int64_t MOST_TOKENS = std::int64_t{1} << 40;

static std::int64_t done(std::int64_t status) {
    if (status < 0) throw std::runtime_error(poolproof_error());
    return status;
}

class EmbeddedManager final : public poolproof::Manager {
  public:
    EmbeddedManager(long num_blocks, long block_size, bool caching, bool leaves_keys_out)
        : num_blocks_(num_blocks), size_(block_size), leaves_keys_out_(leaves_keys_out),
          manager_(poolproof_manager_new(num_blocks, block_size, MOST_TOKENS,
                                         caching ? "" : "enable_caching=false")) {
        if (manager_ <= 0) {
            std::cerr << "no manager: " << poolproof_error() << "\n";
            std::abort();
        }
        pool_ = done(poolproof_manager_pool(manager_));
    }
    ~EmbeddedManager() override { poolproof_manager_delete(manager_); }
    EmbeddedManager(const EmbeddedManager &) = delete;
    EmbeddedManager &operator=(const EmbeddedManager &) = delete;

    long admit(long seq_id, const std::vector<long> &tokens,
               const std::vector<ExtraKey> &extra_keys) override {
        const Numbers ids{tokens.begin(), tokens.end()};
        const auto keys = leaves_keys_out_ ? std::vector<poolproof_extra_key>{} : keys_of(extra_keys);
        done(poolproof_manager_request_new(manager_, seq_id, ids.data(), length(ids), keys.data(),
                                           length(keys)));
        const std::int64_t cached = done(poolproof_manager_computed_blocks(manager_, seq_id));
        if (!takes_slots(seq_id, length(ids) - cached, cached)) {
            done(poolproof_manager_request_delete(manager_, seq_id));
            // One block is the null block.
            return blocks_for(length(ids)) > num_blocks_ - 1 ? poolproof::NEVER : poolproof::LATER;
        }
        requests_[seq_id] = {cached, length(ids), {}};
        note_table(seq_id);
        return static_cast<long>(cached);
    }

    bool append(long seq_id, const std::vector<long> &tokens) override {
        Request &request = requests_.at(seq_id);
        const Numbers ids{tokens.begin(), tokens.end()};
        // Slots first: where there are none, nothing has changed.
        if (!takes_slots(seq_id, request.length + length(ids) - request.computed, 0)) return false;
        done(poolproof_manager_request_append(manager_, seq_id, ids.data(), length(ids)));
        request.length += length(ids);
        note_table(seq_id);
        return true;
    }

    void step(const std::vector<std::pair<long, long>> &batch) override {
        done(poolproof_manager_new_step(manager_));
        for (const auto &[seq_id, count] : batch) {
            const std::int64_t computed = requests_.at(seq_id).computed += count;
            done(poolproof_manager_set_computed(manager_, seq_id, computed, 0));
            done(poolproof_manager_cache_blocks(manager_, seq_id, computed));
        }
    }

    void finish(long seq_id) override {
        if (requests_.erase(seq_id)) done(poolproof_manager_request_delete(manager_, seq_id));
    }

    std::vector<long> sequences() const override {
        std::vector<long> ids;
        for (const auto &entry : requests_) ids.push_back(entry.first);
        return ids;
    }
    const std::vector<long> &block_table(long seq_id) const override {
        return requests_.at(seq_id).table;
    }
    long num_free() const override { return static_cast<long>(done(poolproof_pool_num_free(pool_))); }
    std::vector<long> free_order() const override {
        Numbers found(static_cast<std::size_t>(num_blocks_));
        found.resize(static_cast<std::size_t>(done(poolproof_pool_free_order(pool_, found.data()))));
        return {found.begin(), found.end()};
    }
    long ref_count(long block) const override {
        return static_cast<long>(done(poolproof_pool_ref_count(pool_, block)));
    }
    bool is_cached(long block) const override {
        std::uint8_t hash[32];
        return done(poolproof_pool_block_hash(pool_, block, hash)) == 1;
    }

  private:
    using Numbers = std::vector<std::int64_t>;
    struct Request {
        std::int64_t computed, length;
        std::vector<long> table;
    };

    long num_blocks_, size_;
    bool leaves_keys_out_;
    poolproof_manager manager_;
    poolproof_pool pool_ = 0;
    std::map<long, Request> requests_;

    template <typename Items> static std::int64_t length(const Items &items) {
        return static_cast<std::int64_t>(items.size());
    }
    std::int64_t blocks_for(std::int64_t tokens) const { return (tokens + size_ - 1) / size_; }

    // The text of a value names it: two values have two texts.
    static std::vector<poolproof_extra_key> keys_of(const std::vector<ExtraKey> &keys) {
        std::vector<poolproof_extra_key> found;
        for (const ExtraKey &key : keys) {
            const std::int64_t kind = key.kind == "lora"   ? POOLPROOF_ADAPTER
                                      : key.kind == "salt" ? POOLPROOF_SALT
                                                           : POOLPROOF_IMAGE;
            found.push_back({kind, key.value.c_str(), nullptr, key.first, key.end - key.first});
        }
        return found;
    }

    bool takes_slots(long seq_id, std::int64_t count, std::int64_t cached) {
        const std::int64_t taken = poolproof_manager_allocate_slots(manager_, seq_id, count, cached, 0,
                                                                    POOLPROOF_DELAY_CACHE);
        if (taken == POOLPROOF_FEWER_FREE) return false;
        done(taken);
        return true;
    }

    void note_table(long seq_id) {
        const std::int64_t count = done(poolproof_manager_block_table(manager_, seq_id, 0, nullptr));
        Numbers found(static_cast<std::size_t>(count));
        done(poolproof_manager_block_table(manager_, seq_id, 0, found.data()));
        requests_.at(seq_id).table = {found.begin(), found.end()};
    }
};

int main(int argc, char **argv) {
    const bool leaves_keys_out =
        argc == 3 && std::string(argv[1]) == "--bug" && std::string(argv[2]) == "no-extra-keys";
    if (argc != 1 && !leaves_keys_out) {
        std::cerr << "usage: " << argv[0] << " [--bug no-extra-keys]\n";
        return 2;
    }
    return poolproof::serve(
        {"embedded-manager", "1",
         R"({"null_block":0,"eviction":"unhashed-first","duplicates":"kept"})"},
        [=](long num_blocks, long block_size, bool caching) {
            return std::make_unique<EmbeddedManager>(num_blocks, block_size, caching, leaves_keys_out);
        });
}
