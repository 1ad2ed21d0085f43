#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "io/safetensors.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_layout.h"
#include "train/checkpoint_manifest.h"

/* Rows are read from the cut and written in pieces of this size (or one row, if that is larger). */
#define PIECE_BYTES ((size_t)1 << 20)

struct item { /* a shard to write */
    uint32_t table;
    uint32_t shard;
};

/* The writer walks over items; within an item over its tensors; within a tensor over its rows.
 *
 *     file 0: items 0 .. file_end      each item: keys? | value | slots | steps? | counts?
 *                 ^item                           ^tensor         within it: ^row
 */
struct checkpoint_writer {
    struct store *store;
    struct store_cut *cut;
    char *folder;    /* .tmp-ckpt-STEP */
    uint32_t number; /* of this writer */
    struct checkpoint described;
    struct item *items;
    uint32_t items_count;

    struct safetensors_writer *out; /* NULL between files */
    uint32_t file_end;              /* past the last item of the open file */
    uint32_t item;
    uint32_t tensor;
    uint64_t row;
    uint8_t *piece;
    size_t piece_bytes;
};

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory to write a checkpoint");
}

static const struct checkpoint_table *table_of(const struct checkpoint_writer *writer,
                                               const struct item *item)
{
    return &writer->described.tables[item->table];
}

/* The states are taken at the moment of the cut: the row counts that file headers need, and what
 * each shard had applied. */
static int collect_items(struct checkpoint_writer *writer,
                         const struct checkpoint_writer_opts *opts, struct err *err)
{
    size_t capacity = 0;
    for (uint32_t table = 0; table < writer->described.tables_count; table++) {
        struct checkpoint_table *described = &writer->described.tables[table];
        if (described->kind == STORE_DYNAMIC) described->rows = 0;
        for (uint32_t shard = 0; shard < described->shards_count; shard++) {
            if (opts->owns != NULL && !opts->owns(opts->ctx, table, shard)) continue;
            const struct store_shard state = store_shard_state(opts->store, table, shard);
            const int rc = checkpoint_shard_copy(&described->shards[shard], &state, 0, err);
            if (rc != 0) return rc;
            if (described->kind == STORE_DYNAMIC) described->rows += state.rows;
            void *items = writer->items;
            if (mem_grow(MEM_TRAIN, &items, &capacity, writer->items_count + 1,
                         sizeof *writer->items) != 0) {
                return no_memory(err);
            }
            writer->items = items;
            writer->items[writer->items_count++] = (struct item){table, shard};
        }
    }
    return 0;
}

static int alloc_piece(struct checkpoint_writer *writer, struct err *err)
{
    writer->piece_bytes = PIECE_BYTES;
    for (uint32_t i = 0; i < writer->described.tables_count; i++) {
        const struct checkpoint_table *table = &writer->described.tables[i];
        const size_t row_bytes = table->kind == STORE_DENSE ? 8 : (size_t)table->cols * 4 + 8;
        if (row_bytes > writer->piece_bytes) writer->piece_bytes = row_bytes;
    }
    writer->piece = mem_alloc(MEM_TRAIN, writer->piece_bytes);
    return writer->piece == NULL ? no_memory(err) : 0;
}

int checkpoint_writer_open(const struct checkpoint_writer_opts *opts,
                           struct checkpoint_writer **writer_out, struct err *err)
{
    struct checkpoint_writer *writer = mem_alloc(MEM_TRAIN, sizeof *writer);
    if (writer == NULL) return no_memory(err);
    writer->store = opts->store;
    writer->number = opts->writer;
    int rc = checkpoint_folder_temporary(opts->model_dir, opts->step, &writer->folder, err);
    if (rc == 0) rc = checkpoint_describe(opts->store, &writer->described, err);
    if (rc == 0) rc = store_cut_begin(opts->store, &writer->cut, err);
    if (rc == 0) rc = collect_items(writer, opts, err);
    if (rc == 0) rc = alloc_piece(writer, err);
    if (rc != 0) {
        checkpoint_writer_destroy(writer);
        return rc;
    }
    *writer_out = writer;
    return 0;
}

static uint64_t item_rows(const struct checkpoint_writer *writer, const struct item *item)
{
    return table_of(writer, item)->shards[item->shard].state.rows;
}

/* How many items from `first` on go into one file: until it is large enough, at least one. */
static uint32_t plan_file(const struct checkpoint_writer *writer, uint32_t first)
{
    uint64_t bytes = 0;
    uint32_t end = first;
    while (end < writer->items_count && bytes < CHECKPOINT_FILE_BYTES) {
        const struct item *item = &writer->items[end++];
        struct layout_tensor tensor;
        for (uint32_t i = 0; layout_tensor_at(table_of(writer, item), i, &tensor); i++) {
            bytes += item_rows(writer, item) * tensor.row_bytes;
        }
    }
    return end;
}

static int add_file_entry(struct checkpoint_writer *writer, const char *name, struct err *err)
{
    struct checkpoint *described = &writer->described;
    if (described->files_count == CHECKPOINT_FILES_MAX) {
        return err_set(err, SHOAL_ELIMIT, "more than %u files", CHECKPOINT_FILES_MAX);
    }
    struct checkpoint_file *files =
        mem_realloc(MEM_TRAIN, described->files, (described->files_count + 1) * sizeof *files);
    if (files == NULL) return no_memory(err);
    described->files = files;
    files[described->files_count].name = mem_strdup(MEM_TRAIN, name);
    if (files[described->files_count].name == NULL) return no_memory(err);
    described->files_count++;
    return 0;
}

static int open_file(struct checkpoint_writer *writer, struct err *err)
{
    char name[64];
    snprintf(name, sizeof name, "part-%u-%u.safetensors", writer->number,
             writer->described.files_count);
    struct str path = {0};
    str_printf(&path, "%s/%s", writer->folder, name);
    writer->file_end = plan_file(writer, writer->item);
    struct layout_list list = {0};
    int rc = path.failed ? no_memory(err) : 0;
    for (uint32_t i = writer->item; rc == 0 && i < writer->file_end; i++) {
        const struct item *item = &writer->items[i];
        const struct checkpoint_table *table = table_of(writer, item);
        rc = layout_list_add(&list, table, item->shard, table->shards_count,
                             item_rows(writer, item), err);
    }
    if (rc == 0) rc = add_file_entry(writer, name, err);
    if (rc == 0) {
        rc = safetensors_writer_open(path.text, list.tensors, list.count, NULL, &writer->out, err);
    }
    layout_list_fini(&list);
    str_fini(&path);
    return rc;
}

static int close_file(struct checkpoint_writer *writer, struct err *err)
{
    struct checkpoint_file *file = &writer->described.files[writer->described.files_count - 1];
    struct safetensors_writer *out = writer->out;
    writer->out = NULL; /* closing frees it in any case */
    return safetensors_writer_close(out, &file->bytes, &file->crc32c, err);
}

/* The next rows of the tensor we are in. */
static int write_piece(struct checkpoint_writer *writer, const struct item *item,
                       const struct layout_tensor *tensor, uint64_t *written, struct err *err)
{
    const uint64_t left = item_rows(writer, item) - writer->row;
    const uint64_t fit = writer->piece_bytes / tensor->row_bytes;
    ASSERT(fit > 0 && left > 0);
    const uint32_t count = (uint32_t)(left < fit ? left : fit);
    struct store_cut_read read = {.first = writer->row, .count = count};
    switch (tensor->role) {
    case LAYOUT_KEYS: read.keys = (uint64_t *)(void *)writer->piece; break;
    case LAYOUT_PART: read.parts[tensor->part] = (float *)(void *)writer->piece; break;
    case LAYOUT_STEPS: read.steps = (uint32_t *)(void *)writer->piece; break;
    case LAYOUT_COUNTS: read.counts = (uint32_t *)(void *)writer->piece; break;
    }
    const int rc = store_cut_read(writer->cut, &read, err);
    if (rc != 0) return rc;
    writer->row += count;
    *written += (uint64_t)count * tensor->row_bytes;
    return safetensors_writer_write(writer->out, writer->piece, (size_t)count * tensor->row_bytes,
                                    err);
}

static int begin_item(struct checkpoint_writer *writer, struct item *item, struct err *err)
{
    struct checkpoint_table *table = &writer->described.tables[item->table];
    struct checkpoint_shard *shard = &table->shards[item->shard];
    struct store_shard cut;
    const int rc = store_cut_shard(writer->cut, item->table, item->shard, &cut, err);
    ASSERT(rc != 0 || cut.rows == shard->state.rows);
    shard->file = writer->described.files_count - 1;
    return rc;
}

/* One move: open a file, write a piece, or go on to the next tensor, item or file. */
static int advance(struct checkpoint_writer *writer, uint64_t *written, struct err *err)
{
    int rc = 0;
    if (writer->out == NULL) rc = open_file(writer, err);
    if (rc != 0) return rc;
    struct item *item = &writer->items[writer->item];
    if (writer->tensor == 0 && writer->row == 0) rc = begin_item(writer, item, err);
    struct layout_tensor tensor;
    const bool has_tensor = layout_tensor_at(table_of(writer, item), writer->tensor, &tensor);
    if (rc == 0 && has_tensor && writer->row < item_rows(writer, item)) {
        return write_piece(writer, item, &tensor, written, err);
    }
    if (rc != 0) return rc;
    writer->row = 0;
    if (has_tensor) {
        writer->tensor++;
        return 0;
    }
    writer->tensor = 0;
    writer->item++;
    return writer->item == writer->file_end ? close_file(writer, err) : 0;
}

int checkpoint_writer_step(struct checkpoint_writer *writer, uint64_t bytes_max, bool *done_out,
                           struct err *err)
{
    uint64_t written = 0;
    int rc = 0;
    while (rc == 0 && writer->item < writer->items_count && written < bytes_max) {
        rc = advance(writer, &written, err);
    }
    if (rc == 0) *done_out = writer->item == writer->items_count;
    return rc;
}

int checkpoint_writer_finish(struct checkpoint_writer *writer, struct str *part, struct err *err)
{
    ASSERT(writer->item == writer->items_count);
    ASSERT(writer->out == NULL);
    checkpoint_part_write(&writer->described, part);
    return part->failed ? no_memory(err) : 0;
}

void checkpoint_writer_destroy(struct checkpoint_writer *writer)
{
    if (writer == NULL) return;
    safetensors_writer_abandon(writer->out);
    store_cut_end(writer->cut);
    checkpoint_fini(&writer->described);
    mem_free(writer->items);
    mem_free(writer->piece);
    mem_free(writer->folder);
    mem_free(writer);
}
