#include "train/run.h"

#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "train/checkpoint.h"

struct run {
    const struct job *job;
    struct trainer *trainer;
    struct evaluate *evaluate;
    struct evaluate *test; /* NULL: no such data */
    struct io_lock *lock;
    uint64_t first_step;
    uint64_t saved_step;
};

static int init_from(struct run *run, struct err *err)
{
    const char *path = run->job->train.init_from;
    struct checkpoint_init_report report = {0};
    const int rc = checkpoint_init_from(path, trainer_store(run->trainer), &report, err);
    if (rc == 0) {
        log_line(LOG_INFO, "train", "initial values loaded from=%s tensors=%u", path,
                 report.loaded);
        if (report.missing.bytes > 0) {
            log_line(LOG_WARN, "train", "not in %s, so drawn at random: %s", path,
                     report.missing.text);
        }
        if (report.unknown.bytes > 0) {
            log_line(LOG_WARN, "train", "in %s, but not in the model: %s", path,
                     report.unknown.text);
        }
    }
    checkpoint_init_report_fini(&report);
    if (rc != 0) err_wrap(err, "train.init_from");
    return rc;
}

/* Loads the folder; *position_out (mem_free) is where the data goes on. */
static int restore(struct run *run, const char *folder, char **position_out, struct err *err)
{
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_restore(folder, trainer_store(run->trainer), &checkpoint, err);
    if (rc != 0) return rc;
    trainer_set_global_step(run->trainer, checkpoint->step);
    run->first_step = checkpoint->step;
    run->saved_step = checkpoint->step;
    if (position_out != NULL) {
        *position_out = mem_strdup(MEM_TRAIN, checkpoint->position);
        if (*position_out == NULL) rc = err_set(err, SHOAL_ENOMEM, "no memory for a position");
    }
    checkpoint_close(checkpoint);
    return rc;
}

/* The newest checkpoint, or else, if asked for, the values of `init_from`. */
static int restore_newest(struct run *run, bool or_init_from, char **position_out, struct err *err)
{
    struct checkpoint_list list = {0};
    char *folder = NULL;
    int rc = checkpoint_clean(run->job->model_dir, err);
    if (rc == 0) rc = checkpoint_list(run->job->model_dir, &list, err);
    if (rc == 0 && list.count > 0) {
        const uint64_t step = list.steps[list.count - 1];
        rc = checkpoint_path(run->job->model_dir, step, &folder, err);
        if (rc == 0) rc = restore(run, folder, position_out, err);
        if (rc == 0) {
            log_line(LOG_INFO, "train", "goes on from a checkpoint step=%llu folder=%s",
                     (unsigned long long)step, folder);
        }
    } else if (rc == 0 && or_init_from) {
        rc = init_from(run, err);
    }
    mem_free(folder);
    checkpoint_list_fini(&list);
    return rc;
}

/* What is saved for standard input, which has no position. */
#define POSITION_NONE "{}"

static int open_data_at(struct run *run, const char *position, struct err *err)
{
    if (position != NULL && strcmp(position, POSITION_NONE) == 0) {
        log_line(LOG_WARN, "train",
                 "standard input cannot be resumed: it is read from where it is");
        position = NULL;
    }
    return trainer_open_data(run->trainer, position, err);
}

static int open_evaluate(struct run *run, struct err *err)
{
    if (run->job->data.eval.count == 0) return 0;
    return evaluate_create(run->trainer, &run->evaluate, err);
}

static int open_test(struct run *run, struct err *err)
{
    if (run->job->data.test.count == 0) return 0;
    return evaluate_create_test(run->trainer, &run->test, err);
}

static int make(const struct job *job, struct model *model, struct run **run_out, struct err *err)
{
    struct run *run = mem_alloc(MEM_TRAIN, sizeof *run);
    if (run == NULL) {
        model_destroy(model);
        return err_set(err, SHOAL_ENOMEM, "no memory for a run");
    }
    run->job = job;
    run->saved_step = UINT64_MAX;
    const int rc = trainer_create(job, model, &run->trainer, err);
    if (rc != 0) {
        mem_free(run);
        return rc;
    }
    *run_out = run;
    return 0;
}

int run_open(const struct job *job, struct model *model, struct run **run_out, struct err *err)
{
    struct run *run = NULL;
    char *position = NULL;
    if (job->data.train.count == 0) {
        const struct config_node *root = config_root(job->config);
        const struct config_node *data = config_get(root, "data");
        model_destroy(model);
        return config_error(data != NULL ? data : root, err,
                            "`train` is missing: the files to train on");
    }
    int rc = make(job, model, &run, err);
    if (rc != 0) return rc;
    /* A directory that is there may hold checkpoints, and their data position: lock and load it
     * first. Otherwise data and initial values are opened first, so that a wrong path makes no
     * directory. */
    const bool there = io_exists(job->model_dir);
    const bool has_init = job->train.init_from != NULL;
    rc = open_evaluate(run, err);
    if (rc == 0) rc = open_test(run, err);
    if (rc == 0 && !there) rc = trainer_open_data(run->trainer, NULL, err);
    if (rc == 0 && !there && has_init) rc = init_from(run, err);
    if (rc == 0) rc = io_make_dirs(job->model_dir, err);
    if (rc == 0) rc = io_lock_acquire(job->model_dir, &run->lock, err);
    if (rc == 0) rc = restore_newest(run, there && has_init, &position, err);
    if (rc == 0 && there) rc = open_data_at(run, position, err);
    mem_free(position);
    if (rc != 0) {
        run_close(run);
        return rc;
    }
    *run_out = run;
    return 0;
}

int run_open_checkpoint(const struct job *job, const char *checkpoint, struct run **run_out,
                        struct err *err)
{
    struct run *run = NULL;
    char *folder = NULL;
    int rc = make(job, NULL, &run, err);
    if (rc != 0) return rc;
    rc = checkpoint_resolve(checkpoint != NULL ? checkpoint : job->model_dir, &folder, err);
    if (rc == 0) rc = restore(run, folder, NULL, err);
    if (rc == 0) rc = open_evaluate(run, err);
    mem_free(folder);
    if (rc != 0) {
        run_close(run);
        return rc;
    }
    *run_out = run;
    return 0;
}

void run_close(struct run *run)
{
    if (run == NULL) return;
    evaluate_destroy(run->test);
    evaluate_destroy(run->evaluate);
    trainer_destroy(run->trainer);
    io_lock_release(run->lock);
    mem_free(run);
}

struct trainer *run_trainer(struct run *run)
{
    return run->trainer;
}

struct evaluate *run_evaluate(struct run *run)
{
    return run->evaluate;
}

struct evaluate *run_test(struct run *run)
{
    return run->test;
}

uint64_t run_first_step(const struct run *run)
{
    return run->first_step;
}

uint64_t run_saved_step(const struct run *run)
{
    return run->saved_step;
}

int run_save(struct run *run, struct err *err)
{
    ASSERT(run->lock != NULL);
    struct str position = {0};
    char *config = NULL;
    int rc = data_position_write(trainer_data(run->trainer), &position, err);
    if (rc == SHOAL_EINVAL) { /* Standard input: there is no position to go on from. */
        str_clear(&position);
        str_add(&position, POSITION_NONE);
        rc = 0;
    }
    if (rc == 0 && position.failed) rc = err_set(err, SHOAL_ENOMEM, "no memory for a position");
    if (rc == 0) rc = config_to_json(config_root(run->job->config), &config, err);
    if (rc == 0) {
        rc = checkpoint_save(&(struct checkpoint_save){.model_dir = run->job->model_dir,
                                                       .step = trainer_global_step(run->trainer),
                                                       .config = config,
                                                       .position = position.text,
                                                       .keep = run->job->train.keep},
                             trainer_store(run->trainer), err);
    }
    if (rc == 0) run->saved_step = trainer_global_step(run->trainer);
    mem_free(config);
    str_fini(&position);
    return rc;
}
