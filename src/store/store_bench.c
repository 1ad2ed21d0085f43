#include "store/store_bench.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"
#include "store/store.h"

#define LEARNING_RATE 0.1
#define GRADIENT 0.5f
#define LOAD_KEYS 100000u

struct bench {
    struct store_bench_opts opts;
    struct store *store;
    uint32_t table;
    uint64_t *keys;  /* all in the table */
    uint64_t *asked; /* of one request */
    float *rows;     /* of one request */
    float *gradients;
};

static void bench_fini(struct bench *bench)
{
    store_destroy(bench->store);
    mem_free(bench->keys);
    mem_free(bench->asked);
    mem_free(bench->rows);
    mem_free(bench->gradients);
}

static int bench_init(struct bench *bench, const struct store_bench_opts *opts, uint64_t rows,
                      uint32_t keys, struct err *err)
{
    *bench = (struct bench){.opts = *opts};
    struct store_bench_opts *o = &bench->opts;
    if (o->rows == 0) o->rows = rows;
    if (o->keys == 0) o->keys = keys;
    if (o->cols == 0) o->cols = 16;
    if (o->repeats == 0) o->repeats = 9;
    if (o->repeats > STORE_BENCH_REPEATS_MAX) {
        return err_set(err, SHOAL_EINVAL, "%u repeats, at most %u", o->repeats,
                       STORE_BENCH_REPEATS_MAX);
    }
    if (o->keys > STORE_KEYS_MAX || o->keys > o->rows) {
        return err_set(err, SHOAL_EINVAL, "requests of %u keys on %llu rows", o->keys,
                       (unsigned long long)o->rows);
    }
    const size_t floats = (size_t)o->keys * o->cols;
    bench->asked = mem_alloc_array(MEM_STORE, o->keys, sizeof *bench->asked);
    bench->rows = mem_alloc_array(MEM_STORE, floats, sizeof *bench->rows);
    bench->gradients = mem_alloc_array(MEM_STORE, floats, sizeof *bench->gradients);
    if (bench->asked == NULL || bench->rows == NULL || bench->gradients == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a benchmark");
    }
    /* Also touches their pages, which is not what is measured. */
    for (size_t i = 0; i < floats; i++) bench->rows[i] = bench->gradients[i] = GRADIENT;
    int rc = store_create(&(struct store_opts){.seed = o->seed}, &bench->store, err);
    if (rc != 0) return rc;
    return store_table_add(
        bench->store,
        &(struct store_table_opts){.name = "bench",
                                   .kind = STORE_DYNAMIC,
                                   .cols = o->cols,
                                   .rule = store_rule_default(STORE_ADAGRAD, LEARNING_RATE)},
        &bench->table, err);
}

static uint64_t key_at(const struct bench *bench, uint64_t number)
{
    return rand_u64(bench->opts.seed, RAND_TEST, 1, number);
}

/* What the row of a key holds at first: small whole numbers, so that sums are exact. */
static float value_of(uint64_t key, uint32_t column)
{
    return (float)((key >> (column % 48)) & 0xffff);
}

/* Shuffles the keys, so that they are visited in an order unlike that of their making. */
static void shuffle_keys(struct bench *bench)
{
    uint64_t *keys = bench->keys;
    for (uint64_t left = bench->opts.rows; left > 1; left--) {
        const uint64_t pick = rand_below(bench->opts.seed, RAND_TEST, 2, left, left);
        const uint64_t swap = keys[left - 1];
        keys[left - 1] = keys[pick];
        keys[pick] = swap;
    }
}

/* Fills the table with rows of known values. */
static int bench_load(struct bench *bench, struct err *err)
{
    const struct store_bench_opts *o = &bench->opts;
    bench->keys = mem_alloc_array(MEM_STORE, o->rows, sizeof *bench->keys);
    float *values = mem_alloc_array(MEM_STORE, (size_t)LOAD_KEYS * o->cols, sizeof *values);
    int rc = 0;
    if (bench->keys == NULL || values == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory for %llu keys", (unsigned long long)o->rows);
    }
    for (uint64_t first = 0; rc == 0 && first < o->rows; first += LOAD_KEYS) {
        const uint32_t count =
            (uint32_t)(o->rows - first < LOAD_KEYS ? o->rows - first : LOAD_KEYS);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t key = key_at(bench, first + i);
            bench->keys[first + i] = key;
            for (uint32_t c = 0; c < o->cols; c++)
                values[(size_t)i * o->cols + c] = value_of(key, c);
        }
        rc = store_assign_rows(bench->store,
                               &(struct store_rows){.table = bench->table,
                                                    .count = count,
                                                    .keys = bench->keys + first,
                                                    .parts = {values}},
                               err);
    }
    mem_free(values);
    if (rc == 0) shuffle_keys(bench);
    while (rc == 0 && store_tend(bench->store)) continue;
    return rc;
}

/* Each key once before any comes again. */
static void choose_keys(struct bench *bench, uint32_t repeat)
{
    for (uint32_t i = 0; i < bench->opts.keys; i++) {
        const uint64_t visit = (uint64_t)repeat * bench->opts.keys + i;
        bench->asked[i] = bench->keys[visit % bench->opts.rows];
    }
}

static int pull_asked(struct bench *bench, struct err *err)
{
    return store_pull(bench->store,
                      &(struct store_pull){.table = bench->table,
                                           .count = bench->opts.keys,
                                           .keys = bench->asked,
                                           .rows = bench->rows},
                      NULL, err);
}

/* Every pulled row must be the key's value, plus `moved`. */
static int check_rows(const struct bench *bench, double moved, struct err *err)
{
    const uint32_t cols = bench->opts.cols;
    for (uint32_t i = 0; i < bench->opts.keys; i++) {
        for (uint32_t c = 0; c < cols; c++) {
            const double want = (double)value_of(bench->asked[i], c) + moved;
            const double got = (double)bench->rows[(size_t)i * cols + c];
            if (fabs(got - want) <= 1e-6 * (1 + fabs(want))) continue;
            return err_set(err, SHOAL_ECORRUPT, "key %llu column %u: %.9g, not %.9g",
                           (unsigned long long)bench->asked[i], c, got, want);
        }
    }
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void take_median(struct store_bench_result *result)
{
    double sorted[STORE_BENCH_REPEATS_MAX];
    for (uint32_t i = 0; i < result->repeats; i++) sorted[i] = result->rows_per_second[i];
    qsort(sorted, result->repeats, sizeof *sorted, compare_doubles);
    const uint32_t middle = result->repeats / 2;
    result->rows_per_second_median =
        result->repeats % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

static void note(struct store_bench_result *result, const struct bench *bench, uint64_t nanoseconds)
{
    result->rows_per_second[result->repeats++] =
        (double)bench->opts.keys * 1e9 / (double)(nanoseconds == 0 ? 1 : nanoseconds);
}

int store_bench_lookup(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                       struct err *err)
{
    struct bench bench;
    struct store_bench_result result = {0};
    int rc = bench_init(&bench, opts, 10000000, 100000, err);
    if (rc == 0) rc = bench_load(&bench, err);
    for (uint32_t repeat = 0; rc == 0 && repeat < bench.opts.repeats; repeat++) {
        choose_keys(&bench, repeat);
        const uint64_t start = clock_now_ns();
        rc = pull_asked(&bench, err);
        note(&result, &bench, clock_now_ns() - start);
        if (rc == 0) rc = check_rows(&bench, 0, err);
    }
    if (rc == 0) {
        take_median(&result);
        *result_out = result;
    }
    bench_fini(&bench);
    return rc;
}

static int push_asked(struct bench *bench, struct err *err)
{
    return store_push(bench->store,
                      &(struct store_push){.table = bench->table,
                                           .count = bench->opts.keys,
                                           .keys = bench->asked,
                                           .gradients = bench->gradients},
                      NULL, NULL, err);
}

/* Adagrad's first move from an accumulator of 0.1. */
static double first_move(void)
{
    const double g = (double)GRADIENT;
    return -LEARNING_RATE * g / sqrt((double)0.1f + g * g);
}

int store_bench_push(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                     struct err *err)
{
    struct bench bench;
    struct store_bench_result result = {0};
    int rc = bench_init(&bench, opts, 10000000, 100000, err);
    if (rc == 0 && (uint64_t)bench.opts.keys * bench.opts.repeats > bench.opts.rows) {
        rc = err_set(err, SHOAL_EINVAL, "%u pushes of %u keys want as many rows",
                     bench.opts.repeats, bench.opts.keys);
    }
    if (rc == 0) rc = bench_load(&bench, err);
    for (uint32_t repeat = 0; rc == 0 && repeat < bench.opts.repeats; repeat++) {
        choose_keys(&bench, repeat);
        const uint64_t start = clock_now_ns();
        rc = push_asked(&bench, err);
        note(&result, &bench, clock_now_ns() - start);
        if (rc == 0) rc = pull_asked(&bench, err);
        if (rc == 0) rc = check_rows(&bench, first_move(), err);
    }
    if (rc == 0) {
        take_median(&result);
        *result_out = result;
    }
    bench_fini(&bench);
    return rc;
}

/* Memory of this process in pages now; 0 where it cannot be known. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    unsigned long long whole = 0;
    unsigned long long resident = 0;
    const int fields = fscanf(file, "%llu %llu", &whole, &resident);
    fclose(file);
    return fields == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* From here up the started pages of 16 shards, four each, are less than a byte a row. */
#define GROW_ROWS_MIN 262144u

static void measure_memory(const struct bench *bench, uint64_t rows, uint64_t resident_before,
                           struct store_bench_result *result)
{
    const double payload = (double)rows * bench->opts.cols * 2 * sizeof(float);
    const double resident = (double)resident_bytes() - (double)resident_before;
    const double held = (double)store_table_bytes(bench->store, bench->table).index;
    const double per_row = (resident - payload) / (double)rows;
    if (per_row > result->resident_bytes_per_row) result->resident_bytes_per_row = per_row;
    if (held / (double)rows > result->held_bytes_per_row) {
        result->held_bytes_per_row = held / (double)rows;
    }
}

/* Some inserts elsewhere, so that code and heap are in memory before it is measured. */
static int bench_warm_up(const struct store_bench_opts *opts, struct err *err)
{
    struct bench bench;
    int rc = bench_init(&bench, opts, 20000000, 1000, err);
    for (uint32_t request = 0; rc == 0 && request < 10; request++) {
        for (uint32_t i = 0; i < bench.opts.keys; i++) {
            bench.asked[i] = key_at(&bench, (uint64_t)request * bench.opts.keys + i);
        }
        rc = push_asked(&bench, err);
    }
    bench_fini(&bench);
    return rc;
}

int store_bench_grow(const struct store_bench_opts *opts, struct store_bench_result *result_out,
                     struct err *err)
{
    struct bench bench;
    struct store_bench_result result = {0};
    int rc = bench_warm_up(opts, err);
    if (rc != 0) return rc;
    rc = bench_init(&bench, opts, 20000000, 1000, err);
    const uint64_t resident_before = resident_bytes();
    const uint32_t keys = bench.opts.keys;
    uint64_t total_ns = 0;
    uint64_t slowest_ns = 0;
    uint64_t measure_at = GROW_ROWS_MIN;
    uint64_t made = 0;
    for (; rc == 0 && made + keys <= bench.opts.rows; made += keys) {
        for (uint32_t i = 0; i < keys; i++) bench.asked[i] = key_at(&bench, made + i);
        const uint64_t start = clock_now_ns();
        rc = push_asked(&bench, err);
        const uint64_t took = clock_now_ns() - start;
        total_ns += took;
        if (took > slowest_ns) slowest_ns = took;
        store_tend(bench.store);
        if (made + keys < measure_at) continue;
        measure_memory(&bench, made + keys, resident_before, &result);
        measure_at = (made + keys) * 51 / 50; /* every two hundredths: often within each growth */
    }
    if (rc == 0 && store_table_info(bench.store, bench.table).rows != made) {
        rc = err_set(err, SHOAL_ECORRUPT, "%llu rows were made, not %llu",
                     (unsigned long long)store_table_info(bench.store, bench.table).rows,
                     (unsigned long long)made);
    }
    if (rc == 0 && !store_ok(bench.store))
        rc = err_set(err, SHOAL_ECORRUPT, "the table is damaged");
    if (rc == 0) {
        result.repeats = 1;
        result.rows_per_second[0] = (double)made * 1e9 / (double)(total_ns == 0 ? 1 : total_ns);
        result.rows_per_second_median = result.rows_per_second[0];
        result.request_ms_max = (double)slowest_ns / 1e6;
        *result_out = result;
    }
    bench_fini(&bench);
    return rc;
}
