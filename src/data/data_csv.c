/* Fields of one csv record. */
#include <string.h>

#include "data/data_parse.h"

/* A field that starts with a quote, up to the closing one (or the record's end); a doubled quote is
 * one. Text after the closing quote is kept, as most readers do. */
static const uint8_t *unquote(const uint8_t *at, const uint8_t *end, uint8_t delimiter,
                              uint8_t **scratch, struct data_span *span)
{
    uint8_t *out = *scratch;
    bool quoted = true;
    for (at++; at < end; at++) {
        if (quoted && *at == '"') {
            if (at + 1 < end && at[1] == '"') {
                *out++ = *at++;
            } else {
                quoted = false;
            }
        } else if (!quoted && *at == delimiter) {
            break;
        } else {
            *out++ = *at;
        }
    }
    span->at = *scratch;
    span->bytes = (uint32_t)(out - *scratch);
    *scratch = out;
    return at;
}

uint32_t data_csv_split(const uint8_t *bytes, size_t count, char delimiter, uint8_t *scratch,
                        struct data_span *spans, uint32_t spans_max)
{
    const uint8_t *at = bytes;
    const uint8_t *end = bytes + count;
    for (uint32_t found = 0;; found++) {
        if (found == spans_max) return spans_max + 1;
        const uint8_t *start = at;
        if (at < end && *at == '"') {
            at = unquote(at, end, (uint8_t)delimiter, &scratch, &spans[found]);
        } else {
            /* Fields are short: a plain loop beats memchr. */
            while (at < end && *at != (uint8_t)delimiter) at++;
            spans[found] = (struct data_span){.at = start, .bytes = (uint32_t)(at - start)};
        }
        if (at >= end) return found + 1;
        at++;
    }
}
