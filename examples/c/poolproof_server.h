/* What the parts of pp_serve share: the command in progress, and what was shown last. */
#ifndef POOLPROOF_SERVER_H
#define POOLPROOF_SERVER_H

#include "poolproof_json.h"
#include "poolproof_serve.h"

enum { PP_MOST_NAME = 32 };

/* The arguments that a command can have. */
typedef struct {
    char verb[PP_MOST_NAME];
    int count, block_id;
    int num_ids, ids_size, *ids;
    int num_hashes, hashes_size;
    pp_hash *hashes;
    pp_hash hash;
} command;

/* A list of integers as it was shown last; `length` is -1 before the first time. */
typedef struct {
    int length, size, *values;
} shown_list;

typedef struct {
    const pp_allocator *allocator;
    void *pool;
    int num_blocks, shows_state;
    json_writer out;
    command command;
    /* What was shown last, and room for what is there now. */
    int num_free;
    shown_list order, counts, links, lookups, now;
    int hashes_are_shown;
    pp_hash *hashes;
    /* The hashes that commands of this run have named, in that order. */
    pp_hash *named;
    int num_named, named_size;
} server;

/* poolproof_read.c */
int pp_read_command(json_reader *in, command *c); /* 0 on failure */

/* poolproof_show.c */
void pp_make_room(shown_list *list, int length);
void pp_put_block(json_writer *out, int block);
void pp_put_blocks(json_writer *out, const int *blocks, int count);
void pp_put_hash(json_writer *out, const pp_hash *hash);
void pp_put_neighbours(json_writer *out, int before, int after);
void pp_put_part(server *s, const char *name);
void pp_name_hash(server *s, const pp_hash *hash);
void pp_show_changes(server *s);

#endif
