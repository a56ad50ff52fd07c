/* See lru_pool.h. */
#include "lru_pool.h"

#include <stdlib.h>

enum { NOWHERE = -1 };

typedef struct {
    int ref_count;
    int claimed; /* how often the list that is being checked names the block */
    int before, after; /* in the free queue; NOWHERE outside it */
    int carrier_before, carrier_after; /* in its bucket of the index */
    pp_hash hash;
} block;

/* The free queue is a ring: blocks[num_blocks] stands between its tail and its head. */
struct lru_pool {
    int num_blocks, num_free, enable_caching, touch_keeps_queued;
    block *blocks;
    int num_buckets, *buckets;
};

static void join_at_tail(lru_pool *pool, int id) {
    block *blocks = pool->blocks;
    int ring = pool->num_blocks, last = blocks[ring].before;
    blocks[id].before = last;
    blocks[id].after = ring;
    blocks[last].after = blocks[ring].before = id;
    pool->num_free++;
}

static void leave_queue(lru_pool *pool, int id) {
    block *b = &pool->blocks[id];
    pool->blocks[b->before].after = b->after;
    pool->blocks[b->after].before = b->before;
    b->before = b->after = NOWHERE;
    pool->num_free--;
}

static int *bucket_of(const lru_pool *pool, const pp_hash *hash) {
    unsigned sum = 2166136261u; /* FNV-1a */
    for (unsigned i = 0; i < hash->length; i++) sum = (sum ^ hash->bytes[i]) * 16777619u;
    return &pool->buckets[sum % (unsigned)pool->num_buckets];
}

static void drop_hash(lru_pool *pool, int id) {
    block *b = &pool->blocks[id];
    if (b->hash.length == 0) return;
    if (b->carrier_after != NOWHERE)
        pool->blocks[b->carrier_after].carrier_before = b->carrier_before;
    if (b->carrier_before != NOWHERE)
        pool->blocks[b->carrier_before].carrier_after = b->carrier_after;
    else *bucket_of(pool, &b->hash) = b->carrier_after;
    b->hash.length = 0;
}

static void give_hash(lru_pool *pool, int id, const pp_hash *hash) {
    block *b = &pool->blocks[id];
    if (pp_same_hash(&b->hash, hash)) return;
    drop_hash(pool, id);
    int *bucket = bucket_of(pool, hash);
    b->hash = *hash;
    b->carrier_before = NOWHERE;
    b->carrier_after = *bucket;
    if (*bucket != NOWHERE) pool->blocks[*bucket].carrier_before = id;
    *bucket = id;
}

int lru_pool_lookup(const lru_pool *pool, const pp_hash *hash) {
    if (!pool->enable_caching) return PP_NONE;
    for (int id = *bucket_of(pool, hash); id != NOWHERE; id = pool->blocks[id].carrier_after)
        if (pp_same_hash(&pool->blocks[id].hash, hash)) return id;
    return PP_NONE;
}

lru_pool *lru_pool_new(int num_blocks, int enable_caching, int touch_keeps_queued) {
    lru_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) abort();
    pool->num_blocks = num_blocks;
    pool->enable_caching = enable_caching;
    pool->touch_keeps_queued = touch_keeps_queued;
    pool->num_buckets = 2 * num_blocks;
    pool->blocks = calloc((size_t)num_blocks + 1, sizeof *pool->blocks);
    pool->buckets = calloc((size_t)pool->num_buckets, sizeof *pool->buckets);
    if (pool->blocks == NULL || pool->buckets == NULL) abort();
    for (int i = 0; i < pool->num_buckets; i++) pool->buckets[i] = NOWHERE;
    pool->blocks[num_blocks].before = pool->blocks[num_blocks].after = num_blocks;
    for (int id = 0; id < num_blocks; id++) join_at_tail(pool, id);
    return pool;
}

void lru_pool_delete(lru_pool *pool) {
    free(pool->blocks);
    free(pool->buckets);
    free(pool);
}

static int exist(const lru_pool *pool, const int *block_ids, int count) {
    for (int i = 0; i < count; i++)
        if (block_ids[i] < 0 || block_ids[i] >= pool->num_blocks) return 0;
    return 1;
}

/* Whether no block of the list is named more often than allowed: once, or once a reference. */
static int named_within(lru_pool *pool, const int *block_ids, int count, int once) {
    int within = 1;
    for (int i = 0; i < count; i++) {
        block *b = &pool->blocks[block_ids[i]];
        if (++b->claimed > (once ? 1 : b->ref_count)) within = 0;
    }
    for (int i = 0; i < count; i++) pool->blocks[block_ids[i]].claimed = 0;
    return within;
}

const char *lru_pool_allocate(lru_pool *pool, int count, int *block_ids) {
    if (count < 0) return "a negative number of blocks";
    if (count > pool->num_free) return "fewer blocks are free";
    for (int i = 0; i < count; i++) {
        int id = pool->blocks[pool->num_blocks].after;
        leave_queue(pool, id);
        drop_hash(pool, id);
        pool->blocks[id].ref_count = 1;
        block_ids[i] = id;
    }
    return NULL;
}

const char *lru_pool_touch(lru_pool *pool, const int *block_ids, int count) {
    if (!exist(pool, block_ids, count)) return "a block that does not exist";
    for (int i = 0; i < count; i++) {
        block *b = &pool->blocks[block_ids[i]];
        if (b->ref_count == 0 && !pool->touch_keeps_queued) leave_queue(pool, block_ids[i]);
        b->ref_count++;
    }
    return NULL;
}

const char *lru_pool_free(lru_pool *pool, const int *block_ids, int count) {
    if (!exist(pool, block_ids, count)) return "a block that does not exist";
    if (!named_within(pool, block_ids, count, 0)) return "more frees than references";
    for (int i = 0; i < count; i++)
        if (--pool->blocks[block_ids[i]].ref_count == 0) join_at_tail(pool, block_ids[i]);
    return NULL;
}

const char *lru_pool_cache(lru_pool *pool, const int *block_ids, int count, const pp_hash *hashes,
                           int num_hashes) {
    if (!pool->enable_caching) return NULL;
    if (count != num_hashes) return "lists of unequal length";
    if (!exist(pool, block_ids, count)) return "a block that does not exist";
    if (!named_within(pool, block_ids, count, 1)) return "a block twice";
    for (int i = 0; i < count; i++)
        if (pool->blocks[block_ids[i]].ref_count == 0) return "a block that nobody holds";
    for (int i = 0; i < count; i++) give_hash(pool, block_ids[i], &hashes[i]);
    return NULL;
}

const char *lru_pool_evict(lru_pool *pool, const int *block_ids, int count) {
    if (!pool->enable_caching) return NULL;
    if (!exist(pool, block_ids, count)) return "a block that does not exist";
    for (int i = 0; i < count; i++) drop_hash(pool, block_ids[i]);
    return NULL;
}

int lru_pool_reset(lru_pool *pool) {
    if (pool->num_free != pool->num_blocks) return 0;
    for (int id = 0; id < pool->num_blocks; id++) drop_hash(pool, id);
    return 1;
}

int lru_pool_num_free(const lru_pool *pool) { return pool->num_free; }

int lru_pool_free_order(const lru_pool *pool, int *block_ids) {
    int length = 0, ring = pool->num_blocks;
    for (int id = pool->blocks[ring].after; id != ring && id != NOWHERE && length <= ring;
         id = pool->blocks[id].after)
        block_ids[length++] = id;
    return length;
}

int lru_pool_ref_count(const lru_pool *pool, int block_id) {
    return pool->blocks[block_id].ref_count;
}

const pp_hash *lru_pool_block_hash(const lru_pool *pool, int block_id) {
    return &pool->blocks[block_id].hash;
}

int lru_pool_free_neighbours(const lru_pool *pool, int block_id, int *before, int *after) {
    const block *b = &pool->blocks[block_id];
    *before = b->before == pool->num_blocks ? PP_NONE : b->before;
    *after = b->after == pool->num_blocks ? PP_NONE : b->after;
    return b->before != NOWHERE && b->after != NOWHERE;
}
