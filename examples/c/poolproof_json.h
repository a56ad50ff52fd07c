/* The little JSON that pp_serve needs: a reader that moves over text, and a growing text to write.
 *
 * The reader takes what Poolproof sends and no more (no fractions, no escapes beyond \" and \\);
 * whatever else it meets it reports as a failure, and never reads behind the end.
 */
#ifndef POOLPROOF_JSON_H
#define POOLPROOF_JSON_H

#include <stddef.h>

typedef struct {
    const char *at; /* ends with a 0 byte */
    const char *failure; /* what was expected, or NULL */
} json_reader;

/* Each returns 0 on failure; `into` is filled otherwise. */
int json_take(json_reader *reader, char expected);
int json_next_is(json_reader *reader, char expected);
int json_text(json_reader *reader, char *into, size_t size);
int json_integer(json_reader *reader, int *into);
int json_boolean(json_reader *reader, int *into);
int json_skip(json_reader *reader);

typedef struct {
    char *text;
    size_t length, size;
} json_writer;

/* Out of memory ends the program: there is nothing left to answer with. */
void json_put(json_writer *writer, const char *text);
void json_put_integer(json_writer *writer, int value);
void json_put_quoted(json_writer *writer, const char *text);
void json_put_hexadecimal(json_writer *writer, const unsigned char *bytes, unsigned length);
void *json_resized(void *memory, size_t size);

#endif
