/* inspect_table prints rows of text with aligned columns. Rows are built as text, a tab between cells
 * and a line break after each row, then printed once all are known. */
#ifndef SHOAL_TRAIN_INSPECT_TABLE_H
#define SHOAL_TRAIN_INSPECT_TABLE_H

#include <stddef.h>

#include "base/str.h"

/* Adds a name from outside as (part of) a cell: control characters become '?'. */
void inspect_table_add_name(struct str *rows, const char *name, size_t bytes);

/* Adds the rows to out: columns two spaces apart, nothing behind the last cell. */
void inspect_table_print(const struct str *rows, struct str *out);

#endif
