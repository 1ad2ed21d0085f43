#include "tensor/kern.h"

#include "base/assert.h"

extern const struct kern kern_plain;
extern const struct kern kern_avx2;
extern const struct kern kern_avx512;

const struct kern *kern_get(enum cpu_isa isa)
{
    static const struct kern *const tables[CPU_ISA_COUNT] = {
        [CPU_PLAIN] = &kern_plain,
        [CPU_AVX2] = &kern_avx2,
        [CPU_AVX512] = &kern_avx512,
    };
    ASSERT(isa < CPU_ISA_COUNT);
    return tables[isa];
}

const struct kern *kern_default(void)
{
    return kern_get(cpu_isa());
}

uint32_t kern_rule_slots(enum kern_rule rule)
{
    static const uint32_t slots[KERN_RULE_COUNT] = {
        [KERN_SGD] = 0,     [KERN_MOMENTUM] = 1, [KERN_NESTEROV] = 1, [KERN_ADAGRAD] = 1,
        [KERN_RMSPROP] = 2, [KERN_ADAM] = 2,     [KERN_FTRL] = 2,
    };
    ASSERT(rule < KERN_RULE_COUNT);
    return slots[rule];
}

size_t kern_attn_scratch_count(const struct kern_attn *attn)
{
    /* Weights in padded form and turned, the matrices of one row, a group of positions, sums, and a
     * piece of 512 positions when forward has no other place. */
    const size_t e = ((size_t)attn->e + 15) / 16 * 16;
    const size_t a0 = ((size_t)attn->a0 + 15) / 16 * 16;
    const size_t a1 = ((size_t)attn->a1 + 15) / 16 * 16;
    return 10 * e * a0 + a0 * a1 + (64 + 16) * a0 + e + 48 * a1 + 16 + 512 * (a0 + 1);
}

/* A tile keeps one core busy for some 50 to 200 us on large products; small products are one tile.
 * Tall tiles, as packing a panel of B is paid for by the rows that use it; wide ones where there are
 * few rows. Rows are a multiple of 84 and columns of 64, which the register blocks (14, 6 rows; 32,
 * 16, 8 columns) divide. */
#define TILE_ROWS 252
#define TILE_COLS 64
#define TILE_COLS_FLAT 128 /* with at most TILE_ROWS_FLAT rows */
#define TILE_ROWS_FLAT 64
#define TILE_FLOPS_MIN 4.0e6

struct cut {
    size_t rows;
    size_t cols;
    size_t tiles_m;
    size_t tiles_n;
};

static struct cut cut_of(const struct kern_gemm *job)
{
    struct cut cut = {.rows = job->m, .cols = job->n, .tiles_m = 1, .tiles_n = 1};
    if (2.0 * (double)job->m * (double)job->n * (double)job->k < TILE_FLOPS_MIN) return cut;
    if (cut.rows > TILE_ROWS) cut.rows = TILE_ROWS;
    const size_t cols = job->m <= TILE_ROWS_FLAT ? TILE_COLS_FLAT : TILE_COLS;
    if (cut.cols > cols) cut.cols = cols;
    cut.tiles_m = (job->m + cut.rows - 1) / cut.rows;
    cut.tiles_n = (job->n + cut.cols - 1) / cut.cols;
    return cut;
}

uint32_t kern_gemm_parts(const struct kern_gemm *job)
{
    const struct cut cut = cut_of(job);
    return (uint32_t)(cut.tiles_m * cut.tiles_n);
}

struct kern_gemm kern_gemm_part(const struct kern_gemm *job, uint32_t part)
{
    const struct cut cut = cut_of(job);
    const size_t row = part / cut.tiles_n * cut.rows;
    const size_t col = part % cut.tiles_n * cut.cols;
    ASSERT(part < cut.tiles_m * cut.tiles_n);

    struct kern_gemm tile = *job;
    tile.m = job->m - row < cut.rows ? job->m - row : cut.rows;
    tile.n = job->n - col < cut.cols ? job->n - col : cut.cols;
    tile.a += job->a_trans ? row : row * job->lda;
    tile.b += job->b_trans ? col * job->ldb : col;
    tile.c += row * job->ldc + col;
    if (job->bias != NULL) tile.bias += col;
    if (job->mask != NULL) tile.mask += row * job->ldmask + col;
    return tile;
}

size_t kern_gemm_rows(size_t n, size_t k)
{
    /* About 128 KiB of C, so that it is still in cache when it is handed on; k does not matter. */
    (void)k;
    const size_t rows = 32768 / (n + 1) / 84 * 84;
    return rows < 84 ? 84 : rows;
}
