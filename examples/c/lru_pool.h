/* A block pool: a linked list of free blocks in the order of their last use, and a prefix index.
 *
 * Knows nothing of Poolproof but pp_hash; main.c puts the two together. */
#ifndef LRU_POOL_H
#define LRU_POOL_H

#include "poolproof_serve.h"

typedef struct lru_pool lru_pool;

/* With `touch_keeps_queued` a touched block stays in the free queue: the planted bug, which
 * TensorRT-LLM had when it pinned a block that nobody held (#12667). */
lru_pool *lru_pool_new(int num_blocks, int enable_caching, int touch_keeps_queued);
void lru_pool_delete(lru_pool *pool);

/* NULL when done, or why it was refused; then nothing has changed. */
const char *lru_pool_allocate(lru_pool *pool, int count, int *block_ids);
const char *lru_pool_touch(lru_pool *pool, const int *block_ids, int count);
const char *lru_pool_free(lru_pool *pool, const int *block_ids, int count);
const char *lru_pool_cache(lru_pool *pool, const int *block_ids, int count, const pp_hash *hashes,
                           int num_hashes);
const char *lru_pool_evict(lru_pool *pool, const int *block_ids, int count);
int lru_pool_lookup(const lru_pool *pool, const pp_hash *hash);
int lru_pool_reset(lru_pool *pool);
int lru_pool_num_free(const lru_pool *pool);

int lru_pool_free_order(const lru_pool *pool, int *block_ids);
int lru_pool_ref_count(const lru_pool *pool, int block_id);
const pp_hash *lru_pool_block_hash(const lru_pool *pool, int block_id);
int lru_pool_free_neighbours(const lru_pool *pool, int block_id, int *before, int *after);

#endif
