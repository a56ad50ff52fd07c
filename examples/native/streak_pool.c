/* The pool of ../c as a library, with a planted bug that needs a rhythm: after allocations of 3, 1
 * and 2 blocks, with none of another size between them, block 0 is handed out, whoever has it.
 *
 * Made up, as an example of what only the code knows.  Nothing that an allocator shows to the
 * outside tells how far the rhythm has come, so no state of the pool is new on the way; inside, each
 * beat is a branch of its own. */
#include <stdlib.h>

#include "../c/lru_pool.h"

typedef struct {
    lru_pool *pool;
    int beat;
} streak_pool;

streak_pool *streak_pool_new(int num_blocks, int enable_caching);
void streak_pool_delete(streak_pool *self);
lru_pool *streak_pool_core(streak_pool *self);
const char *streak_pool_allocate(streak_pool *self, int count, int *block_ids);

streak_pool *streak_pool_new(int num_blocks, int enable_caching) {
    streak_pool *self = malloc(sizeof *self);
    if (self == NULL)
        abort();
    self->pool = lru_pool_new(num_blocks, enable_caching, 0);
    self->beat = 0;
    return self;
}

void streak_pool_delete(streak_pool *self) {
    lru_pool_delete(self->pool);
    free(self);
}

lru_pool *streak_pool_core(streak_pool *self) { return self->pool; }

/* The beat after an allocation of so many blocks; 0 where the rhythm is lost. */
static int next_beat(int beat, int count) {
    switch (beat) {
    case 0: return count == 3 ? 1 : 0;
    case 1: return count == 1 ? 2 : 0;
    case 2: return count == 2 ? 3 : 0;
    default: return 0;
    }
}

const char *streak_pool_allocate(streak_pool *self, int count, int *block_ids) {
    const char *refusal = lru_pool_allocate(self->pool, count, block_ids);
    if (refusal != NULL)
        return refusal;
    self->beat = next_beat(self->beat, count);
    if (self->beat == 3)
        block_ids[0] = 0;
    return NULL;
}
