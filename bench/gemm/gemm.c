/* One-thread sgemm rates of our kernel and of libraries, on the layer shapes of MLP and DIN.
 * usage: gemm [NAME FUNCTION LIBRARY.so]     FUNCTION: cblas_sgemm, dnnl_sgemm, libxsmm_smmdispatch
 * Prints one JSON object per shape and kind: forward is y = x w, dinput dy w^T, dweight x^T dy, with
 * w stored in x out. Libraries are loaded at run time, so that the harness builds without any of
 * them. libxsmm makes a kernel per shape and has none for transposed operands or large shapes. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/kern.h"

#define FLOATS_MAX ((size_t)1 << 20) /* of the largest matrix */

enum kind { FORWARD, DINPUT, DWEIGHT, KINDS };

typedef void cblas_cb(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef int dnnl_cb(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef void xsmm_kernel_cb(const float *a, const float *b, float *c, ...);
typedef xsmm_kernel_cb *xsmm_cb(int m, int n, int k, const int *lda, const int *ldb, const int *ldc,
                                const float *alpha, const float *beta, const int *flags,
                                const int *prefetch);

static cblas_cb *cblas;
static dnnl_cb *dnnl;
static xsmm_cb *xsmm;
static xsmm_kernel_cb *xsmm_kernel;

/* Before the first run of a job; false where the library cannot do it. */
static bool prepare(const struct kern_gemm *job)
{
    if (xsmm == NULL) return true;
    if (job->a_trans || job->b_trans) return false;
    const int lda = (int)job->ldb, ldb = (int)job->lda, ldc = (int)job->ldc;
    const float one = 1, zero = 0;
    xsmm_kernel =
        xsmm((int)job->n, (int)job->m, (int)job->k, &lda, &ldb, &ldc, &one, &zero, NULL, NULL);
    return xsmm_kernel != NULL;
}

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
    } else if (xsmm != NULL) { /* Column-major: the transposed product. */
        xsmm_kernel(job->b, job->a, job->c);
    } else {
        kern_default()->gemm(job);
    }
}

static struct kern_gemm job_of(enum kind kind, size_t batch, size_t in, size_t out, float *x,
                               float *w, float *y)
{
    if (kind == DINPUT)
        return (struct kern_gemm){.a = y,
                                  .lda = out,
                                  .b = w,
                                  .ldb = out,
                                  .b_trans = true,
                                  .c = x,
                                  .ldc = in,
                                  .m = batch,
                                  .n = in,
                                  .k = out};
    if (kind == DWEIGHT)
        return (struct kern_gemm){.a = x,
                                  .lda = in,
                                  .a_trans = true,
                                  .b = y,
                                  .ldb = out,
                                  .c = w,
                                  .ldc = out,
                                  .m = in,
                                  .n = out,
                                  .k = batch};
    return (struct kern_gemm){
        .a = x, .lda = in, .b = w, .ldb = out, .c = y, .ldc = out, .m = batch, .n = out, .k = in};
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, enum kind kind, const uint32_t shape[3], uint32_t repeats)
{
    static const char *const names[KINDS] = {"forward", "dinput", "dweight"};
    static float memory[3][FLOATS_MAX];
    double rates[64];
    const struct kern_gemm job =
        job_of(kind, shape[0], shape[1], shape[2], memory[0], memory[1], memory[2]);
    const double flop = 2.0 * shape[0] * shape[1] * shape[2];
    const uint32_t calls = (uint32_t)(5e7 / flop) + 1;
    if (!prepare(&job)) return;
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

static bool load(const char *function, const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library == NULL ? NULL : dlsym(library, function);
    if (symbol == NULL) {
        fprintf(stderr, "gemm: %s\n", dlerror());
        return false;
    }
    if (strcmp(function, "dnnl_sgemm") == 0) {
        memcpy(&dnnl, &symbol, sizeof symbol);
    } else if (strcmp(function, "libxsmm_smmdispatch") == 0) {
        memcpy(&xsmm, &symbol, sizeof symbol);
    } else {
        memcpy(&cblas, &symbol, sizeof symbol);
    }
    return true;
}

int main(int argc, char **argv)
{
    static const uint32_t shapes[][3] = {{512, 784, 500}, {512, 500, 500}, {512, 500, 10},
                                         {32, 784, 500},  {32, 500, 500},  {32, 500, 10},
                                         {512, 54, 64},   {512, 64, 16},   {512, 16, 1}};
    const uint32_t repeats = 61;
    if (argc == 4 && !load(argv[2], argv[3])) return 1;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (enum kind kind = FORWARD; kind < KINDS; kind++)
            measure(argc == 4 ? argv[1] : kern_default()->name, kind, shapes[s], repeats);
    return 0;
}
