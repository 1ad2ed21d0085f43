#include "tensor/kern_check.h"

struct shape {
    size_t m, n, k;
};

static const struct shape shapes[] = {
    {1, 1, 1},      {3, 5, 7},     {14, 32, 256}, {15, 33, 257},  {13, 31, 255}, {6, 16, 4},
    {7, 17, 5},     {29, 1, 16},   {1, 64, 100},  {32, 100, 784}, {64, 10, 50},  {54, 64, 33},
    {170, 40, 300}, {32, 130, 40}, {5, 70, 600},  {2, 3, 0},
};

/* The job of a shape, with some room between rows, on fresh random arrays. */
static struct kern_gemm job_of(const struct shape *shape, uint32_t flags)
{
    struct kern_gemm job = {
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .a_trans = flags & 1,
        .b_trans = flags & 2,
        .add = flags & 4,
    };
    const size_t a_rows = job.a_trans ? job.k : job.m;
    const size_t b_rows = job.b_trans ? job.n : job.k;
    job.lda = (job.a_trans ? job.m : job.k) + (flags & 8 ? 3 : 0);
    job.ldb = (job.b_trans ? job.k : job.n) + (flags & 8 ? 1 : 0);
    job.ldc = job.n + (flags & 8 ? 5 : 0);
    job.ldmask = job.n + (flags & 8 ? 2 : 0);
    job.a = array_random(a_rows * job.lda, 1);
    job.b = array_random(b_rows * job.ldb, 2);
    job.c = array_random(job.m * job.ldc, 3);
    if (flags & 16) job.bias = array_random(job.n, 4);
    if (flags & 32) job.act = KERN_RELU;
    if (flags & 64) job.mask = array_random(job.m * job.ldmask, 5);
    return job;
}

static void check_job(const struct kern *kern, const struct kern_gemm *job)
{
    const size_t count = job->m * job->ldc;
    struct kern_gemm want = *job;
    struct kern_gemm got = *job;
    want.c = array_copy(count, job->c);
    got.c = array_copy(count, job->c);
    kern_ref.gemm(&want);
    kern->gemm(&got);
    check_close("gemm", kern, count, got.c, want.c, 2e-6 * sqrt((double)job->k + 1));
}

/* Every way of storing, adding and finishing gives the reference's product, at every shape, and
 * nothing is written between the rows of C. */
TEST(gemm_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            /* All 128 ways for small products, every eleventh for large ones. */
            const bool large = shapes[s].m * shapes[s].n * shapes[s].k > 100000;
            for (uint32_t flags = 0; flags < 128; flags += large ? 11 : 1) {
                const struct kern_gemm job = job_of(&shapes[s], flags);
                check_job(kern, &job);
                arrays_free();
            }
        }
    }
}

TEST(gemm_applies_every_activation)
{
    EACH_KERN(kern)
    {
        for (enum kern_act act = KERN_NONE; act <= KERN_TANH; act++) {
            struct kern_gemm job = job_of(&(struct shape){9, 37, 20}, 8 | 16);
            job.act = act;
            check_job(kern, &job);
            arrays_free();
        }
    }
}

/* Any cut of rows and columns gives the same bits, also where the cut changes the way that is
 * taken inside (few rows with B stored transposed). */
TEST(gemm_bits_do_not_depend_on_the_cut)
{
    EACH_KERN(kern)
    {
        for (uint32_t flags = 0; flags < 8; flags++) {
            const struct kern_gemm job = job_of(&(struct shape){75, 90, 520}, flags | 16 | 64);
            struct kern_gemm whole = job;
            whole.c = array_copy(job.m * job.ldc, job.c);
            kern->gemm(&whole);
            for (size_t row = 0; row < job.m; row += 11) {
                for (size_t col = 0; col < job.n; col += 37) {
                    struct kern_gemm piece = job;
                    piece.m = job.m - row < 11 ? job.m - row : 11;
                    piece.n = job.n - col < 37 ? job.n - col : 37;
                    piece.a += job.a_trans ? row : row * job.lda;
                    piece.b += job.b_trans ? col * job.ldb : col;
                    piece.c += row * job.ldc + col;
                    piece.bias += col;
                    piece.mask += row * job.ldmask + col;
                    kern->gemm(&piece);
                }
            }
            CHECK(memcmp(whole.c, job.c, job.m * job.ldc * sizeof(float)) == 0);
            arrays_free();
        }
    }
}

/* The parts cover C once, for products large and small. */
TEST(gemm_parts_make_the_whole)
{
    static const struct shape sizes[] = {
        {1, 1, 1}, {512, 500, 784}, {32, 500, 784}, {500, 10, 512}, {1000, 1, 4000},
    };
    const struct kern *kern = kern_default();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t flags = 0; flags < 4; flags++) {
            const struct kern_gemm job = job_of(&sizes[s], flags | 16 | 64);
            struct kern_gemm whole = job;
            whole.c = array_random(job.m * job.ldc, 9);
            kern->gemm(&whole);
            const uint32_t parts = kern_gemm_parts(&job);
            CHECK(parts >= 1);
            for (uint32_t part = 0; part < parts; part++) {
                const struct kern_gemm piece = kern_gemm_part(&job, part);
                kern->gemm(&piece);
            }
            CHECK(memcmp(whole.c, job.c, job.m * job.ldc * sizeof(float)) == 0);
            arrays_free();
        }
    }
}
