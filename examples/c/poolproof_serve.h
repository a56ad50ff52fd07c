/* Serves a block allocator written in C to `poolproof certify 'cmd:./program'`.
 *
 * Fill in a pp_allocator and call pp_serve from main: it reads commands from standard input and
 * writes answers to standard output, one JSON object a line, until the other side is done
 * (docs/protocol.md).  What the allocator itself wants to say belongs on standard error.
 *
 * Not covered: queues without a pool, events, and allocators whose `acquire` looks up and pins.
 */
#ifndef POOLPROOF_SERVE_H
#define POOLPROOF_SERVE_H

enum { PP_MOST_HASH_BYTES = 64, PP_NONE = -1 };

/* A block hash; a length of 0 is no hash. */
typedef struct {
    unsigned length;
    unsigned char bytes[PP_MOST_HASH_BYTES];
} pp_hash;

int pp_same_hash(const pp_hash *one, const pp_hash *other);

/* The verbs return NULL when it is done and, where they refuse, the reason in words; then nothing
 * may have changed.  Lists belong to the caller and are only lent. */
typedef struct {
    const char *name;
    const char *version;
    const char *profile; /* a JSON object, such as {"eviction": "lru"} */

    void *(*create)(int num_blocks, int enable_caching);
    void (*destroy)(void *pool);

    const char *(*allocate)(void *pool, int count, int *block_ids);
    const char *(*touch)(void *pool, const int *block_ids, int count);
    const char *(*free)(void *pool, const int *block_ids, int count);
    const char *(*cache)(void *pool, const int *block_ids, int count, const pp_hash *hashes,
                         int num_hashes);
    int (*lookup)(const void *pool, const pp_hash *hash); /* a block, or PP_NONE */
    int (*num_free)(const void *pool);

    /* NULL where the allocator has no such verb. */
    const char *(*evict)(void *pool, const int *block_ids, int count);
    int (*reset)(void *pool);

    /* What it lets us see; NULL where it does not.  free_order follows num_blocks + 1 links at
     * most, for the list may be broken: that is what is being looked for. */
    int (*free_order)(const void *pool, int *block_ids);
    int (*ref_count)(const void *pool, int block_id);
    const pp_hash *(*block_hash)(const void *pool, int block_id);
    int (*free_neighbours)(const void *pool, int block_id, int *before, int *after); /* 0: none */
} pp_allocator;

/* Returns the exit status for main: 0, or 2 where the other side cannot be understood. */
int pp_serve(const pp_allocator *allocator);

#endif
