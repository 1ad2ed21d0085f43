#include "train/inspect_table.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"

enum { COLUMNS_MAX = 16, WIDTH_MAX = 120 }; /* a longer cell pushes its own row only */

void inspect_table_add_name(struct str *rows, const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)name[i];
        str_add_bytes(rows, byte < 0x20 || byte == 0x7f ? "?" : &name[i], 1);
    }
}

/* Columns that UTF-8 text takes, each character counted as one. */
static size_t width_of(const char *text, size_t bytes)
{
    size_t width = 0;
    for (size_t i = 0; i < bytes; i++) width += ((uint8_t)text[i] & 0xc0) != 0x80;
    return width;
}

/* The next cell from *at on; the byte that ends it is a tab or a line break. */
static size_t cell_bytes(const char *at)
{
    return strcspn(at, "\t\n");
}

static void measure(const struct str *rows, size_t widths[COLUMNS_MAX])
{
    size_t column = 0;
    for (const char *at = rows->text; *at != '\0';) {
        const size_t bytes = cell_bytes(at);
        const size_t width = width_of(at, bytes);
        ASSERT(column < COLUMNS_MAX);
        if (width > widths[column] && width <= WIDTH_MAX) widths[column] = width;
        column = at[bytes] == '\n' ? 0 : column + 1;
        at += bytes + (at[bytes] != '\0');
    }
}

void inspect_table_print(const struct str *rows, struct str *out)
{
    if (rows->bytes == 0) return;
    size_t widths[COLUMNS_MAX] = {0};
    measure(rows, widths);
    size_t column = 0;
    for (const char *at = rows->text; *at != '\0';) {
        const size_t bytes = cell_bytes(at);
        const size_t width = width_of(at, bytes);
        const char end = at[bytes];
        str_add_bytes(out, at, bytes);
        if (end == '\n') {
            str_add(out, "\n");
        } else if (end == '\t') {
            const size_t pad = width < widths[column] ? widths[column] - width : 0;
            str_printf(out, "%*s", (int)pad + 2, "");
        }
        column = end == '\n' ? 0 : column + 1;
        at += bytes + (end != '\0');
    }
}
