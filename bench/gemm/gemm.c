/* One-thread sgemm rates of our kernel and of libraries, on the layer shapes of MLP and DIN.
 * usage: gemm ours|cblas|dnnl [LIBRARY.so] [--repeats N]
 * Prints one JSON object per shape and kind: nn is y = x w, dx is dy w^T, dw is x^T dy, w stored
 * in x out. Each library is loaded by name, so that the harness builds without any of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/kern.h"

#define FLOATS_MAX ((size_t)1 << 20) /* of the largest matrix */

enum kind { NN, DX, DW, KINDS };

typedef void cblas_sgemm_cb(int order, int ta, int tb, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);
typedef int dnnl_sgemm_cb(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
                          const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                          float *c, int64_t ldc);

static cblas_sgemm_cb *cblas;
static dnnl_sgemm_cb *dnnl;

static void run(const struct kern_gemm *job)
{
    if (cblas != NULL) {
        cblas(101, job->a_trans ? 112 : 111, job->b_trans ? 112 : 111, (int)job->m, (int)job->n,
              (int)job->k, 1, job->a, (int)job->lda, job->b, (int)job->ldb, 0, job->c,
              (int)job->ldc);
    } else if (dnnl != NULL) {
        dnnl(job->a_trans ? 'T' : 'N', job->b_trans ? 'T' : 'N', (int64_t)job->m, (int64_t)job->n,
             (int64_t)job->k, 1, job->a, (int64_t)job->lda, job->b, (int64_t)job->ldb, 0, job->c,
             (int64_t)job->ldc);
    } else {
        kern_default()->gemm(job);
    }
}

static struct kern_gemm job_of(enum kind kind, size_t batch, size_t in, size_t out, float *x,
                               float *w, float *y)
{
    if (kind == DX)
        return (struct kern_gemm){ .a = y, .lda = out, .b = w, .ldb = out, .b_trans = true,
                                   .c = x, .ldc = in, .m = batch, .n = in, .k = out };
    if (kind == DW)
        return (struct kern_gemm){ .a = x, .lda = in, .a_trans = true, .b = y, .ldb = out,
                                   .c = w, .ldc = out, .m = in, .n = out, .k = batch };
    return (struct kern_gemm){ .a = x, .lda = in, .b = w, .ldb = out,
                               .c = y, .ldc = out, .m = batch, .n = out, .k = in };
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, enum kind kind, const uint32_t shape[3], uint32_t repeats)
{
    static const char *const names[KINDS] = { "nn", "dx", "dw" };
    static float memory[3][FLOATS_MAX];
    double rates[64];
    const struct kern_gemm job =
        job_of(kind, shape[0], shape[1], shape[2], memory[0], memory[1], memory[2]);
    const double flop = 2.0 * shape[0] * shape[1] * shape[2];
    const uint32_t calls = (uint32_t)(1e8 / flop) + 1;
    for (size_t i = 0; i < 3 * FLOATS_MAX; i++) memory[i / FLOATS_MAX][i % FLOATS_MAX] = 0.1f;
    for (uint32_t i = 0; i < calls / 4 + 1; i++) run(&job);
    for (uint32_t q = 0; q < repeats; q++) {
        const uint64_t start = clock_now_ns();
        for (uint32_t i = 0; i < calls; i++) run(&job);
        rates[q] = flop * calls / (double)(clock_now_ns() - start);
    }
    qsort(rates, repeats, sizeof *rates, compare);
    printf("{\"bench\":\"sgemm\",\"case\":\"%s %ux%ux%u %s\",\"value\":%.1f,\"unit\":\"GFLOP/s\","
           "\"min\":%.1f,\"max\":%.1f,\"repeats\":%u}\n",
           name, shape[0], shape[1], shape[2], names[kind], rates[repeats / 2], rates[0],
           rates[repeats - 1], repeats);
}

int main(int argc, char **argv)
{
    static const uint32_t shapes[][3] = { { 512, 784, 500 }, { 512, 500, 500 }, { 512, 500, 10 },
                                          { 32, 784, 500 },  { 32, 500, 500 },  { 32, 500, 10 },
                                          { 512, 54, 64 },   { 512, 64, 16 },   { 512, 16, 1 } };
    const uint32_t repeats = 41;
    if (argc > 2) {
        void *library = dlopen(argv[2], RTLD_NOW);
        void *symbol = library == NULL ? NULL : dlsym(library, argv[1]);
        if (symbol == NULL) {
            fprintf(stderr, "gemm: %s\n", dlerror());
            return 1;
        }
        if (strcmp(argv[1], "dnnl_sgemm") == 0) {
            memcpy(&dnnl, &symbol, sizeof symbol);
        } else {
            memcpy(&cblas, &symbol, sizeof symbol);
        }
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (enum kind kind = NN; kind < KINDS; kind++)
            measure(argc > 2 ? argv[2] : kern_default()->name, kind, shapes[s], repeats);
    return 0;
}
