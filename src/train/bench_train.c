#include "train/bench_train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "data/data_unique.h"
#include "train/job.h"

enum { POOL = 64 }; /* batches in memory, used in turn */
enum { HISTORY_MAX = 20, USERS = 10000, AGES = 8, GENDERS = 100 };
enum { PIXELS = 784, CLASSES = 10 };
enum { DIN_FEATURES = 5, DIN_TABLES = 4 }; /* user, age, gender, item + history */

/* Something that gives the batch of a step. */
struct source {
    void (*make)(struct source *source, uint64_t step, struct batch *batch);
};

static uint64_t draw(uint64_t what, uint64_t index, uint64_t bound)
{
    return rand_below(1, RAND_TEST, what, index, bound);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int run_steps(struct trainer *trainer, struct source *source, uint64_t count, double *loss,
                     struct err *err)
{
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        struct batch batch = {0};
        struct trainer_step step;
        source->make(source, trainer_global_step(trainer) % POOL, &batch);
        trainer_give(trainer, &batch);
        rc = trainer_step(trainer, &step, err);
        *loss = step.loss;
    }
    return rc;
}

static int measure(struct trainer *trainer, struct source *source,
                   const struct bench_train_opts *opts, uint32_t batch_rows,
                   struct bench_train_result *result, struct err *err)
{
    const uint64_t warm_ns = clock_now_ns();
    int rc = run_steps(trainer, source, POOL, &result->loss, err);
    const double warm_secs = (double)(clock_now_ns() - warm_ns) * 1e-9;
    result->steps = opts->steps != 0 ? opts->steps : (uint32_t)(0.3 * POOL / warm_secs) + 1;
    result->repeats = opts->repeats == 0 ? 9 : opts->repeats;
    if (result->repeats > BENCH_REPEATS_MAX) result->repeats = BENCH_REPEATS_MAX;
    uint64_t before[TRAINER_PHASE_COUNT];
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        before[i] = trainer_phase_ns(trainer, (enum trainer_phase)i);
    }
    uint64_t total_ns = 0;
    for (uint32_t i = 0; rc == 0 && i < result->repeats; i++) {
        const uint64_t start_ns = clock_now_ns();
        rc = run_steps(trainer, source, result->steps, &result->loss, err);
        const uint64_t spent_ns = clock_now_ns() - start_ns;
        total_ns += spent_ns;
        result->examples_per_second[i] =
            (double)result->steps * batch_rows / ((double)spent_ns * 1e-9);
    }
    double counted = 0;
    for (int i = 0; i < TRAINER_PHASE_COUNT; i++) {
        result->phase_share[i] =
            (double)(trainer_phase_ns(trainer, (enum trainer_phase)i) - before[i]) /
            (double)total_ns;
        counted += result->phase_share[i];
    }
    result->phase_share[TRAINER_INPUT] += 1 - counted; /* what `make` took: unique keys */
    double sorted[BENCH_REPEATS_MAX];
    memcpy(sorted, result->examples_per_second, sizeof sorted);
    qsort(sorted, result->repeats, sizeof *sorted, compare_doubles);
    result->examples_per_second_median = sorted[result->repeats / 2];
    return rc;
}

/* ---- DIN --------------------------------------------------------------------------------------- */

struct din_batch { /* raw ids, as a peer has them in memory */
    uint64_t *keys[DIN_FEATURES];
    uint32_t *offsets; /* of the history */
    float *label;
};

struct din_source {
    struct source base;
    uint32_t rows;
    struct din_batch pool[POOL];
    struct data_unique unique[DIN_TABLES];
    struct data_unique_out out[DIN_TABLES];
    struct batch_ids ids[DIN_FEATURES];
    struct batch_keys tables[DIN_TABLES];
};

static const uint32_t table_of[DIN_FEATURES] = {0, 1, 2, 3, 3};

static void make_din_batch(struct source *base, uint64_t number, struct batch *batch)
{
    struct din_source *source = (struct din_source *)base;
    const struct din_batch *raw = &source->pool[number];
    const uint32_t history = raw->offsets[source->rows];
    for (uint32_t t = 0; t < DIN_TABLES; t++) {
        const struct data_unique_run runs[] = {{raw->keys[t], source->rows},
                                               {raw->keys[DIN_FEATURES - 1], history}};
        struct data_unique_out *out = &source->out[t];
        data_unique_run(&source->unique[t], runs, t == DIN_TABLES - 1 ? 2 : 1, out);
        source->tables[t] = (struct batch_keys){.keys = out->keys,
                                                .occ_offsets = out->occ_offsets,
                                                .occs = out->occs,
                                                .keys_count = out->keys_count,
                                                .occs_count = out->occs_count};
    }
    for (uint32_t f = 0; f < DIN_FEATURES; f++) {
        const bool is_history = f == DIN_FEATURES - 1;
        const uint32_t first = is_history ? source->rows : 0;
        source->ids[f] = (struct batch_ids){.offsets = is_history ? raw->offsets : NULL,
                                            .slots = source->out[table_of[f]].slots + first,
                                            .count = is_history ? history : source->rows,
                                            .occ_base = first};
    }
    *batch = (struct batch){.rows = source->rows,
                            .label = raw->label,
                            .ids = source->ids,
                            .tables = source->tables,
                            .ids_count = DIN_FEATURES,
                            .tables_count = DIN_TABLES};
}

static int fill_din_batch(struct din_batch *raw, uint32_t rows, uint64_t items, uint32_t number,
                          struct err *err)
{
    const uint64_t bounds[DIN_FEATURES] = {USERS, AGES, GENDERS, items, items};
    raw->label = mem_alloc_array(MEM_TRAIN, rows, sizeof *raw->label);
    raw->offsets = mem_alloc_array(MEM_TRAIN, rows + 1, sizeof *raw->offsets);
    for (uint32_t f = 0; f < DIN_FEATURES; f++) {
        const size_t count = f == DIN_FEATURES - 1 ? (size_t)rows * HISTORY_MAX : rows;
        raw->keys[f] = mem_alloc_array(MEM_TRAIN, count, sizeof(uint64_t));
        if (raw->keys[f] == NULL || raw->label == NULL || raw->offsets == NULL) {
            return err_set(err, SHOAL_ENOMEM, "no memory for the benchmark's data");
        }
    }
    for (uint32_t row = 0; row < rows; row++) {
        const uint64_t index = (uint64_t)number * rows + row;
        raw->label[row] = (float)draw(0, index, 2);
        raw->offsets[row + 1] = raw->offsets[row] + 1 + (uint32_t)draw(1, index, HISTORY_MAX);
        for (uint32_t f = 0; f + 1 < DIN_FEATURES; f++) {
            raw->keys[f][row] = draw(2 + f, index, bounds[f]);
        }
        for (uint32_t i = raw->offsets[row]; i < raw->offsets[row + 1]; i++) {
            raw->keys[DIN_FEATURES - 1][i] = draw(9, index * HISTORY_MAX + i, items);
        }
    }
    return 0;
}

static int make_din_source(struct din_source *source, uint64_t items, bool dynamic,
                           struct err *err)
{
    const uint64_t rows[DIN_TABLES] = {dynamic ? 0 : USERS, AGES, GENDERS, dynamic ? 0 : items};
    int rc = 0;
    source->base.make = make_din_batch;
    for (uint32_t t = 0; rc == 0 && t < DIN_TABLES; t++) {
        rc = data_unique_init(&source->unique[t], rows[t], err);
        if (rc == 0) {
            rc = data_unique_reserve(&source->unique[t], &source->out[t],
                                     (size_t)source->rows * (HISTORY_MAX + 1), err);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < POOL; i++) {
        rc = fill_din_batch(&source->pool[i], source->rows, items, i, err);
    }
    return rc;
}

static void free_din_source(struct din_source *source)
{
    for (uint32_t t = 0; t < DIN_TABLES; t++) {
        data_unique_fini(&source->unique[t]);
        data_unique_out_fini(&source->out[t]);
    }
    for (uint32_t i = 0; i < POOL; i++) {
        for (uint32_t f = 0; f < DIN_FEATURES; f++) mem_free(source->pool[i].keys[f]);
        mem_free(source->pool[i].offsets);
        mem_free(source->pool[i].label);
    }
    mem_free(source);
}

static int din_job(uint64_t items, bool dynamic, uint32_t batch, uint32_t threads,
                   struct job **job_out, struct err *err)
{
    char text[1600];
    char user[64];
    char item[64];
    snprintf(user, sizeof user, dynamic ? "kind: dynamic" : "kind: hash, buckets: %d", USERS);
    snprintf(item, sizeof item, dynamic ? "kind: dynamic" : "kind: hash, buckets: %llu",
             (unsigned long long)items);
    snprintf(text, sizeof text,
             "model_dir: unused\n"
             "model: {type: din, attention: [16, 8], hidden: [64, 16], dropout: 0.3}\n"
             "features:\n"
             "  label: {kind: label}\n"
             "  user_id: {%s, embed: 16}\n"
             "  age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
             "  gender: {kind: hash, buckets: %d}\n"
             "  item_id: {%s, embed: 16, table: item}\n"
             "  clicked_items_15d: {%s, sequence: true, pad: \"0\", embed: 16, table: item}\n"
             "data: {format: tfrecord, train: unused, batch_size: %u}\n"
             "train: {threads: %u, optimizer: {type: adagrad, learning_rate: 0.1}}\n",
             user, GENDERS, item, item, batch, threads);
    return job_parse("bench", text, NULL, 0, job_out, err);
}

int bench_din(const struct bench_train_opts *opts, struct bench_train_result *result_out,
              struct err *err)
{
    const uint64_t items = opts->items == 0 ? 100 : opts->items;
    const uint32_t rows = opts->batch == 0 ? 512 : opts->batch;
    struct job *job = NULL;
    struct trainer *trainer = NULL;
    struct din_source *source = mem_alloc(MEM_TRAIN, sizeof *source);
    *result_out = (struct bench_train_result){0};
    if (source == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the benchmark");
    source->rows = rows;
    int rc = make_din_source(source, items, opts->dynamic, err);
    if (rc == 0) {
        rc = din_job(items, opts->dynamic, rows, opts->threads == 0 ? 1 : opts->threads, &job, err);
    }
    if (rc == 0) rc = trainer_create(job, NULL, &trainer, err);
    if (rc == 0) rc = measure(trainer, &source->base, opts, rows, result_out, err);
    trainer_destroy(trainer);
    job_destroy(job);
    free_din_source(source);
    return rc;
}

/* ---- MLP --------------------------------------------------------------------------------------- */

struct mlp_source {
    struct source base;
    uint32_t rows;
    float *pixels[POOL];
    float *label[POOL];
    const float *dense[1];
};

static void make_mlp_batch(struct source *base, uint64_t number, struct batch *batch)
{
    struct mlp_source *source = (struct mlp_source *)base;
    source->dense[0] = source->pixels[number];
    *batch = (struct batch){.rows = source->rows,
                            .label = source->label[number],
                            .dense = source->dense,
                            .dense_count = 1};
}

static int make_mlp_source(struct mlp_source *source, struct err *err)
{
    const size_t count = (size_t)source->rows * PIXELS;
    source->base.make = make_mlp_batch;
    for (uint64_t i = 0; i < POOL; i++) {
        source->pixels[i] = mem_alloc_array(MEM_TRAIN, count, sizeof(float));
        source->label[i] = mem_alloc_array(MEM_TRAIN, source->rows, sizeof(float));
        if (source->pixels[i] == NULL || source->label[i] == NULL) {
            return err_set(err, SHOAL_ENOMEM, "no memory for the benchmark's data");
        }
        for (size_t p = 0; p < count; p += 4) {
            uint32_t bits[4];
            rand_philox(1, RAND_TEST, i, p / 4, bits);
            for (size_t k = 0; k < 4; k++) source->pixels[i][p + k] = rand_unit(bits[k]);
        }
        for (uint32_t row = 0; row < source->rows; row++) {
            source->label[i][row] = (float)draw(i, row, CLASSES);
        }
    }
    return 0;
}

int bench_mlp(const struct bench_train_opts *opts, struct bench_train_result *result_out,
              struct err *err)
{
    const uint32_t rows = opts->batch == 0 ? 512 : opts->batch;
    struct job *job = NULL;
    struct trainer *trainer = NULL;
    struct mlp_source *source = mem_alloc(MEM_TRAIN, sizeof *source);
    char text[600];
    *result_out = (struct bench_train_result){0};
    if (source == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the benchmark");
    snprintf(text, sizeof text,
             "model_dir: unused\n"
             "model: {type: mlp, hidden: [500, 500], classes: %d}\n"
             "features: {label: {kind: label}, image: {kind: numeric, width: %d}}\n"
             "data: {format: idx, train: unused, batch_size: %u}\n"
             "train: {threads: %u, optimizer: {type: adam, learning_rate: 0.0001}}\n",
             CLASSES, PIXELS, rows, opts->threads == 0 ? 1 : opts->threads);
    source->rows = rows;
    int rc = make_mlp_source(source, err);
    if (rc == 0) rc = job_parse("bench", text, NULL, 0, &job, err);
    if (rc == 0) rc = trainer_create(job, NULL, &trainer, err);
    if (rc == 0) rc = measure(trainer, &source->base, opts, rows, result_out, err);
    trainer_destroy(trainer);
    job_destroy(job);
    for (int i = 0; i < POOL; i++) {
        mem_free(source->pixels[i]);
        mem_free(source->label[i]);
    }
    mem_free(source);
    return rc;
}
