#include "data/data_batcher.h"

#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "data/data_decode.h"
#include "data/data_unique.h"

/* Rows 64p .. 64p+63 of the records given, decoded by one thread. */
struct part {
    struct data_ragged *ragged; /* by categorical feature */
    struct data_crossing crossing;
    uint32_t rows; /* that are whole */
    uint32_t broken_count;
    struct data_broken broken[DATA_PART_ROWS];
    int rc;
};

/* The arrays of one finished batch. */
struct set {
    struct batch batch;
    float *label;
    float *weight;
    uint64_t *group;
    float **dense;
    struct batch_ids *ids;
    struct batch_keys *tables;
    struct data_unique_out *uniques; /* by table */
    uint32_t **offsets;              /* by categorical feature, NULL for single ones */
    float **weights;                 /* by categorical feature, NULL for unweighted ones */
    size_t *weights_capacity;
};

struct data_batcher {
    struct data_batcher_opts opts;
    const struct data_schema *schema;
    uint32_t parts_max;
    struct set sets[2];
    uint32_t turn;

    uint64_t **keys;   /* scratch by categorical feature: keys of single ones */
    uint32_t **counts; /* scratch by categorical feature: values in each row of the others */
    struct part *parts;
    struct data_unique *uniques;  /* by table */
    struct data_unique_run *runs; /* by table, its features and parts */
    uint32_t *runs_first;         /* by table: how many features the tables before it have */
    struct data_broken *broken;
    uint64_t *totals; /* by categorical feature: occurrences */

    struct data_parser **parsers; /* by thread */
    uint32_t parsers_count;

    /* The call that is under way; read only while the team runs. */
    const struct data_piece *pieces;
    const uint32_t *index;
    uint32_t count;
    uint32_t parts_count;
    uint32_t rows;
    struct set *set;
};

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory for batches");
}

static bool alloc_set(struct data_batcher *b, struct set *set)
{
    const struct data_schema *schema = b->schema;
    const size_t rows = b->opts.rows_max;
    bool ok = true;
    if (schema->has_label) ok = (set->label = mem_alloc_array(MEM_DATA, rows, 4)) != NULL && ok;
    if (schema->has_weight) ok = (set->weight = mem_alloc_array(MEM_DATA, rows, 4)) != NULL && ok;
    if (schema->has_group) ok = (set->group = mem_alloc_array(MEM_DATA, rows, 8)) != NULL && ok;
    set->dense = mem_alloc_array(MEM_DATA, schema->dense_count, sizeof *set->dense);
    set->ids = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *set->ids);
    set->offsets = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *set->offsets);
    set->weights = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *set->weights);
    set->weights_capacity =
        mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *set->weights_capacity);
    set->tables = mem_alloc_array(MEM_DATA, schema->tables_count, sizeof *set->tables);
    set->uniques = mem_alloc_array(MEM_DATA, schema->tables_count, sizeof *set->uniques);
    if (!ok || set->dense == NULL || set->ids == NULL || set->offsets == NULL ||
        set->weights == NULL || set->weights_capacity == NULL || set->tables == NULL ||
        set->uniques == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schema->dense_count; i++) {
        set->dense[i] = mem_alloc_array(MEM_DATA, rows * schema->dense[i].width, sizeof(float));
        if (set->dense[i] == NULL) return false;
    }
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        if (schema->ids[i].single) continue;
        set->offsets[i] = mem_alloc_array(MEM_DATA, rows + 1, sizeof(uint32_t));
        if (set->offsets[i] == NULL) return false;
    }
    return true;
}

static bool alloc_scratch(struct data_batcher *b)
{
    const struct data_schema *schema = b->schema;
    const size_t rows = b->opts.rows_max;
    b->keys = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *b->keys);
    b->counts = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *b->counts);
    b->totals = mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *b->totals);
    b->uniques = mem_alloc_array(MEM_DATA, schema->tables_count, sizeof *b->uniques);
    b->parts = mem_alloc_array(MEM_DATA, b->parts_max, sizeof *b->parts);
    b->runs = mem_alloc_array(MEM_DATA, (size_t)schema->ids_count * b->parts_max, sizeof *b->runs);
    b->runs_first = mem_alloc_array(MEM_DATA, schema->tables_count + 1, sizeof *b->runs_first);
    b->broken = mem_alloc_array(MEM_DATA, rows, sizeof *b->broken);
    b->parsers = mem_alloc_array(MEM_DATA, TEAM_THREADS_MAX, sizeof *b->parsers);
    if (b->keys == NULL || b->counts == NULL || b->totals == NULL || b->uniques == NULL ||
        b->parts == NULL || b->runs == NULL || b->runs_first == NULL || b->broken == NULL ||
        b->parsers == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        if (schema->ids[i].single) {
            b->keys[i] = mem_alloc_array(MEM_DATA, rows, sizeof(uint64_t));
        } else {
            b->counts[i] = mem_alloc_array(MEM_DATA, rows, sizeof(uint32_t));
        }
        if (b->keys[i] == NULL && b->counts[i] == NULL) return false;
    }
    for (uint32_t t = 0; t < schema->tables_count; t++) {
        b->runs_first[t + 1] = b->runs_first[t];
        for (uint32_t i = 0; i < schema->ids_count; i++) {
            if (schema->ids[i].table == t) b->runs_first[t + 1]++;
        }
    }
    for (uint32_t p = 0; p < b->parts_max; p++) {
        b->parts[p].ragged =
            mem_alloc_array(MEM_DATA, schema->ids_count, sizeof *b->parts[p].ragged);
        if (b->parts[p].ragged == NULL) return false;
    }
    return true;
}

int data_batcher_create(const struct data_batcher_opts *opts, struct data_batcher **batcher_out,
                        struct err *err)
{
    ASSERT(opts->rows_max >= 1 && opts->rows_max <= DATA_BATCH_MAX);
    struct data_batcher *b = mem_alloc(MEM_DATA, sizeof *b);
    if (b == NULL) return no_memory(err);
    b->opts = *opts;
    b->schema = data_spec_schema(opts->spec);
    b->parts_max = (opts->rows_max + DATA_PART_ROWS - 1) / DATA_PART_ROWS;
    int rc = 0;
    if (!alloc_set(b, &b->sets[0]) || !alloc_set(b, &b->sets[1]) || !alloc_scratch(b)) {
        rc = no_memory(err);
    }
    for (uint32_t i = 0; rc == 0 && i < b->schema->tables_count; i++) {
        rc = data_unique_init(&b->uniques[i], b->schema->tables[i].rows, err);
    }
    if (rc != 0) {
        data_batcher_destroy(b);
        return rc;
    }
    *batcher_out = b;
    return 0;
}

static void free_set(const struct data_schema *schema, struct set *set)
{
    for (uint32_t i = 0; set->dense != NULL && i < schema->dense_count; i++)
        mem_free(set->dense[i]);
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        if (set->offsets != NULL) mem_free(set->offsets[i]);
        if (set->weights != NULL) mem_free(set->weights[i]);
    }
    for (uint32_t i = 0; set->uniques != NULL && i < schema->tables_count; i++) {
        data_unique_out_fini(&set->uniques[i]);
    }
    mem_free(set->label);
    mem_free(set->weight);
    mem_free(set->group);
    mem_free(set->dense);
    mem_free(set->ids);
    mem_free(set->offsets);
    mem_free(set->weights);
    mem_free(set->weights_capacity);
    mem_free(set->tables);
    mem_free(set->uniques);
}

static void free_part(const struct data_schema *schema, struct part *part)
{
    for (uint32_t i = 0; part->ragged != NULL && i < schema->ids_count; i++) {
        mem_free(part->ragged[i].keys);
        mem_free(part->ragged[i].weights);
    }
    mem_free(part->ragged);
    mem_free(part->crossing.values);
}

void data_batcher_destroy(struct data_batcher *b)
{
    if (b == NULL) return;
    const struct data_schema *schema = b->schema;
    free_set(schema, &b->sets[0]);
    free_set(schema, &b->sets[1]);
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        if (b->keys != NULL) mem_free(b->keys[i]);
        if (b->counts != NULL) mem_free(b->counts[i]);
    }
    for (uint32_t p = 0; b->parts != NULL && p < b->parts_max; p++) free_part(schema, &b->parts[p]);
    for (uint32_t i = 0; b->uniques != NULL && i < schema->tables_count; i++) {
        data_unique_fini(&b->uniques[i]);
    }
    for (uint32_t i = 0; i < b->parsers_count; i++) data_parser_destroy(b->parsers[i]);
    mem_free(b->keys);
    mem_free(b->counts);
    mem_free(b->totals);
    mem_free(b->uniques);
    mem_free(b->parts);
    mem_free(b->runs);
    mem_free(b->runs_first);
    mem_free(b->broken);
    mem_free(b->parsers);
    mem_free(b);
}

/* ---- decode ---- */

/* Records lie in the order of the files, not of the batch: the first lines of those to come are
 * fetched meanwhile. */
static void prefetch(const struct data_batcher *b, uint32_t row)
{
    if (row >= b->count) return;
    const uint8_t *bytes = b->pieces[b->index != NULL ? b->index[row] : row].bytes;
    for (int line = 0; line < 4; line++) __builtin_prefetch(bytes + 64 * line);
}

static void decode_part(void *ctx, uint32_t p, uint32_t thread)
{
    struct data_batcher *b = ctx;
    struct part *part = &b->parts[p];
    struct data_parser *parser = b->parsers[thread];
    const struct data_rows_out out = {.label = b->set->label,
                                      .weight = b->set->weight,
                                      .group = b->set->group,
                                      .dense = b->set->dense,
                                      .keys = b->keys,
                                      .counts = b->counts};
    const uint32_t first = p * DATA_PART_ROWS;
    const uint32_t last = first + DATA_PART_ROWS < b->count ? first + DATA_PART_ROWS : b->count;
    part->rows = 0;
    part->broken_count = 0;
    part->rc = 0;
    for (uint32_t i = 0; i < b->schema->ids_count; i++) part->ragged[i].used = 0;
    for (uint32_t i = first; i < last && part->rc == 0; i++) {
        const uint32_t at = b->index != NULL ? b->index[i] : i;
        const struct data_raw *raws = NULL;
        prefetch(b, i + 4);
        int rc = data_parse(parser, b->pieces[at].bytes, b->pieces[at].count, &raws);
        if (rc == 0) {
            rc = data_decode_row(b->opts.spec, raws, b->opts.label_optional, &out,
                                 first + part->rows, part->ragged, &part->crossing);
        }
        if (rc == 0) {
            part->rows++;
        } else if (rc > 0) {
            part->broken[part->broken_count++] =
                (struct data_broken){.index = at, .fault = (enum data_fault)(rc - 1)};
        } else {
            part->rc = rc;
        }
    }
}

static int need_parsers(struct data_batcher *b, uint32_t threads, struct err *err)
{
    ASSERT(threads <= TEAM_THREADS_MAX);
    while (b->parsers_count < threads) {
        const int rc = data_parser_create(b->opts.layout, &b->parsers[b->parsers_count], err);
        if (rc != 0) return rc;
        b->parsers_count++;
    }
    return 0;
}

/* ---- stitch ---- */

static void move_rows(void *array, size_t row_bytes, uint32_t from, uint32_t to, uint32_t count)
{
    if (array == NULL) return;
    memmove((char *)array + to * row_bytes, (char *)array + from * row_bytes, count * row_bytes);
}

/* Closes the gaps that broken rows left between the parts. */
static void close_gaps(struct data_batcher *b)
{
    uint32_t to = 0;
    for (uint32_t p = 0; p < b->parts_count; p++) {
        const uint32_t from = p * DATA_PART_ROWS;
        const uint32_t count = b->parts[p].rows;
        if (from != to) {
            move_rows(b->set->label, sizeof(float), from, to, count);
            move_rows(b->set->weight, sizeof(float), from, to, count);
            move_rows(b->set->group, sizeof(uint64_t), from, to, count);
            for (uint32_t i = 0; i < b->schema->dense_count; i++) {
                move_rows(b->set->dense[i], b->schema->dense[i].width * sizeof(float), from, to,
                          count);
            }
            for (uint32_t i = 0; i < b->schema->ids_count; i++) {
                move_rows(b->keys[i], sizeof(uint64_t), from, to, count);
                move_rows(b->counts[i], sizeof(uint32_t), from, to, count);
            }
        }
        to += count;
    }
}

static int gather_broken(struct data_batcher *b, uint32_t *broken_count_out, struct err *err)
{
    uint32_t broken = 0;
    b->rows = 0;
    for (uint32_t p = 0; p < b->parts_count; p++) {
        const struct part *part = &b->parts[p];
        if (part->rc != 0) return no_memory(err);
        for (uint32_t i = 0; i < part->broken_count; i++) b->broken[broken++] = part->broken[i];
        b->rows += part->rows;
    }
    ASSERT(b->rows + broken == b->count);
    *broken_count_out = broken;
    return 0;
}

/* How many occurrences each feature and table has; room for them. */
static int reserve(struct data_batcher *b, struct err *err)
{
    const struct data_schema *schema = b->schema;
    for (uint32_t i = 0; i < schema->ids_count; i++) {
        uint64_t total = b->rows;
        if (!schema->ids[i].single) {
            total = 0;
            for (uint32_t p = 0; p < b->parts_count; p++) total += b->parts[p].ragged[i].used;
        }
        b->totals[i] = total;
        struct set *set = b->set;
        if (schema->ids[i].weighted &&
            mem_grow(MEM_DATA, (void **)&set->weights[i], &set->weights_capacity[i], total + 1,
                     sizeof(float)) != 0) {
            return no_memory(err);
        }
    }
    for (uint32_t t = 0; t < schema->tables_count; t++) {
        uint64_t total = 0;
        for (uint32_t i = 0; i < schema->ids_count; i++) {
            if (schema->ids[i].table != t) continue;
            b->set->ids[i].occ_base = (uint32_t)total;
            total += b->totals[i];
        }
        if (total > INT32_MAX) {
            return err_set(err, SHOAL_ELIMIT, "table %s: %llu values in one batch",
                           schema->tables[t].name, (unsigned long long)total);
        }
        const int rc = data_unique_reserve(&b->uniques[t], &b->set->uniques[t], total, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* Offsets and weights of a feature, and its runs of keys. Returns how many runs. */
static uint32_t stitch_feature(struct data_batcher *b, uint32_t i, struct data_unique_run *runs)
{
    if (b->schema->ids[i].single) {
        runs[0] = (struct data_unique_run){.keys = b->keys[i], .count = b->rows};
        return 1;
    }
    uint32_t *offsets = b->set->offsets[i];
    const uint32_t *counts = b->counts[i];
    uint32_t offset = 0;
    for (uint32_t row = 0; row < b->rows; row++) {
        offsets[row] = offset;
        offset += counts[row];
    }
    offsets[b->rows] = offset;
    ASSERT(offset == b->totals[i]);
    size_t weights_used = 0;
    for (uint32_t p = 0; p < b->parts_count; p++) {
        const struct data_ragged *ragged = &b->parts[p].ragged[i];
        runs[p] = (struct data_unique_run){.keys = ragged->keys, .count = (uint32_t)ragged->used};
        if (!b->schema->ids[i].weighted || ragged->used == 0) continue;
        memcpy(b->set->weights[i] + weights_used, ragged->weights, ragged->used * sizeof(float));
        weights_used += ragged->used;
    }
    return b->parts_count;
}

static void make_table(void *ctx, uint32_t t, uint32_t thread)
{
    (void)thread;
    struct data_batcher *b = ctx;
    struct set *set = b->set;
    struct data_unique_out *out = &set->uniques[t];
    struct data_unique_run *runs = b->runs + (size_t)b->runs_first[t] * b->parts_max;
    uint32_t runs_count = 0;
    for (uint32_t i = 0; i < b->schema->ids_count; i++) {
        if (b->schema->ids[i].table == t) runs_count += stitch_feature(b, i, runs + runs_count);
    }
    data_unique_run(&b->uniques[t], runs, runs_count, out);
    set->tables[t] = (struct batch_keys){.keys = out->keys,
                                         .occ_offsets = out->occ_offsets,
                                         .occs = out->occs,
                                         .keys_count = out->keys_count,
                                         .occs_count = out->occs_count};
    for (uint32_t i = 0; i < b->schema->ids_count; i++) {
        if (b->schema->ids[i].table != t) continue;
        struct batch_ids *ids = &set->ids[i];
        ids->offsets = set->offsets[i];
        ids->weights = set->weights[i];
        ids->slots = out->slots + ids->occ_base;
        ids->count = (uint32_t)b->totals[i];
    }
}

static void publish(struct data_batcher *b)
{
    struct set *set = b->set;
    set->batch = (struct batch){.rows = b->rows,
                                .label = set->label,
                                .weight = set->weight,
                                .group = set->group,
                                .dense = (const float *const *)set->dense,
                                .ids = set->ids,
                                .tables = set->tables,
                                .dense_count = b->schema->dense_count,
                                .ids_count = b->schema->ids_count,
                                .tables_count = b->schema->tables_count};
}

int data_batcher_make(struct data_batcher *b, struct team *team, const struct data_piece *pieces,
                      const uint32_t *index, uint32_t count, const struct batch **batch_out,
                      const struct data_broken **broken_out, uint32_t *broken_count_out,
                      struct err *err)
{
    ASSERT(count <= b->opts.rows_max);
    b->pieces = pieces;
    b->index = index;
    b->count = count;
    b->parts_count = (count + DATA_PART_ROWS - 1) / DATA_PART_ROWS;
    b->set = &b->sets[b->turn];
    b->turn = 1 - b->turn;
    int rc = need_parsers(b, team_threads(team), err);
    if (rc != 0) return rc;
    team_run(team, b->parts_count, decode_part, b);
    uint32_t broken_count = 0;
    rc = gather_broken(b, &broken_count, err);
    if (rc != 0) return rc;
    if (broken_count > 0) close_gaps(b);
    rc = reserve(b, err);
    if (rc != 0) return rc;
    team_run(team, b->schema->tables_count, make_table, b);
    publish(b);
    ASSERT_SLOW(data_batch_ok(&b->set->batch, b->schema));
    *batch_out = &b->set->batch;
    *broken_out = b->broken;
    *broken_count_out = broken_count;
    return 0;
}

/* Occurrences of each key are ascending, and name that key. */
static bool table_ok(const struct batch_keys *table, uint64_t rows)
{
    if (table->occ_offsets[0] != 0) return false;
    if (table->occ_offsets[table->keys_count] != table->occs_count) return false;
    for (uint32_t slot = 0; slot < table->keys_count; slot++) {
        const uint32_t first = table->occ_offsets[slot];
        const uint32_t last = table->occ_offsets[slot + 1];
        if (first >= last || (rows != 0 && table->keys[slot] >= rows)) return false;
        for (uint32_t i = first; i < last; i++) {
            if (table->occs[i] >= table->occs_count) return false;
            if (i > first && table->occs[i - 1] >= table->occs[i]) return false;
        }
        /* In the order of their first occurrence, so none stands twice. */
        if (slot > 0 && table->occs[table->occ_offsets[slot - 1]] >= table->occs[first])
            return false;
    }
    return true;
}

static bool ids_ok(const struct batch *batch, const struct batch_ids *ids,
                   const struct batch_keys *table, const struct data_ids *schema)
{
    if ((ids->offsets == NULL) != schema->single) return false;
    if ((ids->weights != NULL) < schema->weighted) return false;
    if (ids->offsets == NULL && ids->count != batch->rows) return false;
    if (ids->offsets != NULL) {
        if (ids->offsets[0] != 0 || ids->offsets[batch->rows] != ids->count) return false;
        for (uint32_t row = 0; row < batch->rows; row++) {
            const uint32_t least = schema->padded ? 1 : 0;
            if (ids->offsets[row] + least > ids->offsets[row + 1]) return false;
        }
    }
    for (uint32_t i = 0; i < ids->count; i++) {
        const uint32_t slot = ids->slots[i];
        if (slot >= table->keys_count) return false;
        const uint32_t *from = table->occs + table->occ_offsets[slot];
        const uint32_t *to = table->occs + table->occ_offsets[slot + 1];
        const uint32_t occ = ids->occ_base + i;
        while (to - from > 1) { /* by halving: they ascend */
            const uint32_t *middle = from + (to - from) / 2;
            if (*middle <= occ) {
                from = middle;
            } else {
                to = middle;
            }
        }
        if (*from != occ) return false;
    }
    return true;
}

bool data_batch_ok(const struct batch *batch, const struct data_schema *schema)
{
    if (batch->tables_count != schema->tables_count || batch->ids_count != schema->ids_count ||
        batch->dense_count != schema->dense_count) {
        return false;
    }
    for (uint32_t t = 0; t < batch->tables_count; t++) {
        if (!table_ok(&batch->tables[t], schema->tables[t].rows)) return false;
    }
    for (uint32_t i = 0; i < batch->ids_count; i++) {
        const struct batch_keys *table = &batch->tables[schema->ids[i].table];
        if (!ids_ok(batch, &batch->ids[i], table, &schema->ids[i])) return false;
    }
    return true;
}
