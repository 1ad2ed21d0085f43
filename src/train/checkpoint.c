#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_load.h"
#include "train/checkpoint_manifest.h"

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory for a checkpoint");
}

/* FOLDER/NAME into path, replacing what is there. */
static int join(const char *folder, const char *name, struct str *path, struct err *err)
{
    str_clear(path);
    str_printf(path, "%s/%s", folder, name);
    return path->failed ? no_memory(err) : 0;
}

/* ---- Saving ------------------------------------------------------------------------------------- */

/* What will be read is read before it is shown to anyone: this also finds a config or a position
 * that is no JSON. */
static int check_readable(const struct str *manifest, struct err *err)
{
    struct checkpoint *checkpoint = NULL;
    struct err why;
    const int rc = checkpoint_parse("", manifest->text, manifest->bytes, &checkpoint, &why);
    checkpoint_close(checkpoint);
    if (rc == SHOAL_ENOMEM) return no_memory(err);
    if (rc != 0) return err_set(err, SHOAL_EINVAL, "manifest would not be readable: %s", why.text);
    return 0;
}

static int describe_all(const struct checkpoint_save *save, const char *const *parts,
                        uint32_t parts_count, struct checkpoint *whole, struct err *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < parts_count; i++) {
        rc = checkpoint_part_merge(whole, parts[i], err);
    }
    if (rc == 0) rc = checkpoint_complete(whole, err);
    if (rc != 0) return rc;
    whole->step = save->step;
    whole->config = mem_strdup(MEM_TRAIN, save->config == NULL ? "{}" : save->config);
    whole->position = mem_strdup(MEM_TRAIN, save->position == NULL ? "{}" : save->position);
    return whole->config == NULL || whole->position == NULL ? no_memory(err) : 0;
}

int checkpoint_commit(const struct checkpoint_save *save, const char *const *parts,
                      uint32_t parts_count, struct err *err)
{
    struct checkpoint whole = {0};
    struct str manifest = {0};
    struct str path = {0};
    char *temporary = NULL;
    int rc = describe_all(save, parts, parts_count, &whole, err);
    if (rc == 0) {
        checkpoint_manifest_write(&whole, &manifest);
        rc = manifest.failed ? no_memory(err) : check_readable(&manifest, err);
    }
    if (rc == 0) rc = checkpoint_folder_temporary(save->model_dir, save->step, &temporary, err);
    if (rc == 0) rc = join(temporary, CHECKPOINT_MANIFEST, &path, err);
    if (rc == 0) rc = io_write_whole(path.text, manifest.text, manifest.bytes, err);
    if (rc == 0) rc = checkpoint_folder_publish(save->model_dir, save->step, err);
    mem_free(temporary);
    str_fini(&path);
    str_fini(&manifest);
    checkpoint_fini(&whole);
    if (rc != 0) return rc;
    /* The checkpoint is saved, whatever becomes of the old ones. */
    struct err why;
    if (checkpoint_folder_prune(save->model_dir, save->keep, save->step, &why) != 0) {
        log_line(LOG_WARN, "checkpoint", "an old checkpoint could not be removed: %s", why.text);
    }
    return 0;
}

static int write_part(const struct checkpoint_save *save, struct store *store, struct str *part,
                      struct err *err)
{
    struct checkpoint_writer *writer = NULL;
    const struct checkpoint_writer_opts opts = {
        .model_dir = save->model_dir, .step = save->step, .store = store};
    int rc = checkpoint_writer_open(&opts, &writer, err);
    for (bool done = false; rc == 0 && !done;) {
        rc = checkpoint_writer_step(writer, UINT64_MAX, &done, err);
    }
    if (rc == 0) rc = checkpoint_writer_finish(writer, part, err);
    checkpoint_writer_destroy(writer);
    return rc;
}

int checkpoint_save(const struct checkpoint_save *save, struct store *store, struct err *err)
{
    struct err unused; /* so that there is a message to wrap */
    if (err == NULL) err = &unused;
    struct str part = {0};
    int rc = checkpoint_begin(save->model_dir, save->step, err);
    if (rc == 0) rc = write_part(save, store, &part, err);
    if (rc == 0) rc = checkpoint_commit(save, (const char *const[]){part.text}, 1, err);
    str_fini(&part);
    if (rc == 0) return 0;
    checkpoint_abort(save->model_dir, save->step);
    return err_wrap(err, "save the checkpoint of step %" PRIu64 " to %s", save->step,
                    save->model_dir);
}

/* ---- Reading ------------------------------------------------------------------------------------ */

int checkpoint_open(const char *folder, struct checkpoint **checkpoint_out, struct err *err)
{
    struct err unused;
    if (err == NULL) err = &unused;
    struct str path = {0};
    char *manifest = NULL;
    size_t bytes = 0;
    int rc = join(folder, CHECKPOINT_MANIFEST, &path, err);
    if (rc == 0) {
        rc = io_read_whole(path.text, CHECKPOINT_MANIFEST_BYTES_MAX, &manifest, &bytes, err);
        if (rc == SHOAL_ENOENT && io_exists(folder)) {
            rc = err_set(err, SHOAL_ECORRUPT, "%s is missing", path.text);
        } else if (rc == 0) {
            rc = checkpoint_parse(folder, manifest, bytes, checkpoint_out, err);
            if (rc != 0) rc = err_wrap(err, "%s", path.text);
        }
    }
    mem_free(manifest);
    str_fini(&path);
    return rc;
}

static int verify_file(const struct checkpoint_file *file, const char *path, struct err *err)
{
    if (!io_exists(path)) return err_set(err, SHOAL_ECORRUPT, "%s is missing", path);
    struct io_map map;
    int rc = io_map_open(path, &map, err);
    if (rc != 0) return rc;
    if (map.count != file->bytes) {
        rc = err_set(err, SHOAL_ECORRUPT, "%s has %zu bytes, %" PRIu64 " were written: %s", path,
                     map.count, file->bytes, map.count < file->bytes ? "cut short" : "damaged");
    } else if (hash_crc32c(0, map.bytes, map.count) != file->crc32c) {
        rc = err_set(err, SHOAL_ECORRUPT, "%s is damaged: its checksum does not match", path);
    }
    io_map_close(&map);
    return rc;
}

int checkpoint_verify(const struct checkpoint *checkpoint, struct err *err)
{
    struct str path = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < checkpoint->files_count; i++) {
        const struct checkpoint_file *file = &checkpoint->files[i];
        rc = join(checkpoint->folder, file->name, &path, err);
        if (rc == 0) rc = verify_file(file, path.text, err);
    }
    str_fini(&path);
    return rc;
}

/* ---- Comparing ---------------------------------------------------------------------------------- */

/* The slots that come with an optimizer, and the average: "adagrad (adagrad)", "sgd (no slots)". */
static void add_optimizer(const struct checkpoint_table *table, struct str *text)
{
    str_printf(text, "%s (", table->optimizer);
    for (uint32_t i = 1; i < table->parts_count; i++) {
        str_printf(text, "%s%s", i > 1 ? ", " : "", table->parts[i]);
    }
    str_add(text, table->parts_count == 1 ? "no slots)" : ")");
}

static bool parts_are_equal(const struct checkpoint_table *a, const struct checkpoint_table *b)
{
    if (a->parts_count != b->parts_count || strcmp(a->optimizer, b->optimizer) != 0) return false;
    for (uint32_t i = 0; i < a->parts_count; i++) {
        if (strcmp(a->parts[i], b->parts[i]) != 0) return false;
    }
    return a->has_steps == b->has_steps && a->has_counts == b->has_counts;
}

static void add_shape(const struct checkpoint_table *table, struct str *text)
{
    if (table->kind == STORE_DYNAMIC) {
        str_printf(text, "dynamic rows of %u", table->cols);
    } else {
        str_printf(text, "%s %" PRIu64 " x %u", checkpoint_kind_name(table->kind), table->rows,
                   table->cols);
    }
}

/* One line per difference of two tables of the same name. */
static void compare_tables(const struct checkpoint_table *saved,
                           const struct checkpoint_table *model, struct str *text)
{
    if (saved->kind != model->kind || saved->cols != model->cols ||
        (saved->kind != STORE_DYNAMIC && saved->rows != model->rows)) {
        str_printf(text, "%s: ", saved->name);
        add_shape(saved, text);
        str_add(text, " in the checkpoint, ");
        add_shape(model, text);
        str_add(text, " in the model\n");
    } else if (saved->shards_count != model->shards_count) {
        str_printf(text, "%s: %u shards in the checkpoint, %u in the model\n", saved->name,
                   saved->shards_count, model->shards_count);
    }
    if (!parts_are_equal(saved, model)) {
        str_printf(text, "%s: optimizer ", saved->name);
        add_optimizer(saved, text);
        str_add(text, " in the checkpoint, ");
        add_optimizer(model, text);
        str_add(text, " in the model\n");
    }
}

static const struct checkpoint_table *find_table(const struct checkpoint *in, const char *name)
{
    for (uint32_t i = 0; i < in->tables_count; i++) {
        if (strcmp(in->tables[i].name, name) == 0) return &in->tables[i];
    }
    return NULL;
}

/* The differences as one line of the message: lines joined with "; ". */
static int mismatch(const struct checkpoint *checkpoint, const struct str *lines, struct err *err)
{
    char joined[ERR_TEXT_MAX / 2];
    size_t used = 0;
    for (size_t i = 0; i + 1 < lines->bytes && used + 3 < sizeof joined; i++) {
        if (lines->text[i] == '\n') joined[used++] = ';';
        joined[used++] = lines->text[i] == '\n' ? ' ' : lines->text[i];
    }
    joined[used] = '\0';
    return err_set(
        err, SHOAL_EMISMATCH,
        "the model does not fit %s: %s%s; use another model_dir, or the job file that made "
        "this one",
        checkpoint->folder, joined, used + 3 >= sizeof joined ? "..." : "");
}

int checkpoint_compare(const struct checkpoint *checkpoint, const struct store *store,
                       struct str *difference, struct err *err)
{
    struct checkpoint model = {0};
    struct str lines = {0};
    int rc = checkpoint_describe(store, &model, err);
    for (uint32_t i = 0; rc == 0 && i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *saved = &checkpoint->tables[i];
        const struct checkpoint_table *wanted = find_table(&model, saved->name);
        if (wanted == NULL) {
            str_printf(&lines, "%s: only in the checkpoint\n", saved->name);
        } else {
            compare_tables(saved, wanted, &lines);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < model.tables_count; i++) {
        if (find_table(checkpoint, model.tables[i].name) == NULL) {
            str_printf(&lines, "%s: only in the model\n", model.tables[i].name);
        }
    }
    if (rc == 0 && lines.failed) rc = no_memory(err);
    if (rc == 0 && lines.bytes > 0) {
        rc = mismatch(checkpoint, &lines, err);
        if (difference != NULL) str_add_bytes(difference, lines.text, lines.bytes);
    }
    str_fini(&lines);
    checkpoint_fini(&model);
    return rc;
}

/* ---- Restoring ---------------------------------------------------------------------------------- */

static bool is_whole(const char *folder)
{
    struct checkpoint *checkpoint = NULL;
    if (checkpoint_open(folder, &checkpoint, NULL) != 0) return false;
    ASSERT(checkpoint != NULL);
    const bool whole = checkpoint_verify(checkpoint, NULL) == 0;
    checkpoint_close(checkpoint);
    return whole;
}

/* The newest checkpoint before `step` that is whole; NULL when there is none. Caller owns it. */
static char *previous_whole(const char *model_dir, uint64_t step)
{
    struct checkpoint_list list;
    if (checkpoint_list(model_dir, &list, NULL) != 0) return NULL;
    char *found = NULL;
    for (size_t i = list.count; i > 0 && found == NULL; i--) {
        char *path = NULL;
        if (list.steps[i - 1] >= step) continue;
        if (checkpoint_path(model_dir, list.steps[i - 1], &path, NULL) != 0) break;
        if (is_whole(path)) {
            found = path;
        } else {
            mem_free(path);
        }
    }
    checkpoint_list_fini(&list);
    return found;
}

/* Adds to the message of a damaged checkpoint what the user can do next. */
static void offer_previous(const char *folder, struct err *err)
{
    char *model_dir = NULL;
    char *name = NULL;
    char *previous = NULL;
    uint64_t step = 0;
    if (checkpoint_folder_split(folder, &model_dir, &name, NULL) == 0 &&
        checkpoint_folder_step(name, &step)) {
        previous = previous_whole(model_dir, step);
    }
    const size_t used = strlen(err->text);
    char *end = err->text + used;
    const size_t room = sizeof err->text - used;
    if (previous != NULL) {
        snprintf(end, room, "; %s is whole: to go on from it, `mv %s/%s %s/damaged-%s`", previous,
                 model_dir, name, model_dir, name);
    } else {
        snprintf(end, room, "; there is no older checkpoint that is whole");
    }
    mem_free(model_dir);
    mem_free(name);
    mem_free(previous);
}

int checkpoint_restore(const char *folder, struct store *store, struct checkpoint **checkpoint_out,
                       struct err *err)
{
    struct err unused;
    if (err == NULL) err = &unused;
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_open(folder, &checkpoint, err);
    if (rc == 0) rc = checkpoint_compare(checkpoint, store, NULL, err);
    if (rc == 0) rc = checkpoint_verify(checkpoint, err);
    if (rc == 0) rc = checkpoint_load_tables(checkpoint, store, err);
    if (rc == SHOAL_ECORRUPT) offer_previous(folder, err);
    if (rc != 0) {
        checkpoint_close(checkpoint);
        return rc;
    }
    *checkpoint_out = checkpoint;
    return 0;
}
