/* Poolproof's block pool for engines in C, and in whatever calls C.
 *
 * `python -m poolproof.impl.c_interface FOLDER` writes this header and the library to link with.
 * The pool is `poolproof.impl.BlockPool`, compiled where its core is compiled: profiles, checks of
 * misuse and messages are the same.  A Python interpreter runs inside the library; the first call
 * starts it, and calls from several threads take turns.
 *
 * A call that returns a negative number has changed nothing, and poolproof_error() says why.
 */
#ifndef POOLPROOF_H
#define POOLPROOF_H

#include <stdint.h>

enum {
    POOLPROOF_NONE = -1,       /* no block carries the hash */
    POOLPROOF_FEWER_FREE = -2, /* fewer blocks are free */
    POOLPROOF_MISUSE = -3,     /* an argument that the pool refuses */
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

/* Why the last call that failed did, in any thread; "" before.  Valid until another one fails. */
const char *poolproof_error(void);

#endif
