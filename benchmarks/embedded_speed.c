/* A round of prompts against the embedded pool; see embedded_speed.py, which does the same. */
#include "poolproof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NUM_BLOCKS = 4096, HASH_SIZE = 32 };

static void must(int64_t status) {
    if (status >= 0) return;
    fprintf(stderr, "%s\n", poolproof_error());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int64_t rounds = atoll(argv[1]), count = atoll(argv[2]);
    int64_t *ids = malloc((size_t)count * sizeof *ids);
    uint8_t *hashes = calloc((size_t)count, HASH_SIZE);
    poolproof_pool pool = poolproof_pool_new(NUM_BLOCKS, HASH_SIZE, "");
    if (ids == NULL || hashes == NULL || pool <= 0) return 1;
    uint64_t named = 0;
    clock_t began = clock();
    for (int64_t round = 0; round < rounds; round++) {
        must(poolproof_pool_allocate(pool, count, ids));
        for (int64_t i = 0; i < count; i++, named++)
            memcpy(hashes + i * HASH_SIZE, &named, sizeof named);
        must(poolproof_pool_cache(pool, ids, hashes, count));
        must(poolproof_pool_lookup_prefix(pool, hashes, count, ids));
        must(poolproof_pool_touch(pool, ids, count));
        must(poolproof_pool_free(pool, ids, count));
        must(poolproof_pool_free(pool, ids, count));
    }
    printf("%.3f\n", (double)(clock() - began) / CLOCKS_PER_SEC);
    return 0;
}
