/* Poolproof's own pool, embedded in a program in C, as a program that Poolproof certifies.
 *
 *     make embedded
 *     poolproof certify 'cmd:build/embedded/embedded_pool'
 *     poolproof certify 'cmd:build/embedded/embedded_pool --bug frees-backwards'     is refused
 *
 * An engine calls poolproof.h as this does. Only the hashes are longer here: those of the protocol
 * have any length, and each is handed over as its length and PP_MOST_HASH_BYTES bytes. */
#include "../c/poolproof_serve.h"
#include "poolproof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_SIZE = 1 + PP_MOST_HASH_BYTES };

typedef struct {
    poolproof_pool pool;
    int64_t *ids;
    uint8_t *hashes;
    int size; /* room in both */
    pp_hash shown;
    int64_t num_blocks;
} embedded_pool;

static int frees_backwards = 0;

static void make_room(embedded_pool *it, int count) {
    if (count <= it->size) return;
    it->size = 2 * count;
    it->ids = realloc(it->ids, (size_t)it->size * sizeof *it->ids);
    it->hashes = realloc(it->hashes, (size_t)it->size * HASH_SIZE);
    if (it->ids == NULL || it->hashes == NULL) abort();
}

static const int64_t *ids_of(embedded_pool *it, const int *block_ids, int count) {
    make_room(it, count);
    for (int i = 0; i < count; i++) it->ids[i] = block_ids[i];
    return it->ids;
}

static const uint8_t *bytes_of(embedded_pool *it, const pp_hash *hashes, int count) {
    make_room(it, count);
    memset(it->hashes, 0, (size_t)count * HASH_SIZE);
    for (int i = 0; i < count; i++) {
        uint8_t *bytes = it->hashes + (size_t)i * HASH_SIZE;
        bytes[0] = (uint8_t)hashes[i].length;
        memcpy(bytes + 1, hashes[i].bytes, hashes[i].length);
    }
    return it->hashes;
}

static const char *why_not(int64_t status) { return status < 0 ? poolproof_error() : NULL; }

static void *create(int num_blocks, int enable_caching) {
    embedded_pool *it = calloc(1, sizeof *it);
    if (it == NULL) abort();
    it->num_blocks = num_blocks;
    it->pool =
        poolproof_pool_new(num_blocks, HASH_SIZE, enable_caching ? "" : "enable_caching=false");
    if (it->pool <= 0) {
        fprintf(stderr, "no pool: %s\n", poolproof_error());
        abort();
    }
    make_room(it, num_blocks + 1);
    return it;
}

static void destroy(void *pool) {
    embedded_pool *it = pool;
    poolproof_pool_delete(it->pool);
    free(it->ids);
    free(it->hashes);
    free(it);
}

static const char *allocate(void *pool, int count, int *block_ids) {
    embedded_pool *it = pool;
    /* What is more than all blocks is refused, and needs no room. */
    if (count > 0 && count <= it->num_blocks) make_room(it, count);
    const char *refused = why_not(poolproof_pool_allocate(it->pool, count, it->ids));
    for (int i = 0; refused == NULL && i < count; i++) block_ids[i] = (int)it->ids[i];
    return refused;
}

static const char *touch(void *pool, const int *block_ids, int count) {
    embedded_pool *it = pool;
    return why_not(poolproof_pool_touch(it->pool, ids_of(it, block_ids, count), count));
}

static const char *give_back(void *pool, const int *block_ids, int count) {
    embedded_pool *it = pool;
    ids_of(it, block_ids, count);
    for (int i = 0; frees_backwards && i < count; i++) it->ids[i] = block_ids[count - 1 - i];
    return why_not(poolproof_pool_free(it->pool, it->ids, count));
}

static const char *cache(void *pool, const int *block_ids, int count, const pp_hash *hashes,
                         int num_hashes) {
    embedded_pool *it = pool;
    if (count != num_hashes) return "as many hashes as blocks";
    return why_not(poolproof_pool_cache(it->pool, ids_of(it, block_ids, count),
                                        bytes_of(it, hashes, count), count));
}

static const char *evict(void *pool, const int *block_ids, int count) {
    embedded_pool *it = pool;
    return why_not(poolproof_pool_evict(it->pool, ids_of(it, block_ids, count), count));
}

static int lookup(const void *pool, const pp_hash *hash) {
    embedded_pool *it = (embedded_pool *)pool;
    return (int)poolproof_pool_lookup(it->pool, bytes_of(it, hash, 1));
}

static int reset(void *pool) { return (int)poolproof_pool_reset(((embedded_pool *)pool)->pool); }

static int num_free(const void *pool) {
    return (int)poolproof_pool_num_free(((const embedded_pool *)pool)->pool);
}

static int free_order(const void *pool, int *block_ids) {
    embedded_pool *it = (embedded_pool *)pool;
    int count = (int)poolproof_pool_free_order(it->pool, it->ids);
    for (int i = 0; i < count; i++) block_ids[i] = (int)it->ids[i];
    return count;
}

static int ref_count(const void *pool, int block_id) {
    return (int)poolproof_pool_ref_count(((const embedded_pool *)pool)->pool, block_id);
}

static const pp_hash *block_hash(const void *pool, int block_id) {
    embedded_pool *it = (embedded_pool *)pool;
    uint8_t bytes[HASH_SIZE] = {0};
    it->shown.length = 0;
    if (poolproof_pool_block_hash(it->pool, block_id, bytes) == 1) {
        it->shown.length = bytes[0];
        memcpy(it->shown.bytes, bytes + 1, bytes[0]);
    }
    return &it->shown;
}

static int free_neighbours(const void *pool, int block_id, int *before, int *after) {
    int64_t ends[2];
    poolproof_pool it = ((const embedded_pool *)pool)->pool;
    if (poolproof_pool_free_neighbours(it, block_id, &ends[0], &ends[1]) != 1) return 0;
    *before = (int)ends[0];
    *after = (int)ends[1];
    return 1;
}

int main(int argc, char **argv) {
    static const pp_allocator allocator = {
        .name = "embedded-pool",
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
    if (argc == 3 && strcmp(argv[1], "--bug") == 0 && strcmp(argv[2], "frees-backwards") == 0) {
        frees_backwards = 1;
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [--bug frees-backwards]\n", argv[0]);
        return 2;
    }
    return pp_serve(&allocator);
}
