#include "tensor/kern_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "tensor/kern.h"

#define REPEAT_NS 1000000u /* a repeat runs its case for about so long, at least once */
#define FLOATS ((size_t)1 << 20)

/* The histories of the reference job: 512 rows of 1 to 20 positions over 100 or many items. */
enum { ROWS = 512, LENGTH_MAX = 20, ITEMS = 100, E = 16, A0 = 16, A1 = 8, CHUNK = 64 };

struct bench {
    const struct kern *kern;
    const struct kern_bench_opts *opts;
    kern_bench_cb *cb;
    void *ctx;
    float *x; /* FLOATS each */
    float *y;
    float *z;
    float *u;
    struct kern_gemm gemm;
    struct kern_attn attn;
    struct kern_attn_in in;
    struct batch_ids history;
    struct kern_update update;
    uint32_t offsets[ROWS + 1];
    uint32_t slots[ROWS * LENGTH_MAX];
    float *rows[4096];
    float *save;
    float *scratch;
};

typedef void case_cb(struct bench *bench);

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times `run` and reports work per nanosecond, for a rate, or nanoseconds per work. */
static void measure(struct bench *bench, const char *name, const char *unit, double work,
                    case_cb *run)
{
    if (bench->opts->only != NULL && strstr(name, bench->opts->only) == NULL) return;
    double values[KERN_BENCH_REPEATS_MAX];
    const uint32_t repeats = bench->opts->repeats == 0 ? 15
                             : bench->opts->repeats > KERN_BENCH_REPEATS_MAX
                                 ? KERN_BENCH_REPEATS_MAX
                                 : bench->opts->repeats;
    run(bench);
    uint64_t start = clock_now_ns();
    run(bench);
    const uint32_t calls = 1 + (uint32_t)(REPEAT_NS / (clock_now_ns() - start + 1));
    for (uint32_t i = 0; i < repeats; i++) {
        start = clock_now_ns();
        for (uint32_t j = 0; j < calls; j++) run(bench);
        values[i] = (double)(clock_now_ns() - start) / calls;
    }
    qsort(values, repeats, sizeof *values, compare);
    const double fast = values[0];
    const double slow = values[repeats - 1];
    const bool rate = strcmp(unit, "GFLOP/s") == 0;
    const struct kern_bench_result result = {
        .name = name,
        .unit = unit,
        .median = rate ? work / values[repeats / 2] : values[repeats / 2] / work,
        .min = rate ? work / slow : fast / work,
        .max = rate ? work / fast : slow / work,
        .repeats = repeats,
    };
    bench->cb(bench->ctx, &result);
}

static void run_gemm(struct bench *bench)
{
    bench->kern->gemm(&bench->gemm);
}

/* The three products of a dense layer. */
static void measure_dense(struct bench *bench, size_t batch, size_t in, size_t out)
{
    const double flop = 2.0 * (double)batch * (double)in * (double)out;
    char name[80];
    bench->gemm = (struct kern_gemm){
        .a = bench->x,
        .lda = in,
        .b = bench->y,
        .ldb = out,
        .c = bench->z,
        .ldc = out,
        .m = batch,
        .n = out,
        .k = in,
        .bias = bench->u,
        .act = KERN_RELU,
    };
    snprintf(name, sizeof name, "gemm %zux%zux%zu forward", batch, in, out);
    measure(bench, name, "GFLOP/s", flop, run_gemm);
    bench->gemm = (struct kern_gemm){
        .a = bench->x,
        .lda = out,
        .b = bench->y,
        .ldb = out,
        .b_trans = true,
        .c = bench->z,
        .ldc = in,
        .m = batch,
        .n = in,
        .k = out,
        .mask = bench->u,
        .ldmask = in,
    };
    snprintf(name, sizeof name, "gemm %zux%zux%zu dinput", batch, in, out);
    measure(bench, name, "GFLOP/s", flop, run_gemm);
    bench->gemm = (struct kern_gemm){
        .a = bench->x,
        .lda = in,
        .a_trans = true,
        .b = bench->y,
        .ldb = out,
        .c = bench->z,
        .ldc = out,
        .m = in,
        .n = out,
        .k = batch,
    };
    snprintf(name, sizeof name, "gemm %zux%zux%zu dweight", batch, in, out);
    measure(bench, name, "GFLOP/s", flop, run_gemm);
}

static void attn_init(struct bench *bench)
{
    for (uint32_t i = 0; i < ROWS; i++)
        bench->offsets[i + 1] =
            bench->offsets[i] + 1 + (uint32_t)rand_below(1, RAND_TEST, 0, i, LENGTH_MAX);
    for (uint32_t i = 0; i < bench->offsets[ROWS]; i++)
        bench->slots[i] = (uint32_t)rand_below(1, RAND_TEST, 1, i, ITEMS);
    bench->history = (struct batch_ids){
        .offsets = bench->offsets, .slots = bench->slots, .count = bench->offsets[ROWS]};
    const float *w = bench->y;
    bench->attn = (struct kern_attn){.e = E,
                                     .a0 = A0,
                                     .a1 = A1,
                                     .w0 = w,
                                     .b0 = w + 4 * E * A0,
                                     .w1 = w + 2048,
                                     .b1 = w + 3072,
                                     .w2 = w + 3200,
                                     .b2 = w + 3300};
    bench->in = (struct kern_attn_in){.rows = bench->x,
                                      .ldrows = E,
                                      .history = &bench->history,
                                      .target = bench->x + 100000,
                                      .ldtarget = E};
}

static void run_attn_forward(struct bench *bench)
{
    struct kern_attn_in in = bench->in;
    for (in.row_begin = 0; in.row_begin < ROWS; in.row_begin += CHUNK) {
        in.row_end = in.row_begin + CHUNK;
        bench->kern->attn_forward(&bench->attn, &in, bench->z, E, bench->save, bench->scratch);
    }
}

/* Backward consumes what forward kept, so the two are measured together. */
static void run_attn_both(struct bench *bench)
{
    const struct kern_attn_grad grad = {
        .dout = bench->u,
        .lddout = E,
        .save = bench->save,
        .dhistory = bench->z + 100000,
        .lddhistory = E,
        .dtarget = bench->z + 50000,
        .lddtarget = E,
        .dweights = bench->z + 80000,
    };
    run_attn_forward(bench);
    struct kern_attn_in in = bench->in;
    for (in.row_begin = 0; in.row_begin < ROWS; in.row_begin += CHUNK) {
        in.row_end = in.row_begin + CHUNK;
        bench->kern->attn_backward(&bench->attn, &in, &grad, bench->scratch);
    }
}

static void run_update(struct bench *bench)
{
    bench->kern->update(&bench->update, 667000, bench->x, bench->y, bench->z, bench->u);
}

static void run_update_rows(struct bench *bench)
{
    bench->kern->update_rows(&bench->update, 4096, E, E, bench->rows, bench->u, E);
}

static void run_dropout(struct bench *bench)
{
    const struct kern_dropout dropout = {.rate = 0.3f, .what = RAND_DROPOUT};
    bench->kern->dropout_forward(&dropout, ROWS * 64, bench->x, bench->z,
                                 (uint32_t *)bench->scratch);
}

static void run_loss(struct bench *bench)
{
    bench->kern->loss_sigmoid(ROWS, bench->x, bench->y, NULL, 1, bench->z, bench->z + ROWS);
}

static void run_sigmoid(struct bench *bench)
{
    bench->kern->act_forward(KERN_SIGMOID, ROWS, 64, bench->x, 64, NULL, bench->z, 64);
}

static void run_dot(struct bench *bench)
{
    bench->kern->dot_forward(ROWS, 27, E, bench->x, 27 * E, bench->z, 351);
}

static void run_finite(struct bench *bench)
{
    (void)bench->kern->is_finite(667000, bench->x);
}

static void run_all(struct bench *bench)
{
    static const size_t shapes[][3] = {{512, 784, 500}, {512, 500, 500}, {512, 500, 10},
                                       {32, 784, 500},  {32, 500, 500},  {32, 500, 10},
                                       {512, 54, 64},   {512, 64, 16},   {512, 16, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure_dense(bench, shapes[i][0], shapes[i][1], shapes[i][2]);
    attn_init(bench);
    measure(bench, "attention 512 rows forward", "us", 1e3, run_attn_forward);
    measure(bench, "attention 512 rows forward and backward", "us", 1e3, run_attn_both);
    bench->update = (struct kern_update){.rule = KERN_ADAM,
                                         .lr = 1e-6f,
                                         .scale = 1,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.999f,
                                         .epsilon = 1e-7f};
    measure(bench, "adam 667000 elements", "ns/element", 667000, run_update);
    bench->update.rule = KERN_ADAGRAD;
    for (size_t i = 0; i < 4096; i++) bench->rows[i] = bench->x + i * 32;
    measure(bench, "adagrad 4096 rows of 16", "ns/row", 4096, run_update_rows);
    measure(bench, "dropout 512x64", "us", 1e3, run_dropout);
    measure(bench, "sigmoid 512x64", "us", 1e3, run_sigmoid);
    measure(bench, "sigmoid loss 512", "us", 1e3, run_loss);
    measure(bench, "pairwise dots 512 rows of 27x16", "us", 1e3, run_dot);
    measure(bench, "is finite 667000 elements", "us", 1e3, run_finite);
}

int kern_bench(const struct kern_bench_opts *opts, kern_bench_cb *cb, void *ctx, struct err *err)
{
    struct bench *bench = mem_alloc(MEM_TENSOR, sizeof *bench);
    float *memory = mem_alloc_array(MEM_TENSOR, 6 * FLOATS, sizeof(float));
    int rc = 0;
    if (bench == NULL || memory == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "benchmark of kernels: %zu floats", 6 * FLOATS);
        goto out;
    }
    /* Positive, so that every array can be a sum of squares. */
    for (size_t i = 0; i < 6 * FLOATS; i++)
        memory[i] = 0.01f + 0.1f * rand_unit((uint32_t)(i * 2654435761u));
    *bench = (struct bench){.kern = kern_default(),
                            .opts = opts,
                            .cb = cb,
                            .ctx = ctx,
                            .x = memory,
                            .y = memory + FLOATS,
                            .z = memory + 2 * FLOATS,
                            .u = memory + 3 * FLOATS,
                            .save = memory + 4 * FLOATS,
                            .scratch = memory + 5 * FLOATS};
    run_all(bench);
out:
    mem_free(bench);
    mem_free(memory);
    return rc;
}
