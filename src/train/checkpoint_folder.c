#include "train/checkpoint_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/checkpoint_manifest.h"

#define PREFIX "ckpt-"
#define TEMPORARY ".tmp-"
#define REPLACED ".old-"

/* MODEL_DIR/PREFIXckpt-STEP */
static int join(const char *model_dir, const char *prefix, uint64_t step, char **path_out,
                struct err *err)
{
    struct str path = {0};
    str_printf(&path, "%s/%s" PREFIX "%" PRIu64, model_dir, prefix, step);
    if (path.failed) {
        str_fini(&path);
        return err_set(err, SHOAL_ENOMEM, "no memory for a path");
    }
    *path_out = path.text;
    return 0;
}

int checkpoint_path(const char *model_dir, uint64_t step, char **path_out, struct err *err)
{
    return join(model_dir, "", step, path_out, err);
}

int checkpoint_folder_temporary(const char *model_dir, uint64_t step, char **path_out,
                                struct err *err)
{
    return join(model_dir, TEMPORARY, step, path_out, err);
}

bool checkpoint_folder_step(const char *name, uint64_t *step_out)
{
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0) return false;
    const char *digits = name + sizeof PREFIX - 1;
    const size_t count = strlen(digits);
    if (count == 0 || count > 16 || strspn(digits, "0123456789") != count) return false;
    if (digits[0] == '0' && count > 1) return false;
    *step_out = strtoull(digits, NULL, 10);
    return true;
}

int checkpoint_folder_split(const char *path, char **parent_out, char **name_out, struct err *err)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    size_t parent_end = start;
    while (parent_end > 1 && path[parent_end - 1] == '/') parent_end--;
    char *parent =
        start == 0 ? mem_strdup(MEM_TRAIN, ".") : mem_strndup(MEM_TRAIN, path, parent_end);
    char *name = mem_strndup(MEM_TRAIN, path + start, end - start);
    if (parent == NULL || name == NULL) {
        mem_free(parent);
        mem_free(name);
        return err_set(err, SHOAL_ENOMEM, "no memory for a path");
    }
    *parent_out = parent;
    *name_out = name;
    return 0;
}

int checkpoint_begin(const char *model_dir, uint64_t step, struct err *err)
{
    char *temporary = NULL;
    int rc = checkpoint_folder_temporary(model_dir, step, &temporary, err);
    if (rc == 0) rc = io_remove_tree(temporary, err);
    if (rc == 0) rc = io_make_dirs(temporary, err);
    mem_free(temporary);
    return rc;
}

void checkpoint_abort(const char *model_dir, uint64_t step)
{
    /* What cannot be removed now is removed by the next start's checkpoint_clean. */
    char *temporary = NULL;
    if (checkpoint_folder_temporary(model_dir, step, &temporary, NULL) == 0) {
        io_remove_tree(temporary, NULL);
    }
    mem_free(temporary);
}

int checkpoint_folder_publish(const char *model_dir, uint64_t step, struct err *err)
{
    char *temporary = NULL;
    char *replaced = NULL;
    char *path = NULL;
    int rc = checkpoint_folder_temporary(model_dir, step, &temporary, err);
    if (rc == 0) rc = join(model_dir, REPLACED, step, &replaced, err);
    if (rc == 0) rc = checkpoint_path(model_dir, step, &path, err);
    const bool replaces = rc == 0 && io_exists(path);
    if (replaces) {
        rc = io_remove_tree(replaced, err);
        if (rc == 0) rc = io_rename(path, replaced, err);
    }
    if (rc == 0) rc = io_rename(temporary, path, err);
    if (rc == 0 && replaces) rc = io_remove_tree(replaced, err);
    mem_free(temporary);
    mem_free(replaced);
    mem_free(path);
    return rc;
}

static int drop(const char *model_dir, uint64_t step, struct err *err)
{
    char *path = NULL;
    char *dropped = NULL;
    int rc = checkpoint_path(model_dir, step, &path, err);
    if (rc == 0) rc = join(model_dir, TEMPORARY "drop-", step, &dropped, err);
    if (rc == 0) rc = io_remove_tree(dropped, err);
    if (rc == 0) rc = io_rename(path, dropped, err);
    if (rc == 0) rc = io_remove_tree(dropped, err);
    mem_free(path);
    mem_free(dropped);
    return rc;
}

int checkpoint_folder_prune(const char *model_dir, uint32_t keep, uint64_t step, struct err *err)
{
    if (keep == 0) return 0;
    struct checkpoint_list list;
    int rc = checkpoint_list(model_dir, &list, err);
    if (rc != 0) return rc;
    for (size_t i = 0; rc == 0 && i + keep < list.count; i++) {
        if (list.steps[i] != step) rc = drop(model_dir, list.steps[i], err);
    }
    checkpoint_list_fini(&list);
    return rc;
}

/* Puts back what was being replaced, or removes it when the new one is there. */
static int settle_replaced(const char *model_dir, const char *name, struct err *err)
{
    uint64_t step = 0;
    if (!checkpoint_folder_step(name + sizeof REPLACED - 1, &step)) return 0;
    char *replaced = NULL;
    char *path = NULL;
    int rc = join(model_dir, REPLACED, step, &replaced, err);
    if (rc == 0) rc = checkpoint_path(model_dir, step, &path, err);
    if (rc == 0)
        rc = io_exists(path) ? io_remove_tree(replaced, err) : io_rename(replaced, path, err);
    mem_free(replaced);
    mem_free(path);
    return rc;
}

static int remove_named(const char *model_dir, const char *name, struct err *err)
{
    struct str path = {0};
    str_printf(&path, "%s/%s", model_dir, name);
    const int rc = path.failed ? err_set(err, SHOAL_ENOMEM, "no memory for a path")
                               : io_remove_tree(path.text, err);
    str_fini(&path);
    return rc;
}

int checkpoint_clean(const char *model_dir, struct err *err)
{
    if (!io_exists(model_dir)) return 0;
    struct io_list list;
    int rc = io_list_dir(model_dir, &list, err);
    if (rc != 0) return rc;
    for (size_t i = 0; rc == 0 && i < list.count; i++) {
        const char *name = list.paths[i];
        if (strncmp(name, TEMPORARY PREFIX, sizeof TEMPORARY PREFIX - 1) == 0 ||
            strncmp(name, TEMPORARY "drop-", sizeof TEMPORARY "drop-" - 1) == 0) {
            rc = remove_named(model_dir, name, err);
        } else if (strncmp(name, REPLACED PREFIX, sizeof REPLACED PREFIX - 1) == 0) {
            rc = settle_replaced(model_dir, name, err);
        }
    }
    io_list_fini(&list);
    return rc;
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int checkpoint_list(const char *model_dir, struct checkpoint_list *list_out, struct err *err)
{
    *list_out = (struct checkpoint_list){0};
    if (!io_exists(model_dir)) return 0;
    struct io_list names;
    int rc = io_list_dir(model_dir, &names, err);
    if (rc != 0) return rc;
    struct checkpoint_list list = {0};
    list.steps = mem_alloc_array(MEM_TRAIN, names.count, sizeof *list.steps);
    if (list.steps == NULL) rc = err_set(err, SHOAL_ENOMEM, "no memory to list %s", model_dir);
    for (size_t i = 0; rc == 0 && i < names.count; i++) {
        uint64_t step = 0;
        if (checkpoint_folder_step(names.paths[i], &step)) list.steps[list.count++] = step;
    }
    io_list_fini(&names);
    if (rc != 0) return rc;
    qsort(list.steps, list.count, sizeof *list.steps, compare_steps);
    *list_out = list;
    return 0;
}

void checkpoint_list_fini(struct checkpoint_list *list)
{
    mem_free(list->steps);
    *list = (struct checkpoint_list){0};
}

/* Is the path itself a checkpoint, by its name or by what is in it? */
static int is_checkpoint(const char *path, bool *answer_out, struct err *err)
{
    struct str manifest = {0};
    str_printf(&manifest, "%s/" CHECKPOINT_MANIFEST, path);
    char *parent = NULL;
    char *name = NULL;
    uint64_t step = 0;
    int rc = manifest.failed ? err_set(err, SHOAL_ENOMEM, "no memory for a path") : 0;
    if (rc == 0) rc = checkpoint_folder_split(path, &parent, &name, err);
    if (rc == 0) *answer_out = io_exists(manifest.text) || checkpoint_folder_step(name, &step);
    mem_free(parent);
    mem_free(name);
    str_fini(&manifest);
    return rc;
}

int checkpoint_resolve(const char *path, char **path_out, struct err *err)
{
    if (!io_exists(path)) {
        return err_set(err, SHOAL_ENOENT, "%s: no such checkpoint or model directory", path);
    }
    bool is_one = false;
    int rc = is_checkpoint(path, &is_one, err);
    if (rc != 0) return rc;
    if (is_one) {
        *path_out = mem_strdup(MEM_TRAIN, path);
        return *path_out != NULL ? 0 : err_set(err, SHOAL_ENOMEM, "no memory for a path");
    }
    struct checkpoint_list list;
    rc = checkpoint_list(path, &list, err);
    if (rc != 0) return rc;
    if (list.count == 0) {
        rc = err_set(err, SHOAL_ENOENT, "%s: no checkpoint here (folders named ckpt-STEP)", path);
    } else {
        rc = checkpoint_path(path, list.steps[list.count - 1], path_out, err);
    }
    checkpoint_list_fini(&list);
    return rc;
}
