/* The pool of lru_pool.c as a program that Poolproof certifies.
 *
 *     poolproof certify 'cmd:./lru_pool'
 *     poolproof certify 'cmd:./lru_pool --bug touch-keeps-queued'     is refused
 */
#include "lru_pool.h"

#include <stdio.h>
#include <string.h>

static int touch_keeps_queued = 0;

static void *create(int num_blocks, int enable_caching) {
    return lru_pool_new(num_blocks, enable_caching, touch_keeps_queued);
}
static void destroy(void *pool) { lru_pool_delete(pool); }
static const char *allocate(void *pool, int count, int *block_ids) {
    return lru_pool_allocate(pool, count, block_ids);
}
static const char *touch(void *pool, const int *block_ids, int count) {
    return lru_pool_touch(pool, block_ids, count);
}
static const char *give_back(void *pool, const int *block_ids, int count) {
    return lru_pool_free(pool, block_ids, count);
}
static const char *cache(void *pool, const int *block_ids, int count, const pp_hash *hashes,
                         int num_hashes) {
    return lru_pool_cache(pool, block_ids, count, hashes, num_hashes);
}
static const char *evict(void *pool, const int *block_ids, int count) {
    return lru_pool_evict(pool, block_ids, count);
}
static int lookup(const void *pool, const pp_hash *hash) { return lru_pool_lookup(pool, hash); }
static int reset(void *pool) { return lru_pool_reset(pool); }
static int num_free(const void *pool) { return lru_pool_num_free(pool); }
static int free_order(const void *pool, int *block_ids) {
    return lru_pool_free_order(pool, block_ids);
}
static int ref_count(const void *pool, int block_id) { return lru_pool_ref_count(pool, block_id); }
static const pp_hash *block_hash(const void *pool, int block_id) {
    return lru_pool_block_hash(pool, block_id);
}
static int free_neighbours(const void *pool, int block_id, int *before, int *after) {
    return lru_pool_free_neighbours(pool, block_id, before, after);
}

int main(int argc, char **argv) {
    static const pp_allocator allocator = {
        .name = "lru-pool-c",
        .version = "1",
        .profile = "{\"eviction\":\"lru\",\"duplicates\":\"kept\",\"recache\":\"replace\","
                   "\"misuse\":\"raises\"}",
        .create = create,
        .destroy = destroy,
        .allocate = allocate,
        .touch = touch,
        .free = give_back,
        .cache = cache,
        .lookup = lookup,
        .evict = evict,
        .reset = reset,
        .num_free = num_free,
        .free_order = free_order,
        .ref_count = ref_count,
        .block_hash = block_hash,
        .free_neighbours = free_neighbours,
    };
    if (argc == 3 && strcmp(argv[1], "--bug") == 0 && strcmp(argv[2], "touch-keeps-queued") == 0) {
        touch_keeps_queued = 1;
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [--bug touch-keeps-queued]\n", argv[0]);
        return 2;
    }
    return pp_serve(&allocator);
}
