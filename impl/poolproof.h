/* Poolproof's block pool and KV-cache manager for engines in C, and in whatever calls C.
 *
 * `python -m poolproof.impl.c_interface FOLDER` writes this header and the library to link with.
 * They are `poolproof.impl.BlockPool` and `poolproof.impl.KVCacheManager`, compiled where their core
 * is compiled: profiles, checks of misuse and messages are the same.  A Python interpreter runs
 * inside the library; the first call starts it, and calls from several threads take turns.
 *
 * A call that returns a negative number has changed nothing, and poolproof_error() says why.
 */
#ifndef POOLPROOF_H
#define POOLPROOF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    POOLPROOF_NONE = -1,       /* no block carries the hash */
    POOLPROOF_FEWER_FREE = -2, /* fewer blocks are free */
    POOLPROOF_MISUSE = -3,     /* an argument that is refused */
    POOLPROOF_FAILED = -4      /* anything else */
};

/* A number that stands for a pool, from 1 on. */
typedef int64_t poolproof_pool;

/* A pool of the blocks 0 to num_blocks - 1, each found under hashes of hash_size bytes.  `options`
 * are arguments of BlockPool, such as "eviction=unhashed-first,null_block=0"; "" or NULL for none.
 * Negative where it cannot be made, and 0 where the interpreter does not start. */
poolproof_pool poolproof_pool_new(int64_t num_blocks, int64_t hash_size, const char *options);
int64_t poolproof_pool_delete(poolproof_pool pool);

/* 0 when done.  `block_ids` has room for, or holds, `count` blocks; `hashes` holds count times
 * hash_size bytes. */
int64_t poolproof_pool_allocate(poolproof_pool pool, int64_t count, int64_t *block_ids);
int64_t poolproof_pool_touch(poolproof_pool pool, const int64_t *block_ids, int64_t count);
int64_t poolproof_pool_free(poolproof_pool pool, const int64_t *block_ids, int64_t count);
int64_t poolproof_pool_cache(poolproof_pool pool, const int64_t *block_ids, const uint8_t *hashes,
                             int64_t count);
int64_t poolproof_pool_evict(poolproof_pool pool, const int64_t *block_ids, int64_t count);

/* How many hashes are found, up to the first that no block carries; `block_ids` gets their blocks. */
int64_t poolproof_pool_lookup_prefix(poolproof_pool pool, const uint8_t *hashes, int64_t count,
                                     int64_t *block_ids);
/* A block, or POOLPROOF_NONE. */
int64_t poolproof_pool_lookup(poolproof_pool pool, const uint8_t *hash);

/* 1 when every hash is forgotten; 0, and nothing is, while a block is held. */
int64_t poolproof_pool_reset(poolproof_pool pool);

int64_t poolproof_pool_num_free(poolproof_pool pool);
int64_t poolproof_pool_ref_count(poolproof_pool pool, int64_t block_id);
/* How many blocks are free; `block_ids`, with room for all blocks, gets them as they will be taken. */
int64_t poolproof_pool_free_order(poolproof_pool pool, int64_t *block_ids);
/* 1 and the blocks before and after a free one in that order, POOLPROOF_NONE at an end; 0 where the
 * block is held. */
int64_t poolproof_pool_free_neighbours(poolproof_pool pool, int64_t block_id, int64_t *before,
                                       int64_t *after);
/* 1 and the hash that the block carries, 0 where it carries none. */
int64_t poolproof_pool_block_hash(poolproof_pool pool, int64_t block_id, uint8_t *hash);

/* A number that stands for a manager, from 1 on: block tables of requests over a pool of its own,
 * in which block 0 is the null block and stands in a table where no block is needed.
 *
 * In each step an engine asks how many tokens of a new request are cached
 * (manager_computed_blocks), takes slots for the tokens that it will compute (allocate_slots), runs
 * its forward pass over the block tables, and says how far each request is computed (set_computed).
 * A request is a number of the engine's own. */
typedef int64_t poolproof_manager;

/* `options`, separated by commas, "" or NULL for none:
 *   groups=full+window:1024     the cache groups: full, window:TOKENS, chunk:TOKENS; full alone
 *   hash=sha256                 or xxh128, xxh64, whose collisions can be constructed
 *   seed=00ff..                 bytes in hexadecimal from which hashes chain; random, so that only
 *                               processes that are given one share hashes
 *   enable_caching=true, use_eagle=false
 * No request gets slots for more than max_model_len tokens. */
poolproof_manager poolproof_manager_new(int64_t num_blocks, int64_t block_size,
                                        int64_t max_model_len, const char *options);
/* Its requests are forgotten, and its pool. */
int64_t poolproof_manager_delete(poolproof_manager manager);
/* Its pool, for the functions above; hashes have 32 bytes under sha256, 16 under xxh128, 8 under
 * xxh64.  What is taken from it or given back there, the manager does not know of. */
poolproof_pool poolproof_manager_pool(poolproof_manager manager);

enum { POOLPROOF_ADAPTER = 1, POOLPROOF_SALT = 2, POOLPROOF_IMAGE = 3 };

/* What the KV depends on besides the tokens.  An adapter has a name and a path, a salt a name. An
 * image, clip or video has a name for its content and the positions of its placeholders. */
typedef struct {
    int64_t kind;
    const char *name;
    const char *path;
    int64_t first_token;
    int64_t num_tokens;
} poolproof_extra_key;

/* A request that has no blocks yet.  `keys` has `num_keys` elements: at most one adapter and one
 * salt. */
int64_t poolproof_manager_request_new(poolproof_manager manager, int64_t request,
                                      const int64_t *tokens, int64_t count,
                                      const poolproof_extra_key *keys, int64_t num_keys);
/* Accepted output tokens. */
int64_t poolproof_manager_request_append(poolproof_manager manager, int64_t request,
                                         const int64_t *tokens, int64_t count);
/* Cut to `num_tokens` tokens, so that others take the place of the rest.  How many of them are still
 * computed: what was shared is given back, and computed again. */
int64_t poolproof_manager_request_truncate(poolproof_manager manager, int64_t request,
                                           int64_t num_tokens);
/* Give back its blocks, and forget it. */
int64_t poolproof_manager_request_delete(poolproof_manager manager, int64_t request);

/* How many tokens of a request without blocks are cached; the manager remembers in which blocks. */
int64_t poolproof_manager_computed_blocks(poolproof_manager manager, int64_t request);

enum {
    POOLPROOF_DELAY_CACHE = 1,   /* keys are found only once manager_cache_blocks says so */
    POOLPROOF_WHOLE_MUST_FIT = 2 /* FEWER_FREE also where the rest of the request would not fit */
};

/* Slots for the next tokens: `num_new_tokens` to compute, drafts included, and
 * `num_lookahead_tokens` that a speculative head writes.  `num_cached_tokens` is 0, or what
 * manager_computed_blocks answered just before; they count as computed from then on.  The number of
 * blocks that were taken, or POOLPROOF_FEWER_FREE. */
int64_t poolproof_manager_allocate_slots(poolproof_manager manager, int64_t request,
                                         int64_t num_new_tokens, int64_t num_cached_tokens,
                                         int64_t num_lookahead_tokens, int64_t flags);
/* So many tokens are computed, `num_in_flight` of them in a forward pass that is not over. */
int64_t poolproof_manager_set_computed(poolproof_manager manager, int64_t request,
                                       int64_t num_tokens, int64_t num_in_flight);
/* With POOLPROOF_DELAY_CACHE: the first `num_tokens` are computed, and their full blocks found. */
int64_t poolproof_manager_cache_blocks(poolproof_manager manager, int64_t request,
                                       int64_t num_tokens);
/* A step begins: what was scheduled before is computed, or comes before it in order. */
int64_t poolproof_manager_new_step(poolproof_manager manager);
/* Give back the blocks of a request that is preempted; nothing of it is computed then. */
int64_t poolproof_manager_preempt(poolproof_manager manager, int64_t request);

/* How many blocks stand in a table; `block_ids` gets them, or is NULL. */
int64_t poolproof_manager_block_table(poolproof_manager manager, int64_t request, int64_t group,
                                      int64_t *block_ids);
/* 1 when the prefix cache is empty, as after new weights; 0, and it is not, while a request has
 * blocks. */
int64_t poolproof_manager_reset_prefix_cache(poolproof_manager manager);

/* Why the last call that failed did, in any thread; "" before.  Valid until another one fails. */
const char *poolproof_error(void);

#ifdef __cplusplus
}
#endif

#endif
