// A manager of sequences of tokens over blocks, with a prefix cache.
//
// Free blocks stand in a list in the order of their last use. A full block is named by a number:
// the one that its tokens have behind the name of the block before, so that no two contents share a
// name. Told that it `leaves_parent_out`, it names a block without the block before, as caches do
// which hash a block without its parent: two blocks of the same tokens are then one, whatever
// stands in front of them.
#ifndef LRU_MANAGER_HPP
#define LRU_MANAGER_HPP

#include "poolproof_manager.hpp"

#include <algorithm>
#include <list>
#include <map>
#include <unordered_map>

using poolproof::ExtraKey;
using Tokens = std::vector<long>;

constexpr long NONE = -1;

struct Sequence {
    Tokens tokens;
    std::vector<ExtraKey> extra_keys;
    std::vector<long> table;
    long computed = 0;
    std::vector<long> names; // of its full blocks
};

class LruManager final : public poolproof::Manager {
  public:
    LruManager(long num_blocks, long block_size, bool caching, bool leaves_parent_out)
        : num_blocks_(num_blocks), size_(block_size), caching_(caching),
          leaves_parent_out_(leaves_parent_out), references_(count(num_blocks)),
          place_(count(num_blocks)), name_of_(count(num_blocks), NONE) {
        for (long block = 0; block < num_blocks; block++)
            place_[count(block)] = free_.insert(free_.end(), block);
    }

    long admit(long seq_id, const Tokens &tokens, const std::vector<ExtraKey> &extra_keys) override {
        Sequence sequence{tokens, extra_keys, {}, 0, {}};
        find_hits(sequence);
        const long hits = length(sequence.table);
        const long needed = blocks_for(length(tokens)) - hits;
        // A hit that nobody holds leaves the free blocks, too.
        const long waiting = std::count_if(sequence.table.begin(), sequence.table.end(),
                                           [&](long block) { return !references_[count(block)]; });
        if (needed + waiting > num_free())
            return needed + hits > num_blocks_ ? poolproof::NEVER : poolproof::LATER;
        for (long block : sequence.table) {
            if (!references_[count(block)]++) free_.erase(place_[count(block)]);
        }
        take(sequence, needed);
        sequence.computed = hits * size_;
        sequences_[seq_id] = std::move(sequence);
        return hits * size_;
    }

    bool append(long seq_id, const Tokens &tokens) override {
        Sequence &sequence = sequences_.at(seq_id);
        const long all = length(sequence.tokens) + length(tokens);
        const long missing = blocks_for(all) - length(sequence.table);
        if (missing > num_free()) return false;
        sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
        take(sequence, missing);
        return true;
    }

    void step(const std::vector<std::pair<long, long>> &batch) override {
        for (const auto &[seq_id, computed] : batch) {
            Sequence &sequence = sequences_.at(seq_id);
            sequence.computed += computed;
            // Found from now on: the step has written them.
            while (caching_ && length(sequence.names) < sequence.computed / size_) {
                const long block = sequence.table[sequence.names.size()];
                const long name = name_next(sequence);
                if (block_of_.emplace(name, block).second) name_of_[count(block)] = name;
            }
        }
    }

    void finish(long seq_id) override {
        const auto found = sequences_.find(seq_id);
        if (found == sequences_.end()) return;
        std::vector<long> &table = found->second.table;
        // The tail of a prefix is evicted before its head.
        for (auto block = table.rbegin(); block != table.rend(); ++block) {
            if (!--references_[count(*block)])
                place_[count(*block)] = free_.insert(free_.end(), *block);
        }
        sequences_.erase(found);
    }

    std::vector<long> sequences() const override {
        std::vector<long> ids;
        for (const auto &entry : sequences_) ids.push_back(entry.first);
        return ids;
    }
    const std::vector<long> &block_table(long seq_id) const override {
        return sequences_.at(seq_id).table;
    }
    long num_free() const override { return static_cast<long>(free_.size()); }
    std::vector<long> free_order() const override { return {free_.begin(), free_.end()}; }
    long ref_count(long block) const override { return references_.at(count(block)); }
    bool is_cached(long block) const override { return name_of_.at(count(block)) != NONE; }

  private:
    long num_blocks_, size_;
    bool caching_, leaves_parent_out_;
    std::list<long> free_; // the one to be reused first stands first
    std::vector<long> references_;
    std::vector<std::list<long>::iterator> place_;
    std::map<long, Sequence> sequences_;
    std::unordered_map<std::string, long> names_; // what a block holds -> its name
    std::unordered_map<long, long> block_of_;
    std::vector<long> name_of_;

    static std::size_t count(long number) { return static_cast<std::size_t>(number); }
    template <typename Items> static long length(const Items &items) {
        return static_cast<long>(items.size());
    }
    long blocks_for(long tokens) const { return (tokens + size_ - 1) / size_; }

    // The last token is always computed, or there would be nothing to sample from.
    void find_hits(Sequence &sequence) {
        const long most = caching_ ? (length(sequence.tokens) - 1) / size_ : 0;
        while (length(sequence.table) < most) {
            const auto found = block_of_.find(name_next(sequence));
            if (found == block_of_.end()) {
                sequence.names.pop_back();
                return;
            }
            sequence.table.push_back(found->second);
        }
    }

    // Blocks from the head; what was cached in them is gone.
    void take(Sequence &sequence, long num_blocks) {
        for (long taken = 0; taken < num_blocks; taken++) {
            const long block = free_.front();
            free_.pop_front();
            references_[count(block)] = 1;
            long &name = name_of_[count(block)];
            if (name != NONE) block_of_.erase(name);
            name = NONE;
            sequence.table.push_back(block);
        }
    }

    // The name of the next full block of a sequence: its tokens, with everything that is before
    // them and what else their KV depends on.
    long name_next(Sequence &sequence) {
        const long first = length(sequence.names) * size_, end = first + size_;
        std::string content = "behind";
        if (!sequence.names.empty() && !leaves_parent_out_)
            content += " " + std::to_string(sequence.names.back());
        for (long position = first; position < end; position++)
            content += "," + std::to_string(sequence.tokens[count(position)]);
        for (const ExtraKey &key : sequence.extra_keys) {
            if (key.first >= end || (key.end >= 0 && key.end <= first)) continue;
            const std::string until = key.end < 0 ? "-" : std::to_string(key.end - first);
            const std::string from = std::to_string(key.first - first);
            content += ";" + key.kind + key.value + from + ".." + until;
        }
        const long name = names_.emplace(content, length(names_)).first->second;
        sequence.names.push_back(name);
        return name;
    }
};

#endif
