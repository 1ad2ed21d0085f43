/* What is in data files: how many records, which features, how long, which values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/data_look.h"
#include "data/data_text.h"

enum { SAMPLE_BYTES = 40 };

/* Counts of distinct values, up to DATA_STAT_VALUES_MAX of them; later new ones are not told apart. */
struct entry {
    uint64_t print; /* fingerprint of the value's text */
    uint64_t count; /* 0: empty */
    uint8_t bytes;
    char text[SAMPLE_BYTES];
};

struct column {
    char *name;
    size_t name_bytes;
    bool seen[4]; /* by type of value: text, integer, number */
    uint64_t records;
    uint64_t values;
    uint64_t length_min;
    uint64_t length_max;
    uint64_t numbers; /* values that are numbers */
    double min, max, sum;
    struct entry *entries;
    size_t entries_count; /* capacity, a power of two */
    size_t distinct;
    bool full;
};

struct stat {
    struct column *columns;
    size_t columns_capacity;
    size_t columns_count;
    size_t next; /* where the next field of a record is looked for first */
    bool failed;
};

static void begin(void *ctx)
{
    ((struct stat *)ctx)->next = 0;
}

static struct column *find_column(struct stat *stat, const uint8_t *name, size_t bytes)
{
    for (size_t i = 0; i < stat->columns_count; i++) {
        const size_t at = (stat->next + i) % stat->columns_count;
        struct column *column = &stat->columns[at];
        if (column->name_bytes == bytes && memcmp(column->name, name, bytes) == 0) {
            stat->next = at + 1;
            return column;
        }
    }
    if (stat->columns_count == DATA_COLUMNS_MAX ||
        mem_grow(MEM_DATA, (void **)&stat->columns, &stat->columns_capacity,
                 stat->columns_count + 1, sizeof *stat->columns) != 0) {
        stat->failed = true;
        return NULL;
    }
    struct column *column = &stat->columns[stat->columns_count];
    *column = (struct column){.name = mem_strndup(MEM_DATA, (const char *)name, bytes),
                              .name_bytes = bytes,
                              .length_min = UINT64_MAX};
    if (column->name == NULL) {
        stat->failed = true;
        return NULL;
    }
    stat->columns_count++;
    stat->next = stat->columns_count;
    return column;
}

static struct entry *find_entry(struct entry *entries, size_t capacity, uint64_t print)
{
    size_t at = (size_t)hash_mix64(print) & (capacity - 1);
    while (entries[at].count != 0 && entries[at].print != print) at = (at + 1) & (capacity - 1);
    return &entries[at];
}

static bool grow_entries(struct column *column)
{
    const size_t capacity = column->entries_count == 0 ? 64 : column->entries_count * 2;
    struct entry *entries = mem_alloc_array(MEM_DATA, capacity, sizeof *entries);
    if (entries == NULL) return false;
    for (size_t i = 0; i < column->entries_count; i++) {
        const struct entry *old = &column->entries[i];
        if (old->count != 0) *find_entry(entries, capacity, old->print) = *old;
    }
    mem_free(column->entries);
    column->entries = entries;
    column->entries_count = capacity;
    return true;
}

static void count_text(struct stat *stat, struct column *column, const void *text, size_t bytes)
{
    const uint64_t print = hash_fingerprint64(text, bytes);
    if (column->distinct * 2 >= column->entries_count && !column->full && !grow_entries(column)) {
        stat->failed = true;
        return;
    }
    struct entry *entry = find_entry(column->entries, column->entries_count, print);
    if (entry->count == 0) {
        if (column->distinct == DATA_STAT_VALUES_MAX) {
            column->full = true;
            return;
        }
        column->distinct++;
        entry->print = print;
        entry->bytes = (uint8_t)(bytes < SAMPLE_BYTES ? bytes : SAMPLE_BYTES);
        memcpy(entry->text, text, entry->bytes);
    }
    entry->count++;
}

static void count_number(struct column *column, double number)
{
    if (!isfinite(number)) return;
    if (column->numbers == 0 || number < column->min) column->min = number;
    if (column->numbers == 0 || number > column->max) column->max = number;
    column->sum += number;
    column->numbers++;
}

static void count_value(struct stat *stat, struct column *column, const struct data_value *value)
{
    char text[40];
    double number = 0;
    column->seen[value->type] = true;
    switch (value->type) {
    case DATA_VALUE_TEXT:
        if (data_text_to_f64(value->text, value->bytes, &number)) count_number(column, number);
        count_text(stat, column, value->text, value->bytes);
        break;
    case DATA_VALUE_INTEGER:
        count_number(column, (double)value->integer);
        count_text(stat, column, text, data_text_of_i64(value->integer, text));
        break;
    default:
        count_number(column, value->number);
        snprintf(text, sizeof text, "%.9g", value->number);
        count_text(stat, column, text, strlen(text));
    }
}

static void field(void *ctx, const struct data_example_field *found)
{
    struct stat *stat = ctx;
    struct data_cursor cursor;
    struct data_value value;
    uint64_t length = 0;
    struct column *column = find_column(stat, found->name, found->name_bytes);
    if (column == NULL) return;
    data_cursor_init(&cursor, &found->raw);
    while (data_cursor_next(&cursor, &value) > 0) {
        length++;
        count_value(stat, column, &value);
    }
    column->records++;
    column->values += length;
    if (length < column->length_min) column->length_min = length;
    if (length > column->length_max) column->length_max = length;
}

/* ---- report ---- */

static const char *type_of(const struct column *column)
{
    if (column->seen[DATA_VALUE_TEXT]) return "string";
    if (column->seen[DATA_VALUE_INTEGER]) return "integer";
    return column->seen[DATA_VALUE_NUMBER] ? "float" : "none";
}

static int by_count(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return (x->print > y->print) - (x->print < y->print);
}

static size_t top_of(struct column *column, uint32_t top)
{
    qsort(column->entries, column->entries_count, sizeof *column->entries, by_count);
    return column->distinct < top ? column->distinct : top;
}

static void json_column(struct column *column, uint32_t top, struct str *out)
{
    str_json_open(out, '{');
    str_json_key(out, "name");
    str_json_string(out, column->name, column->name_bytes);
    str_json_key(out, "type");
    str_json_string(out, type_of(column), strlen(type_of(column)));
    str_json_key(out, "records");
    str_json_u64(out, column->records);
    str_json_key(out, "values");
    str_json_u64(out, column->values);
    str_json_key(out, "length_min");
    str_json_u64(out, column->length_min);
    str_json_key(out, "length_mean");
    str_json_f64(out, (double)column->values / (double)column->records);
    str_json_key(out, "length_max");
    str_json_u64(out, column->length_max);
    if (column->numbers > 0 && column->numbers == column->values) {
        str_json_key(out, "min");
        str_json_f64(out, column->min);
        str_json_key(out, "mean");
        str_json_f64(out, column->sum / (double)column->numbers);
        str_json_key(out, "max");
        str_json_f64(out, column->max);
    }
    str_json_key(out, "distinct");
    str_json_u64(out, column->distinct);
    str_json_key(out, "distinct_is_exact");
    str_json_bool(out, !column->full);
    str_json_key(out, "top");
    str_json_open(out, '[');
    const size_t count = top_of(column, top);
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &column->entries[i];
        str_json_open(out, '{');
        str_json_key(out, "value");
        str_json_string(out, entry->text, entry->bytes);
        str_json_key(out, "count");
        str_json_u64(out, entry->count);
        str_json_close(out, '}');
    }
    str_json_close(out, ']');
    str_json_close(out, '}');
}

static void report_json(struct stat *stat, const struct data_look_totals *totals, uint32_t top,
                        struct str *out)
{
    str_json_open(out, '{');
    str_json_key(out, "records");
    str_json_u64(out, totals->records);
    str_json_key(out, "skipped");
    str_json_u64(out, totals->skipped);
    str_json_key(out, "files");
    str_json_u64(out, totals->files);
    str_json_key(out, "bytes");
    str_json_u64(out, totals->bytes);
    str_json_key(out, "skipped_by");
    str_json_open(out, '{');
    for (int i = 0; i < DATA_FAULT_COUNT; i++) {
        if (totals->skipped_by[i] == 0) continue;
        str_json_key(out, data_fault_name((enum data_fault)i));
        str_json_u64(out, totals->skipped_by[i]);
    }
    str_json_close(out, '}');
    str_json_key(out, "features");
    str_json_open(out, '[');
    for (size_t i = 0; i < stat->columns_count; i++) json_column(&stat->columns[i], top, out);
    str_json_close(out, ']');
    str_json_close(out, '}');
    str_add(out, "\n");
}

static void table_column(struct column *column, uint32_t top, struct str *out)
{
    char values[32], distinct[32];
    const double mean = (double)column->values / (double)column->records;
    str_printf(out, "%-20.*s %-8s %12s %6llu %8.2f %6llu %11s%s ", (int)column->name_bytes,
               column->name, type_of(column), str_count(column->values, values),
               (unsigned long long)column->length_min, mean, (unsigned long long)column->length_max,
               str_count(column->distinct, distinct), column->full ? "+" : " ");
    const size_t count = top_of(column, top);
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &column->entries[i];
        str_printf(out, "%s%.*s (%.1f %%)", i == 0 ? " " : ", ", entry->bytes, entry->text,
                   100.0 * (double)entry->count / (double)column->values);
    }
    str_add(out, "\n");
}

static void report_table(struct stat *stat, const struct data_look_totals *totals, uint32_t top,
                         struct str *out)
{
    char records[32], bytes[32];
    str_printf(out, "%s records in %llu files, %s; %llu skipped\n",
               str_count(totals->records, records), (unsigned long long)totals->files,
               str_bytes(totals->bytes, bytes), (unsigned long long)totals->skipped);
    for (int i = 0; i < DATA_FAULT_COUNT; i++) {
        if (totals->skipped_by[i] == 0) continue;
        str_printf(out, "  skipped %llu: %s\n", (unsigned long long)totals->skipped_by[i],
                   data_fault_text((enum data_fault)i));
    }
    if (stat->columns_count == 0) return;
    str_printf(out, "\n%-20s %-8s %12s %6s %8s %6s %11s   %s\n", "feature", "type", "values",
               "least", "mean", "most", "distinct", "most frequent");
    for (size_t i = 0; i < stat->columns_count; i++) table_column(&stat->columns[i], top, out);
}

int data_stat(const struct data_look_opts *opts, struct str *out, struct err *err)
{
    struct stat stat = {0};
    struct data_look_totals totals;
    const struct data_look_visitor visitor = {.begin = begin, .field = field, .ctx = &stat};
    const uint32_t top = opts->top != 0 ? opts->top : 5;
    int rc = data_look_run(opts, &visitor, &totals, err);
    if (opts->json) {
        report_json(&stat, &totals, top, out);
    } else {
        report_table(&stat, &totals, top, out);
    }
    if (rc == 0 && (stat.failed || out->failed)) {
        rc = err_set(err, SHOAL_ENOMEM, "data stat: no memory");
    }
    for (size_t i = 0; i < stat.columns_count; i++) {
        mem_free(stat.columns[i].name);
        mem_free(stat.columns[i].entries);
    }
    mem_free(stat.columns);
    return rc;
}
