/* Reads the commands of a message.  See poolproof_server.h. */
#include "poolproof_server.h"

#include <string.h>

static int hexadecimal_digit(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

static int read_hash(json_reader *in, pp_hash *hash) {
    char text[2 * PP_MOST_HASH_BYTES + 1];
    if (!json_text(in, text, sizeof text)) return 0;
    hash->length = 0;
    for (const char *at = text; *at != '\0'; at += 2) {
        int high = hexadecimal_digit(at[0]);
        int low = high < 0 ? -1 : hexadecimal_digit(at[1]);
        if (low < 0) {
            in->failure = "hexadecimal digits";
            return 0;
        }
        hash->bytes[hash->length++] = (unsigned char)(16 * high + low);
    }
    return 1;
}

static int read_ids(json_reader *in, command *c) {
    c->num_ids = 0;
    if (!json_take(in, '[')) return 0;
    if (json_next_is(in, ']')) return 1;
    do {
        if (c->num_ids == c->ids_size) {
            c->ids_size = 2 * c->ids_size + 16;
            c->ids = json_resized(c->ids, (size_t)c->ids_size * sizeof *c->ids);
        }
        if (!json_integer(in, &c->ids[c->num_ids++])) return 0;
    } while (json_next_is(in, ','));
    return json_take(in, ']');
}

static int read_hashes(json_reader *in, command *c) {
    c->num_hashes = 0;
    if (!json_take(in, '[')) return 0;
    if (json_next_is(in, ']')) return 1;
    do {
        if (c->num_hashes == c->hashes_size) {
            c->hashes_size = 2 * c->hashes_size + 16;
            c->hashes = json_resized(c->hashes, (size_t)c->hashes_size * sizeof *c->hashes);
        }
        if (!read_hash(in, &c->hashes[c->num_hashes++])) return 0;
    } while (json_next_is(in, ','));
    return json_take(in, ']');
}

int pp_read_command(json_reader *in, command *c) {
    char key[PP_MOST_NAME];
    c->num_ids = c->num_hashes = c->count = c->block_id = 0;
    c->verb[0] = '\0';
    if (!json_take(in, '{')) return 0;
    do {
        int read;
        if (!json_text(in, key, sizeof key) || !json_take(in, ':')) return 0;
        if (strcmp(key, "do") == 0) read = json_text(in, c->verb, sizeof c->verb);
        else if (strcmp(key, "count") == 0) read = json_integer(in, &c->count);
        else if (strcmp(key, "block_id") == 0) read = json_integer(in, &c->block_id);
        else if (strcmp(key, "block_ids") == 0) read = read_ids(in, c);
        else if (strcmp(key, "hashes") == 0) read = read_hashes(in, c);
        else if (strcmp(key, "block_hash") == 0) read = read_hash(in, &c->hash);
        else read = json_skip(in);
        if (!read) return 0;
    } while (json_next_is(in, ','));
    return json_take(in, '}');
}
