/* See poolproof_json.h. */
#include "poolproof_json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTING = 32 };

static int fail(json_reader *reader, const char *expected) {
    if (reader->failure == NULL) reader->failure = expected;
    return 0;
}

static void skip_space(json_reader *reader) {
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r') reader->at++;
}

int json_next_is(json_reader *reader, char expected) {
    skip_space(reader);
    if (*reader->at != expected) return 0;
    reader->at++;
    return 1;
}

int json_take(json_reader *reader, char expected) {
    static char what[] = "'?'";
    if (json_next_is(reader, expected)) return 1;
    what[1] = expected;
    return fail(reader, what);
}

int json_text(json_reader *reader, char *into, size_t size) {
    size_t length = 0;
    if (!json_take(reader, '"')) return 0;
    while (*reader->at != '"') {
        if (*reader->at == '\\') reader->at++;
        if (*reader->at == '\0') return fail(reader, "the end of a text");
        if (length + 1 >= size) return fail(reader, "a shorter text");
        into[length++] = *reader->at++;
    }
    reader->at++;
    into[length] = '\0';
    return 1;
}

int json_integer(json_reader *reader, int *into) {
    long long value = 0;
    int negative = json_next_is(reader, '-');
    if (*reader->at < '0' || *reader->at > '9') return fail(reader, "an integer");
    while (*reader->at >= '0' && *reader->at <= '9') {
        value = 10 * value + (*reader->at++ - '0');
        if (value > INT_MAX) return fail(reader, "a smaller integer");
    }
    *into = (int)(negative ? -value : value);
    return 1;
}

int json_boolean(json_reader *reader, int *into) {
    skip_space(reader);
    *into = strncmp(reader->at, "true", 4) == 0;
    if (!*into && strncmp(reader->at, "false", 5) != 0) return fail(reader, "true or false");
    reader->at += *into ? 4 : 5;
    return 1;
}

int json_skip(json_reader *reader) {
    int depth = 0;
    do {
        skip_space(reader);
        switch (*reader->at) {
        case '\0':
            return fail(reader, "the end of a value");
        case '"':
            for (reader->at++; *reader->at != '"'; reader->at++) {
                if (*reader->at == '\\') reader->at++;
                if (*reader->at == '\0') return fail(reader, "the end of a text");
            }
            break;
        case '[':
        case '{':
            if (++depth > MOST_NESTING) return fail(reader, "fewer brackets");
            break;
        case ']':
        case '}':
            depth--;
            break;
        default:
            break;
        }
        reader->at++;
    } while (depth > 0);
    /* The rest of a number or of a word. */
    while (*reader->at != '\0' && strchr(",]}", *reader->at) == NULL) reader->at++;
    return 1;
}

void *json_resized(void *memory, size_t size) {
    void *resized = realloc(memory, size);
    if (resized == NULL) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    return resized;
}

static char *room_for(json_writer *writer, size_t length) {
    if (writer->length + length + 1 > writer->size) {
        writer->size = 2 * (writer->length + length + 1);
        writer->text = json_resized(writer->text, writer->size);
    }
    return writer->text + writer->length;
}

void json_put(json_writer *writer, const char *text) {
    size_t length = strlen(text);
    memcpy(room_for(writer, length), text, length + 1);
    writer->length += length;
}

void json_put_integer(json_writer *writer, int value) {
    char digits[12];
    size_t place = sizeof digits;
    unsigned rest = value < 0 ? 0u - (unsigned)value : (unsigned)value;
    do digits[--place] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) digits[--place] = '-';
    memcpy(room_for(writer, sizeof digits), digits + place, sizeof digits - place);
    writer->length += sizeof digits - place;
}

void json_put_quoted(json_writer *writer, const char *text) {
    json_put(writer, "\"");
    for (; *text != '\0'; text++) {
        char one[3] = {*text, '\0', '\0'};
        if (*text == '"' || *text == '\\') {
            one[0] = '\\';
            one[1] = *text;
        }
        if ((unsigned char)*text >= ' ') json_put(writer, one);
    }
    json_put(writer, "\"");
}

void json_put_hexadecimal(json_writer *writer, const unsigned char *bytes, unsigned length) {
    static const char digit[] = "0123456789abcdef";
    char *place = room_for(writer, 2 * (size_t)length + 2);
    *place++ = '"';
    for (unsigned i = 0; i < length; i++) {
        *place++ = digit[bytes[i] >> 4];
        *place++ = digit[bytes[i] & 15];
    }
    *place = '"';
    writer->length += 2 * (size_t)length + 2;
}
