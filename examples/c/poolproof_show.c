/* What is shown after each command: the parts of the state that have changed since they were shown
 * last.  See poolproof_server.h. */
#include "poolproof_server.h"

#include <string.h>

int pp_same_hash(const pp_hash *one, const pp_hash *other) {
    return one->length == other->length && memcmp(one->bytes, other->bytes, one->length) == 0;
}

void pp_make_room(shown_list *list, int length) {
    if (list->size < length) {
        list->size = length;
        list->values = json_resized(list->values, (size_t)length * sizeof *list->values);
    }
}

/* Whether `now` differs from what was shown last; if so it is what was shown last from now on. */
static int changed(server *s, shown_list *last) {
    size_t bytes = (size_t)s->now.length * sizeof *s->now.values;
    if (s->now.length == last->length &&
        (bytes == 0 || memcmp(s->now.values, last->values, bytes) == 0))
        return 0;
    pp_make_room(last, s->now.length + 1);
    if (bytes > 0) memcpy(last->values, s->now.values, bytes);
    last->length = s->now.length;
    return 1;
}

void pp_put_block(json_writer *out, int block) {
    if (block == PP_NONE) json_put(out, "null");
    else json_put_integer(out, block);
}

void pp_put_blocks(json_writer *out, const int *blocks, int count) {
    json_put(out, "[");
    for (int i = 0; i < count; i++) {
        if (i > 0) json_put(out, ",");
        pp_put_block(out, blocks[i]);
    }
    json_put(out, "]");
}

void pp_put_part(server *s, const char *name) {
    json_put(&s->out, s->out.text[s->out.length - 1] == '{' ? "\"" : ",\"");
    json_put(&s->out, name);
    json_put(&s->out, "\":");
}

void pp_put_hash(json_writer *out, const pp_hash *hash) {
    if (hash == NULL || hash->length == 0) json_put(out, "null");
    else json_put_hexadecimal(out, hash->bytes, hash->length);
}

static void show_list(server *s, const char *name, shown_list *last) {
    if (!changed(s, last)) return;
    pp_put_part(s, name);
    pp_put_blocks(&s->out, s->now.values, s->now.length);
}

void pp_put_neighbours(json_writer *out, int before, int after) {
    json_put(out, "[");
    pp_put_block(out, before);
    json_put(out, ",");
    pp_put_block(out, after);
    json_put(out, "]");
}

/* Two entries a block: its neighbours, or twice OUTSIDE. */
enum { OUTSIDE = -2 };

static void show_neighbours(server *s) {
    const pp_allocator *a = s->allocator;
    s->now.length = 2 * s->num_blocks;
    for (int b = 0; b < s->num_blocks; b++) {
        int *pair = &s->now.values[2 * b];
        if (!a->free_neighbours(s->pool, b, &pair[0], &pair[1])) pair[0] = pair[1] = OUTSIDE;
    }
    if (!changed(s, &s->links)) return;
    pp_put_part(s, "neighbours");
    for (int b = 0; b < s->num_blocks; b++) {
        json_put(&s->out, b == 0 ? "[" : ",");
        if (s->now.values[2 * b] == OUTSIDE) json_put(&s->out, "null");
        else pp_put_neighbours(&s->out, s->now.values[2 * b], s->now.values[2 * b + 1]);
    }
    json_put(&s->out, "]");
}

static void show_hashes(server *s) {
    static const pp_hash none = {0, {0}};
    int differ = !s->hashes_are_shown;
    for (int b = 0; b < s->num_blocks; b++) {
        const pp_hash *hash = s->allocator->block_hash(s->pool, b);
        if (hash == NULL) hash = &none;
        if (!differ && pp_same_hash(hash, &s->hashes[b])) continue;
        differ = 1;
        s->hashes[b] = *hash;
    }
    if (!differ) return;
    s->hashes_are_shown = 1;
    pp_put_part(s, "block_hashes");
    for (int b = 0; b < s->num_blocks; b++) {
        json_put(&s->out, b == 0 ? "[" : ",");
        pp_put_hash(&s->out, &s->hashes[b]);
    }
    json_put(&s->out, "]");
}

/* The parts of the state that are not as they were when they were shown last. */
void pp_show_changes(server *s) {
    const pp_allocator *a = s->allocator;
    int num_free = a->num_free(s->pool);
    if (num_free != s->num_free) {
        s->num_free = num_free;
        pp_put_part(s, "num_free");
        json_put_integer(&s->out, num_free);
    }
    pp_make_room(&s->now, 2 * s->num_blocks + s->num_named + 2);
    if (a->free_order != NULL) {
        s->now.length = a->free_order(s->pool, s->now.values);
        show_list(s, "free_order", &s->order);
    }
    if (a->ref_count != NULL) {
        s->now.length = s->num_blocks;
        for (int b = 0; b < s->num_blocks; b++) s->now.values[b] = a->ref_count(s->pool, b);
        show_list(s, "ref_counts", &s->counts);
    }
    if (a->block_hash != NULL) show_hashes(s);
    if (a->free_neighbours != NULL) show_neighbours(s);
    s->now.length = s->num_named;
    for (int i = 0; i < s->num_named; i++) s->now.values[i] = a->lookup(s->pool, &s->named[i]);
    show_list(s, "lookups", &s->lookups);
}

void pp_name_hash(server *s, const pp_hash *hash) {
    for (int i = 0; i < s->num_named; i++)
        if (pp_same_hash(&s->named[i], hash)) return;
    if (s->num_named == s->named_size) {
        s->named_size = 2 * s->named_size + 16;
        s->named = json_resized(s->named, (size_t)s->named_size * sizeof *s->named);
    }
    s->named[s->num_named++] = *hash;
}
