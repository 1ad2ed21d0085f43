#include "train/checkpoint_load.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_layout.h"
#include "train/checkpoint_manifest.h"

/* Tensors are copied through a buffer of about this size: mapped files promise no alignment. */
#define BUFFER_BYTES ((size_t)4 << 20)

/* Tensors of one shard (or of a whole table: shards 1) as they lie in a file, to be put into a table
 * of the store. */
struct slice {
    const struct safetensors *file;
    const char *file_name;
    const struct checkpoint_table *table; /* kind, cols and the names of the parts in the file */
    uint32_t into;                        /* the store's table */
    uint32_t shard;
    uint32_t shards;
    uint64_t rows;  /* dense: elements */
    uint64_t first; /* dense: first element */
    bool must_have; /* every tensor must be there */
    int wrong;      /* the code for what does not fit: SHOAL_ECORRUPT or SHOAL_EMISMATCH */
    struct checkpoint_init_report *report; /* NULL: none */
};

/* A tensor that was found: where it is in the file and where it goes. */
struct found {
    struct layout_tensor tensor;
    const uint8_t *bytes;
    uint32_t store_part;
};

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory to load a checkpoint");
}

static void list_add(struct str *list, const char *name)
{
    if (list->bytes > 0) str_add(list, ", ");
    str_add(list, name);
}

/* Does the store keep what this tensor holds, and as which part? */
static bool has_place(const struct slice *slice, const struct store *store,
                      const struct layout_tensor *tensor, uint32_t *part_out)
{
    const struct store_table_info info = store_table_info(store, slice->into);
    if (tensor->role == LAYOUT_STEPS) return info.has_steps;
    if (tensor->role == LAYOUT_COUNTS) return info.has_counts;
    if (tensor->role == LAYOUT_KEYS) return true;
    for (uint32_t part = 0; part < info.parts; part++) {
        const char *name = store_part_name(store, slice->into, part);
        if (strcmp(name, slice->table->parts[tensor->part]) == 0) {
            *part_out = part;
            return true;
        }
    }
    return false;
}

static int wrong_shape(const struct slice *slice, const struct safetensors_tensor *got,
                       const struct safetensors_tensor *want, struct err *err)
{
    struct str text = {0};
    str_printf(&text, "%s: tensor %s is %s", slice->file_name, got->name,
               safetensors_type_name(got->type));
    for (uint32_t i = 0; i < got->dims_count; i++) str_printf(&text, " x %" PRIu64, got->dims[i]);
    str_printf(&text, ", the model wants %s", safetensors_type_name(want->type));
    for (uint32_t i = 0; i < want->dims_count; i++) {
        str_printf(&text, " x %" PRIu64, want->dims[i]);
    }
    const int rc = text.failed ? no_memory(err) : err_set(err, slice->wrong, "%s", text.text);
    str_fini(&text);
    return rc;
}

/* Lists of one row (a bias) may have one dimension or two. */
static bool shapes_fit(const struct safetensors_tensor *got, const struct safetensors_tensor *want)
{
    if (got->type != want->type || got->bytes_count != want->bytes_count) return false;
    const uint32_t got_extra = got->dims_count == 2 && got->dims[0] == 1 ? 1 : 0;
    const uint32_t want_extra = want->dims_count == 2 && want->dims[0] == 1 ? 1 : 0;
    const uint32_t count = want->dims_count - want_extra;
    return got->dims_count - got_extra == count &&
           memcmp(got->dims + got_extra, want->dims + want_extra, count * sizeof *got->dims) == 0;
}

/* The index-th tensor of the slice. *has_out: it is there, fits, and the store has a place for it. */
static int find_tensor(const struct slice *slice, const struct store *store,
                       const struct layout_tensor *tensor, struct str *name, struct found *found,
                       bool *has_out, struct err *err)
{
    *has_out = false;
    layout_tensor_name(slice->table, tensor, slice->shard, slice->shards, name);
    if (name->failed) return no_memory(err);
    const struct safetensors_tensor *got = safetensors_find(slice->file, name->text);
    if (got == NULL) {
        if (!slice->must_have) return 0;
        return err_set(err, slice->wrong, "%s has no tensor %s", slice->file_name, name->text);
    }
    uint32_t part = 0;
    if (!has_place(slice, store, tensor, &part)) {
        ASSERT(slice->report != NULL); /* a checkpoint's parts have been compared */
        layout_tensor_name(slice->table, tensor, 0, 1, name);
        if (slice->shard == 0) list_add(&slice->report->unknown, name->text);
        return name->failed ? no_memory(err) : 0;
    }
    struct safetensors_tensor want;
    layout_tensor_shape(slice->table, tensor, slice->rows, slice->shards, &want);
    if (!shapes_fit(got, &want)) return wrong_shape(slice, got, &want, err);
    *found = (struct found){*tensor, got->bytes, part};
    *has_out = true;
    return 0;
}

static int assign_dense(const struct slice *slice, struct store *store, const struct found *found,
                        float *buffer, struct err *err)
{
    const uint64_t fit = BUFFER_BYTES / sizeof(float);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < slice->rows;) {
        const uint64_t count = slice->rows - done < fit ? slice->rows - done : fit;
        memcpy(buffer, found->bytes + done * sizeof(float), count * sizeof(float));
        rc = store_assign_dense(store, slice->into, found->store_part, slice->first + done, count,
                                buffer, err);
        done += count;
    }
    return rc;
}

/* The keys of rows first .. first + count of the slice. */
static int fill_keys(const struct slice *slice, const struct found *keys, uint64_t first,
                     uint32_t count, uint64_t *out, struct err *err)
{
    if (slice->table->kind == STORE_FIXED) {
        for (uint32_t i = 0; i < count; i++) {
            out[i] = slice->shard + (first + i) * slice->shards;
        }
        return 0;
    }
    memcpy(out, keys->bytes + first * sizeof *out, count * sizeof *out);
    for (uint32_t i = 1; i < count; i++) {
        if ((int64_t)out[i] <= (int64_t)out[i - 1]) {
            return err_set(err, slice->wrong, "%s: keys of %s are not ascending at row %" PRIu64,
                           slice->file_name, slice->table->name, first + i);
        }
    }
    return 0;
}

/* Points the request at its own stretches of the buffer and fills them from the file. */
static void fill_rows(const struct found *found, uint32_t found_count, uint64_t first,
                      uint32_t count, uint8_t *buffer, struct store_rows *rows)
{
    for (uint32_t i = 0; i < found_count; i++) {
        const uint32_t row_bytes = found[i].tensor.row_bytes;
        if (found[i].tensor.role == LAYOUT_KEYS) continue;
        memcpy(buffer, found[i].bytes + first * row_bytes, (size_t)count * row_bytes);
        switch (found[i].tensor.role) {
        case LAYOUT_PART: rows->parts[found[i].store_part] = (float *)(void *)buffer; break;
        case LAYOUT_STEPS: rows->steps = (uint32_t *)(void *)buffer; break;
        case LAYOUT_COUNTS: rows->counts = (uint32_t *)(void *)buffer; break;
        case LAYOUT_KEYS: break;
        }
        buffer += (size_t)count * row_bytes;
    }
}

static int assign_rows(const struct slice *slice, struct store *store, const struct found *found,
                       uint32_t found_count, struct err *err)
{
    size_t row_bytes = sizeof(uint64_t);
    for (uint32_t i = 0; i < found_count; i++) row_bytes += found[i].tensor.row_bytes;
    const uint32_t fit = (uint32_t)(BUFFER_BYTES / row_bytes == 0 ? 1 : BUFFER_BYTES / row_bytes);
    uint8_t *buffer = mem_alloc_array(MEM_TRAIN, fit, row_bytes);
    if (buffer == NULL) return no_memory(err);
    uint64_t *keys = (uint64_t *)(void *)buffer;
    int rc = 0;
    for (uint64_t first = 0; rc == 0 && first < slice->rows;) {
        const uint64_t left = slice->rows - first;
        const uint32_t count = left < fit ? (uint32_t)left : fit;
        struct store_rows rows = {.table = slice->into, .count = count, .keys = keys};
        rc = fill_keys(slice, found, first, count, keys, err);
        fill_rows(found, found_count, first, count, (uint8_t *)(keys + count), &rows);
        if (rc == 0) rc = store_assign_rows(store, &rows, err);
        first += count;
    }
    mem_free(buffer);
    return rc;
}

static int load_found(const struct slice *slice, struct store *store, const struct found *found,
                      uint32_t found_count, struct err *err)
{
    if (slice->table->kind != STORE_DENSE) {
        return assign_rows(slice, store, found, found_count, err);
    }
    float *buffer = mem_alloc(MEM_TRAIN, BUFFER_BYTES);
    if (buffer == NULL) return no_memory(err);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < found_count; i++) {
        rc = assign_dense(slice, store, &found[i], buffer, err);
    }
    mem_free(buffer);
    return rc;
}

/* *loaded_out: tensors taken over. */
static int load_slice(const struct slice *slice, struct store *store, uint32_t *loaded_out,
                      struct err *err)
{
    struct found found[LAYOUT_TENSORS_MAX];
    uint32_t count = 0;
    struct str name = {0};
    struct layout_tensor tensor;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && layout_tensor_at(slice->table, i, &tensor); i++) {
        bool has = false;
        rc = find_tensor(slice, store, &tensor, &name, &found[count], &has, err);
        count += has;
    }
    str_fini(&name);
    if (rc == 0 && count > 0) rc = load_found(slice, store, found, count, err);
    if (rc == 0) *loaded_out = count;
    return rc;
}

/* ---- Checkpoints -------------------------------------------------------------------------------- */

/* `like` has everything but file and shard. *loaded: tensors, counted once for all their shards. */
static int load_shards(struct checkpoint_files *files, const struct slice *like,
                       struct store *store, uint32_t *loaded, struct err *err)
{
    uint32_t in_shard = 0;
    for (uint32_t s = 0; s < like->table->shards_count; s++) {
        const struct checkpoint_shard *shard = &like->table->shards[s];
        struct slice slice = *like;
        int rc = checkpoint_files_get(files, shard->file, &slice.file, err);
        if (rc != 0) return rc;
        slice.file_name = files->path.text;
        slice.shard = s;
        slice.shards = like->table->shards_count;
        slice.rows = shard->state.rows;
        slice.first = shard->state.first;
        rc = load_slice(&slice, store, &in_shard, err);
        if (rc != 0) return rc;
        if (s == 0) *loaded += in_shard;
    }
    return 0;
}

int checkpoint_load_tables(const struct checkpoint *checkpoint, struct store *store,
                           struct err *err)
{
    struct checkpoint_files files;
    uint32_t loaded = 0;
    int rc = checkpoint_files_init(&files, checkpoint, err);
    for (uint32_t i = 0; rc == 0 && i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        struct slice like = {.table = table, .must_have = true, .wrong = SHOAL_ECORRUPT};
        rc = store_table_find(store, table->name, &like.into, err);
        if (rc == 0) rc = load_shards(&files, &like, store, &loaded, err);
        for (uint32_t s = 0; rc == 0 && s < table->shards_count; s++) {
            rc = store_shard_restore(store, like.into, s, &table->shards[s].state, err);
        }
    }
    checkpoint_files_fini(&files);
    return rc;
}

/* ---- train.init_from ---------------------------------------------------------------------------- */

void checkpoint_init_report_fini(struct checkpoint_init_report *report)
{
    str_fini(&report->unknown);
    str_fini(&report->missing);
    report->loaded = 0;
}

static int init_from_saved_table(struct checkpoint_files *files,
                                 const struct checkpoint_table *saved, struct store *store,
                                 struct checkpoint_init_report *report, struct err *err)
{
    struct slice like = {
        .table = saved, .must_have = true, .wrong = SHOAL_EMISMATCH, .report = report};
    if (store_table_find(store, saved->name, &like.into, NULL) != 0) {
        list_add(&report->unknown, saved->name);
        return 0;
    }
    const struct store_table_info info = store_table_info(store, like.into);
    if (info.kind != saved->kind || info.cols != saved->cols ||
        (info.kind != STORE_DYNAMIC && info.rows != saved->rows)) {
        return err_set(err, SHOAL_EMISMATCH,
                       "%s: table %s is %s %" PRIu64 " x %u, the model wants %s %" PRIu64 " x %u",
                       files->checkpoint->folder, saved->name, checkpoint_kind_name(saved->kind),
                       saved->rows, saved->cols, checkpoint_kind_name(info.kind), info.rows,
                       info.cols);
    }
    return load_shards(files, &like, store, &report->loaded, err);
}

static int init_from_checkpoint(const char *path, struct store *store,
                                struct checkpoint_init_report *report, struct err *err)
{
    char *folder = NULL;
    struct checkpoint *checkpoint = NULL;
    struct checkpoint_files files = {0};
    int rc = checkpoint_resolve(path, &folder, err);
    if (rc == 0) rc = checkpoint_open(folder, &checkpoint, err);
    if (rc == 0) rc = checkpoint_verify(checkpoint, err);
    if (rc == 0) rc = checkpoint_files_init(&files, checkpoint, err);
    for (uint32_t i = 0; rc == 0 && i < checkpoint->tables_count; i++) {
        rc = init_from_saved_table(&files, &checkpoint->tables[i], store, report, err);
    }
    for (uint32_t i = 0; rc == 0 && i < store_tables_count(store); i++) {
        const char *name = store_table_info(store, i).name;
        bool saved = false;
        for (uint32_t t = 0; t < checkpoint->tables_count; t++) {
            saved = saved || strcmp(checkpoint->tables[t].name, name) == 0;
        }
        if (!saved) list_add(&report->missing, name);
    }
    checkpoint_files_fini(&files);
    checkpoint_close(checkpoint);
    mem_free(folder);
    return rc;
}

/* Rows of a dynamic table are as many as the file has keys. */
static int rows_in_file(const struct slice *slice, uint64_t *rows_out, struct err *err)
{
    *rows_out = slice->table->rows;
    if (slice->table->kind == STORE_DENSE) *rows_out *= slice->table->cols;
    if (slice->table->kind != STORE_DYNAMIC) return 0;
    struct str name = {0};
    checkpoint_tensor_name(&name, slice->table->name, "keys", 0, 1);
    const struct safetensors_tensor *keys =
        name.failed ? NULL : safetensors_find(slice->file, name.text);
    const bool has_value = safetensors_find(slice->file, slice->table->name) != NULL;
    int rc = name.failed ? no_memory(err) : 0;
    if (rc == 0 && keys == NULL && has_value) {
        rc = err_set(err, SHOAL_EMISMATCH, "%s has %s but no %s: the table is dynamic",
                     slice->file_name, slice->table->name, name.text);
    }
    *rows_out = keys == NULL || keys->dims_count == 0 ? 0 : keys->dims[0];
    str_fini(&name);
    return rc;
}

/* Names of the file that no table of the model has. */
static int list_unknown(const struct safetensors *file, const struct checkpoint *model,
                        struct str *unknown, struct err *err)
{
    struct str name = {0};
    for (uint32_t i = 0; i < safetensors_count(file); i++) {
        const char *given = safetensors_at(file, i)->name;
        bool known = false;
        for (uint32_t t = 0; t < model->tables_count && !known; t++) {
            struct layout_tensor tensor;
            for (uint32_t k = 0; layout_tensor_at(&model->tables[t], k, &tensor) && !known; k++) {
                layout_tensor_name(&model->tables[t], &tensor, 0, 1, &name);
                known = !name.failed && strcmp(name.text, given) == 0;
            }
        }
        if (!known) list_add(unknown, given);
    }
    const bool failed = name.failed || unknown->failed;
    str_fini(&name);
    return failed ? no_memory(err) : 0;
}

static int init_from_file(const char *path, struct store *store,
                          struct checkpoint_init_report *report, struct err *err)
{
    struct safetensors *file = NULL;
    struct checkpoint model = {0};
    int rc = safetensors_open(path, &file, err);
    if (rc == 0) rc = checkpoint_describe(store, &model, err);
    for (uint32_t i = 0; rc == 0 && i < model.tables_count; i++) {
        struct slice slice = {.file = file,
                              .file_name = path,
                              .table = &model.tables[i],
                              .into = i,
                              .shards = 1,
                              .wrong = SHOAL_EMISMATCH,
                              .report = report};
        uint32_t loaded = 0;
        rc = rows_in_file(&slice, &slice.rows, err);
        if (rc == 0) rc = load_slice(&slice, store, &loaded, err);
        report->loaded += loaded;
        if (safetensors_find(file, model.tables[i].name) == NULL) {
            list_add(&report->missing, model.tables[i].name);
        }
    }
    if (rc == 0) rc = list_unknown(file, &model, &report->unknown, err);
    checkpoint_fini(&model);
    safetensors_close(file);
    return rc;
}

int checkpoint_init_from(const char *path, struct store *store,
                         struct checkpoint_init_report *report, struct err *err)
{
    struct checkpoint_init_report own = {0};
    if (report == NULL) report = &own;
    *report = (struct checkpoint_init_report){0};
    int rc = io_is_dir(path) ? init_from_checkpoint(path, store, report, err)
                             : init_from_file(path, store, report, err);
    if (rc == 0 && (report->unknown.failed || report->missing.failed)) rc = no_memory(err);
    if (rc == 0 && report->loaded == 0) {
        rc = err_set(err, SHOAL_EMISMATCH, "%s has no tensor of this model; it has: %.200s", path,
                     report->unknown.bytes > 0 ? report->unknown.text : "nothing");
    }
    if (rc != 0 || report == &own) checkpoint_init_report_fini(report);
    return rc;
}
