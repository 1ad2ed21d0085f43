#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_layout.h"
#include "train/checkpoint_manifest.h"

/* Rows are put together in a buffer of about this size before they are written. */
#define BUFFER_BYTES ((size_t)1 << 20)

/* Putting the shards of a table together:
 *   dense    one after the other
 *   fixed    row r is row r / S of shard r % S
 *   dynamic  merged by key: the next row is the one with the smallest key among the shards' heads.
 *            Every tensor of the table goes by the order of the keys, so it is worked out once: for
 *            each row of the whole, the shard that it comes from (rows of a shard keep their order). */
struct export
{
    const struct checkpoint *checkpoint;
    struct checkpoint_files files;
    struct safetensors_writer *out;
    struct str name;
    uint8_t *buffer;
};

struct pieces { /* one tensor of a table: its bytes in each shard */
    const uint8_t *shards[STORE_SHARDS_MAX];
};

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory to export a checkpoint");
}

static int find_pieces(struct export *export, const struct checkpoint_table *table,
                       const struct layout_tensor *tensor, struct pieces *pieces, struct err *err)
{
    for (uint32_t s = 0; s < table->shards_count; s++) {
        const struct checkpoint_shard *shard = &table->shards[s];
        const struct safetensors *file = NULL;
        int rc = checkpoint_files_get(&export->files, shard->file, &file, err);
        if (rc != 0) return rc;
        layout_tensor_name(table, tensor, s, table->shards_count, &export->name);
        if (export->name.failed) return no_memory(err);
        struct safetensors_tensor want;
        layout_tensor_shape(table, tensor, shard->state.rows, table->shards_count, &want);
        const struct safetensors_tensor *got = safetensors_find(file, export->name.text);
        if (got == NULL || got->type != want.type || got->bytes_count != want.bytes_count) {
            return err_set(err, SHOAL_ECORRUPT, "%s/%s has no tensor %s as the manifest says",
                           export->checkpoint->folder, export->checkpoint->files[shard->file].name,
                           export->name.text);
        }
        pieces->shards[s] = got->bytes;
    }
    return 0;
}

/* For each row of a dynamic table the shard it comes from. Caller owns *order_out. */
static int merge_keys(struct export *export, const struct checkpoint_table *table,
                      uint16_t **order_out, struct err *err)
{
    static_assert(STORE_SHARDS_MAX <= UINT16_MAX, "a shard's number must fit");
    const struct layout_tensor keys = {LAYOUT_KEYS, 0, SAFETENSORS_I64, 8};
    struct pieces pieces;
    int rc = find_pieces(export, table, &keys, &pieces, err);
    if (rc != 0) return rc;
    uint16_t *order = mem_alloc_array(MEM_TRAIN, table->rows, sizeof *order);
    if (order == NULL) return no_memory(err);
    uint64_t taken[STORE_SHARDS_MAX] = {0};
    for (uint64_t row = 0; row < table->rows; row++) {
        uint32_t best = UINT32_MAX;
        int64_t best_key = 0;
        for (uint32_t s = 0; s < table->shards_count; s++) {
            int64_t key = 0;
            if (taken[s] == table->shards[s].state.rows) continue;
            memcpy(&key, pieces.shards[s] + taken[s] * sizeof key, sizeof key);
            if (best == UINT32_MAX || key < best_key) {
                best = s;
                best_key = key;
            }
        }
        ASSERT(best != UINT32_MAX); /* rows is the sum over the shards */
        taken[best]++;
        order[row] = (uint16_t)best;
    }
    *order_out = order;
    return 0;
}

/* Rows in the order of `order`, or by turns where it is NULL. */
static int write_rows(struct export *export, const struct checkpoint_table *table,
                      const struct layout_tensor *tensor, const struct pieces *pieces,
                      const uint16_t *order, struct err *err)
{
    uint64_t taken[STORE_SHARDS_MAX] = {0};
    const size_t row_bytes = tensor->row_bytes;
    size_t used = 0;
    int rc = 0;
    for (uint64_t row = 0; rc == 0 && row < table->rows; row++) {
        const uint32_t s = order != NULL ? order[row] : (uint32_t)(row % table->shards_count);
        const uint8_t *from = pieces->shards[s] + taken[s]++ * row_bytes;
        if (used + row_bytes > BUFFER_BYTES) {
            rc = safetensors_writer_write(export->out, export->buffer, used, err);
            used = 0;
        }
        if (rc == 0 && row_bytes > BUFFER_BYTES) {
            rc = safetensors_writer_write(export->out, from, row_bytes, err);
        } else {
            memcpy(export->buffer + used, from, row_bytes);
            used += row_bytes;
        }
    }
    return rc == 0 ? safetensors_writer_write(export->out, export->buffer, used, err) : rc;
}

static int write_tensor(struct export *export, const struct checkpoint_table *table,
                        const struct layout_tensor *tensor, const uint16_t *order, struct err *err)
{
    struct pieces pieces;
    int rc = find_pieces(export, table, tensor, &pieces, err);
    if (rc != 0 || table->kind != STORE_DENSE) {
        return rc != 0 ? rc : write_rows(export, table, tensor, &pieces, order, err);
    }
    for (uint32_t s = 0; rc == 0 && s < table->shards_count; s++) {
        rc = safetensors_writer_write(export->out, pieces.shards[s],
                                      table->shards[s].state.rows * tensor->row_bytes, err);
    }
    return rc;
}

static int write_table(struct export *export, const struct checkpoint_table *table, struct err *err)
{
    uint16_t *order = NULL;
    int rc = table->kind == STORE_DYNAMIC ? merge_keys(export, table, &order, err) : 0;
    struct layout_tensor tensor;
    for (uint32_t t = 0; rc == 0 && layout_tensor_at(table, t, &tensor); t++) {
        rc = write_tensor(export, table, &tensor, order, err);
    }
    mem_free(order);
    return rc;
}

/* Declares every tensor of every table, whole, and opens the file. */
static int open_out(struct export *export, const char *path, struct err *err)
{
    const struct checkpoint *checkpoint = export->checkpoint;
    struct layout_list list = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        const uint64_t rows = table->kind == STORE_DENSE ? table->rows * table->cols : table->rows;
        rc = layout_list_add(&list, table, 0, 1, rows, err);
    }
    char step[24];
    snprintf(step, sizeof step, "%" PRIu64, checkpoint->step);
    const char *const metadata[] = {"step", step, NULL};
    if (rc == 0) {
        rc = safetensors_writer_open(path, list.tensors, list.count, metadata, &export->out, err);
    }
    layout_list_fini(&list);
    return rc;
}

static int write_all(struct export *export, const char *path, struct err *err)
{
    int rc = open_out(export, path, err);
    for (uint32_t i = 0; rc == 0 && i < export->checkpoint->tables_count; i++) {
        rc = write_table(export, &export->checkpoint->tables[i], err);
    }
    struct safetensors_writer *out = export->out;
    export->out = NULL;
    uint64_t bytes = 0;
    uint32_t crc = 0;
    if (rc == 0) return safetensors_writer_close(out, &bytes, &crc, err);
    safetensors_writer_abandon(out);
    return rc;
}

/* Beside, then renamed: a half-written file never has the name that was asked for. */
static int export_to(struct export *export, const char *path, struct err *err)
{
    struct str beside = {0};
    str_printf(&beside, "%s.tmp", path);
    int rc = beside.failed ? no_memory(err) : write_all(export, beside.text, err);
    if (rc == 0) rc = io_rename(beside.text, path, err);
    if (rc != 0 && !beside.failed) io_remove_tree(beside.text, NULL);
    str_fini(&beside);
    return rc;
}

int checkpoint_export(const char *folder, const char *path, struct err *err)
{
    struct checkpoint *checkpoint = NULL;
    struct export export = {0};
    int rc = checkpoint_open(folder, &checkpoint, err);
    if (rc == 0) rc = checkpoint_verify(checkpoint, err);
    if (rc == 0) {
        export.checkpoint = checkpoint;
        rc = checkpoint_files_init(&export.files, checkpoint, err);
    }
    export.buffer = mem_alloc(MEM_TRAIN, BUFFER_BYTES);
    if (rc == 0 && export.buffer == NULL) rc = no_memory(err);
    if (rc == 0) rc = export_to(&export, path, err);
    mem_free(export.buffer);
    str_fini(&export.name);
    checkpoint_files_fini(&export.files);
    checkpoint_close(checkpoint);
    return rc;
}
