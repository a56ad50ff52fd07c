/* See poolproof_serve.h.  The loop over messages, and what each command does. */
#include "poolproof_serve.h"

#include "poolproof_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROTOCOL = 1 };

static void put_refusal(server *s, const char *reason) {
    if (reason == NULL) return;
    pp_put_part(s, "refused");
    json_put_quoted(&s->out, reason);
}

static void do_allocate(server *s) {
    pp_make_room(&s->now, s->num_blocks + 1);
    const char *refusal = s->allocator->allocate(s->pool, s->command.count, s->now.values);
    put_refusal(s, refusal);
    if (refusal != NULL) return;
    pp_put_part(s, "result");
    pp_put_blocks(&s->out, s->now.values, s->command.count);
}

static void do_cache(server *s) {
    const command *c = &s->command;
    if (s->shows_state)
        for (int i = 0; i < c->num_hashes; i++) pp_name_hash(s, &c->hashes[i]);
    put_refusal(
        s, s->allocator->cache(s->pool, c->ids, c->num_ids, c->hashes, c->num_hashes));
}

static void do_lookup(server *s) {
    if (s->shows_state) pp_name_hash(s, &s->command.hash);
    pp_put_part(s, "result");
    pp_put_block(&s->out, s->allocator->lookup(s->pool, &s->command.hash));
}

static void do_reset(server *s) {
    pp_put_part(s, "result");
    json_put(&s->out, s->allocator->reset(s->pool) ? "true" : "false");
}

static void answer_neighbours(server *s) {
    int before, after;
    int queued = s->allocator->free_neighbours(s->pool, s->command.block_id, &before, &after);
    if (queued) pp_put_neighbours(&s->out, before, after);
    else json_put(&s->out, "null");
}

static void answer_order(server *s) {
    pp_make_room(&s->now, s->num_blocks + 1);
    pp_put_blocks(&s->out, s->now.values, s->allocator->free_order(s->pool, s->now.values));
}

/* Questions about a pool that is too large to be shown after each command. */
static int answer_question(server *s) {
    const pp_allocator *a = s->allocator;
    const char *verb = s->command.verb;
    int block = s->command.block_id;
    int is_count = strcmp(verb, "num_free") == 0;
    int is_order = a->free_order != NULL && strcmp(verb, "free_order") == 0;
    int is_ref_count = a->ref_count != NULL && strcmp(verb, "ref_count") == 0;
    int is_hash = a->block_hash != NULL && strcmp(verb, "block_hash") == 0;
    int is_links = a->free_neighbours != NULL && strcmp(verb, "free_neighbours") == 0;
    if (!(is_count || is_order || is_ref_count || is_hash || is_links)) return 0;
    pp_put_part(s, "result");
    if (is_count) json_put_integer(&s->out, a->num_free(s->pool));
    if (is_order) answer_order(s);
    if (is_ref_count) json_put_integer(&s->out, a->ref_count(s->pool, block));
    if (is_hash) pp_put_hash(&s->out, a->block_hash(s->pool, block));
    if (is_links) answer_neighbours(s);
    return 1;
}

static void do_command(server *s) {
    const pp_allocator *a = s->allocator;
    const command *c = &s->command;
    json_put(&s->out, "{");
    if (strcmp(c->verb, "allocate") == 0) do_allocate(s);
    else if (strcmp(c->verb, "touch") == 0) put_refusal(s, a->touch(s->pool, c->ids, c->num_ids));
    else if (strcmp(c->verb, "free") == 0) put_refusal(s, a->free(s->pool, c->ids, c->num_ids));
    else if (strcmp(c->verb, "cache") == 0) do_cache(s);
    else if (strcmp(c->verb, "lookup") == 0) do_lookup(s);
    else if (a->evict != NULL && strcmp(c->verb, "evict") == 0)
        put_refusal(s, a->evict(s->pool, c->ids, c->num_ids));
    else if (a->reset != NULL && strcmp(c->verb, "reset") == 0) do_reset(s);
    else if (!answer_question(s)) {
        pp_put_part(s, "skipped");
        json_put_quoted(&s->out, "this program has no such verb");
    }
    if (s->shows_state) pp_show_changes(s);
    json_put(&s->out, "}");
}

static int do_commands(server *s, json_reader *in) {
    json_put(&s->out, ",\"answers\":[");
    if (!json_take(in, '[')) return 0;
    if (!json_next_is(in, ']')) {
        int first = 1;
        do {
            if (!pp_read_command(in, &s->command)) return 0;
            if (!first) json_put(&s->out, ",");
            first = 0;
            do_command(s);
        } while (json_next_is(in, ','));
        if (!json_take(in, ']')) return 0;
    }
    json_put(&s->out, "]");
    return 1;
}

typedef struct {
    char what[PP_MOST_NAME], show[PP_MOST_NAME];
    int seq, protocol, num_blocks, enable_caching;
    json_reader commands;
} message;

static int read_message(json_reader *in, message *m) {
    char key[PP_MOST_NAME];
    memset(m, 0, sizeof *m);
    if (!json_take(in, '{')) return 0;
    do {
        int read;
        if (!json_text(in, key, sizeof key) || !json_take(in, ':')) return 0;
        if (strcmp(key, "do") == 0) read = json_text(in, m->what, sizeof m->what);
        else if (strcmp(key, "seq") == 0) read = json_integer(in, &m->seq);
        else if (strcmp(key, "protocol") == 0) read = json_integer(in, &m->protocol);
        else if (strcmp(key, "num_blocks") == 0) read = json_integer(in, &m->num_blocks);
        else if (strcmp(key, "enable_caching") == 0) read = json_boolean(in, &m->enable_caching);
        else if (strcmp(key, "show") == 0) read = json_text(in, m->show, sizeof m->show);
        else {
            if (strcmp(key, "commands") == 0) m->commands = *in;
            read = json_skip(in);
        }
        if (!read) return 0;
    } while (json_next_is(in, ','));
    return json_take(in, '}');
}

static void introduce(server *s, const message *m) {
    const pp_allocator *a = s->allocator;
    json_put(&s->out, ",\"protocol\":");
    json_put_integer(&s->out, PROTOCOL);
    if (m->protocol < PROTOCOL) { /* who speaks a later version understands this one, too */
        json_put(&s->out, ",\"error\":\"this program speaks protocol 1\"");
        return;
    }
    json_put(&s->out, ",\"name\":");
    json_put_quoted(&s->out, a->name);
    json_put(&s->out, ",\"version\":");
    json_put_quoted(&s->out, a->version);
    json_put(&s->out, ",\"level\":\"pool\",\"verbs\":[\"allocate\",\"touch\",\"free\",\"cache\","
                      "\"lookup\"");
    if (a->evict != NULL) json_put(&s->out, ",\"evict\"");
    if (a->reset != NULL) json_put(&s->out, ",\"reset\"");
    json_put(&s->out, "],\"observers\":[");
    const char *comma = "";
    const struct { int has; const char *name; } observers[] = {
        {a->free_order != NULL, "\"free_order\""},
        {a->ref_count != NULL, "\"ref_count\""},
        {a->block_hash != NULL, "\"block_hash\""},
        {a->free_neighbours != NULL, "\"free_neighbours\""},
    };
    for (size_t i = 0; i < sizeof observers / sizeof *observers; i++) {
        if (!observers[i].has) continue;
        json_put(&s->out, comma);
        json_put(&s->out, observers[i].name);
        comma = ",";
    }
    json_put(&s->out, "],\"profile\":");
    json_put(&s->out, a->profile);
}

/* A fresh instance. */
static void begin_run(server *s, const message *m) {
    if (s->pool != NULL) s->allocator->destroy(s->pool);
    s->pool = s->allocator->create(m->num_blocks, m->enable_caching);
    s->num_blocks = m->num_blocks;
    s->shows_state = strcmp(m->show, "state") == 0;
    s->num_free = PP_NONE - 1;
    s->num_named = 0;
    s->order.length = s->counts.length = s->links.length = s->lookups.length = -1;
    s->hashes_are_shown = 0;
    s->hashes = json_resized(s->hashes, ((size_t)m->num_blocks + 1) * sizeof *s->hashes);
    if (!s->shows_state) return;
    json_put(&s->out, ",\"state\":{");
    pp_show_changes(s);
    json_put(&s->out, "}");
}

static int answer_message(server *s, json_reader *in, int *is_last) {
    message m;
    if (!read_message(in, &m)) return 0;
    s->out.length = 0;
    json_put(&s->out, "{\"seq\":");
    json_put_integer(&s->out, m.seq);
    *is_last = strcmp(m.what, "stop") == 0;
    if (strcmp(m.what, "start") == 0) introduce(s, &m);
    else if (strcmp(m.what, "run") == 0 && m.num_blocks < 1)
        json_put(&s->out, ",\"error\":\"a pool has at least one block\"");
    else if (strcmp(m.what, "run") == 0) begin_run(s, &m);
    else if (!*is_last && s->pool == NULL) json_put(&s->out, ",\"error\":\"no run has begun\"");
    if (m.commands.at != NULL && s->pool != NULL && !do_commands(s, &m.commands)) {
        in->failure = m.commands.failure;
        return 0;
    }
    json_put(&s->out, "}\n");
    fwrite(s->out.text, 1, s->out.length, stdout);
    fflush(stdout);
    return 1;
}

/* A line of any length, without its end; NULL at the end of the input. */
static char *read_line(char **line, size_t *size) {
    size_t length = 0;
    for (;;) {
        if (*size - length < 2) {
            *size = 2 * *size + 4096;
            *line = json_resized(*line, *size);
        }
        if (fgets(*line + length, (int)(*size - length), stdin) == NULL) return NULL;
        length += strlen(*line + length);
        if (length > 0 && (*line)[length - 1] == '\n') {
            (*line)[length - 1] = '\0';
            return *line;
        }
    }
}

static void release(server *s) {
    if (s->pool != NULL) s->allocator->destroy(s->pool);
    free(s->out.text);
    free(s->command.ids);
    free(s->command.hashes);
    free(s->order.values);
    free(s->counts.values);
    free(s->links.values);
    free(s->lookups.values);
    free(s->now.values);
    free(s->hashes);
    free(s->named);
}

int pp_serve(const pp_allocator *allocator) {
    server s = {.allocator = allocator};
    char *line = NULL;
    size_t size = 0;
    int is_last = 0, status = 0;
    while (!is_last && status == 0 && read_line(&line, &size) != NULL) {
        json_reader in = {line, NULL};
        if (!answer_message(&s, &in, &is_last)) {
            fprintf(stderr, "a message cannot be read: expected %s\n", in.failure);
            status = 2;
        }
    }
    free(line);
    release(&s);
    return status;
}
