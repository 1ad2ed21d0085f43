/* C (m,n) = A (m,k) B (k,n) by register tiles of MR rows and NR columns.
 *
 *            NR                  for each block of k (KC long)
 *          +-----+                 for each block of rows (MC), A packed if that pays
 *          |     | B panel           for each panel of NR columns: B packed, if that pays
 *       KC |     |                     for each MR rows: one tile of C in registers
 *          |     |
 *   +------+-----+               The B panel stays in the first-level cache while tiles of A go
 * MR| A    |  C  |               by; a tile does MR * NR multiply-adds for MR + NR loads.
 *   +------+-----+
 *
 * A is read in place where its rows are stored (each row is a stream, reached from a few pointers)
 * and where few columns of it are; it is packed where that would fill the cache with lines used in
 * part, or where its rows lie a multiple of 4 KiB apart and would push each other out. A product
 * with B stored transposed and few rows of A is turned round: C^T = B^T A^T reads the large B^T in
 * place, packs the small A^T and turns each tile of C in registers, so that the large operand is
 * never copied.
 *
 * An element is the sum over its blocks of k, in order, each summed from 0 in the order of k.
 * Blocks depend on k alone, so the cut of rows and columns never shows in the result. */
#include "tensor/isa.h"

#include <string.h>

#include "base/assert.h"

#if defined(ISA_avx512)
#define MR 14 /* 28 sums, 2 of B, 1 of A: 31 of 32 registers */
#else
#define MR 6 /* 12 sums, 2 of B, 1 of A: 15 of 16 registers */
#endif
#define NV 2
#define NR (NV * VF)
#define SLOT ((MR + VF - 1) / VF * VF) /* floats that packed A has per step of k */
#define KC 320
#define MC 168            /* rows of A packed at once: a multiple of 14 and 6 */
#define ROWS_IN_PLACE 100 /* so few rows of A do not pay for packing B */
#define KC_IN_PLACE 64
#define LD_ALIAS 1024

/* Where a tile of C goes and what is done on the way. rows, cols: how much of it exists. */
struct tile {
    float *c;
    size_t ldc;
    size_t rows;
    size_t cols;
    const float *bias;
    const float *mask;
    size_t ldmask;
    bool load; /* add to what is in C */
    bool last; /* the last block of k: bias, activation and mask apply */
    bool relu;
    bool turned; /* C^T: rows of the tile are columns of C */
};

/* What happens to a finished sum of C at (row, col) of the tile. */
INLINE vf finish(const struct tile *tile, vf x, size_t row, size_t col, size_t cols)
{
    const size_t c_at = row * tile->ldc + col;
    if (tile->load) x = vf_add(vf_load_tail(tile->c + c_at, cols), x);
    if (!tile->last) return x;
    if (tile->bias != NULL) x = vf_add(x, vf_load_tail(tile->bias + col, cols));
    if (tile->relu) x = vf_relu(x);
    if (tile->mask != NULL) {
        const vf mask = vf_load_tail(tile->mask + row * tile->ldmask + col, cols);
        x = vf_keep(vf_gt(mask, vf_zero()), x);
    }
    return x;
}

static void store_edge(const struct tile *tile, const float *sums)
{
    for (size_t i = 0; i < tile->rows; i++) {
        for (size_t j = 0; j < tile->cols; j += VF) {
            const size_t cols = tile->cols - j < VF ? tile->cols - j : VF;
            const vf x = finish(tile, vf_load(sums + i * NR + j), i, j, cols);
            vf_store_tail(tile->c + i * tile->ldc + j, x, cols);
        }
    }
}

/* The tile's columns are rows of C: squares of VF x VF are turned in registers. */
static void store_turned(const struct tile *tile, const float *sums)
{
    for (size_t i0 = 0; i0 < tile->rows; i0 += VF) {
        const size_t cols = tile->rows - i0 < VF ? tile->rows - i0 : VF;
        for (size_t j0 = 0; j0 < tile->cols; j0 += VF) {
            const size_t rows = tile->cols - j0 < VF ? tile->cols - j0 : VF;
            vf square[VF];
            for (size_t i = 0; i < VF; i++)
                square[i] = i < cols ? vf_load(sums + (i0 + i) * NR + j0) : vf_zero();
            vf_transpose(square);
            for (size_t j = 0; j < rows; j++) {
                const vf x = finish(tile, square[j], j0 + j, i0, cols);
                vf_store_tail(tile->c + (j0 + j) * tile->ldc + i0, x, cols);
            }
        }
    }
}

INLINE void store(const struct tile *tile, vf sums[][NV], size_t mr, size_t nv)
{
    if (tile->turned || tile->cols < nv * VF) { /* Through memory. */
        float memory[MR * NR];
        for (size_t i = 0; i < mr; i++)
            for (size_t v = 0; v < nv; v++) vf_store(memory + i * NR + v * VF, sums[i][v]);
        (tile->turned ? store_turned : store_edge)(tile, memory);
        return;
    }
    if (!tile->load && (!tile->last || (tile->bias == NULL && !tile->relu && tile->mask == NULL))) {
        for (size_t i = 0; i < mr; i++)
            for (size_t v = 0; v < nv; v++) vf_store(tile->c + i * tile->ldc + v * VF, sums[i][v]);
        return;
    }
    for (size_t i = 0; i < mr; i++)
        for (size_t v = 0; v < nv; v++)
            vf_store(tile->c + i * tile->ldc + v * VF, finish(tile, sums[i][v], i, v * VF, VF));
}

/* One tile: the sums of A B over kc. In columns, A has its mr values of one k side by side and the
 * next k lda further on. In rows, they are lda apart, reached from every third row with lda as index,
 * as addresses have room for. */
INLINE void micro(size_t mr, size_t nv, bool columns, size_t kc, const float *a, size_t lda,
                  const float *b, size_t ldb, const struct tile *tile)
{
    vf sums[MR][NV];
    for (size_t i = 0; i < mr; i++)
        for (size_t v = 0; v < nv; v++) sums[i][v] = vf_zero();
    const float *third[(MR + 2) / 3];
    for (size_t i = 0; i < mr && !columns; i += 3) {
        third[i / 3] = a + i * lda;
        __asm__("" : "+r"(third[i / 3])); /* Keeps the compiler from a pointer per row. */
    }
    for (size_t l = 0; l < kc; l++) {
        vf bv[NV];
        for (size_t v = 0; v < nv; v++) bv[v] = vf_load(b + v * VF);
        b += ldb;
        for (size_t i = 0; i < mr; i++) {
            const vf av = vf_set(columns ? a[i] : third[i / 3][i % 3 * lda]);
            for (size_t v = 0; v < nv; v++) sums[i][v] = vf_fma(av, bv[v], sums[i][v]);
        }
        if (columns) {
            a += lda;
        } else {
            for (size_t i = 0; i < mr; i += 3) third[i / 3]++;
        }
    }
    store(tile, sums, mr, nv);
}

typedef void micro_cb(size_t kc, const float *a, size_t lda, const float *b, size_t ldb,
                      const struct tile *tile);

#define MICRO(name, rows, nv, columns)                                                             \
    static void name##_##rows(size_t kc, const float *a, size_t lda, const float *b, size_t ldb,   \
                              const struct tile *tile)                                             \
    {                                                                                              \
        micro(rows, nv, columns, kc, a, lda, b, ldb, tile);                                        \
    }
#define MICROS(rows)                                                                               \
    MICRO(rows1, rows, 1, false)                                                                   \
    MICRO(rows2, rows, 2, false) MICRO(columns1, rows, 1, true) MICRO(columns2, rows, 2, true)

MICROS(1)
MICROS(2)
MICROS(4)
#if MR == 14
MICROS(8)
MICROS(14)
#else
MICROS(6)
#endif

/* Tiles by how many rows they have, the largest first: the rows that are left over are made up from
 * the smaller ones. Then by whether A is in columns, and the vectors in a row. */
#define FOUR(rows)                                                                                 \
    {                                                                                              \
        rows,                                                                                      \
        {                                                                                          \
            {rows1_##rows, rows2_##rows},                                                          \
            {                                                                                      \
                columns1_##rows, columns2_##rows                                                   \
            }                                                                                      \
        }                                                                                          \
    }

static const struct {
    size_t rows;
    micro_cb *run[2][2];
} micros[] = {
#if MR == 14
    FOUR(14), FOUR(8),
#else
    FOUR(6),
#endif
    FOUR(4),  FOUR(2), FOUR(1),
};

/* Copies a (kc, cols) panel stored with rows ld apart; the missing columns become 0. */
static void pack_rows(size_t kc, size_t cols, size_t width, const float *x, size_t ld, float *to)
{
    for (size_t l = 0; l < kc; l++, x += ld, to += width) {
        for (size_t j = 0; j < width; j += VF) {
            const vf v = j + VF <= cols ? vf_load(x + j)
                         : j < cols     ? vf_loadn(x + j, cols - j)
                                        : vf_zero();
            vf_store(to + j, v);
        }
    }
}

/* The same for a panel stored as (cols, kc): squares are turned in registers. */
static void pack_cols(size_t kc, size_t cols, size_t width, const float *x, size_t ld, float *to)
{
    for (size_t j0 = 0; j0 < width; j0 += VF) {
        const size_t have = cols < j0 ? 0 : cols - j0;
        size_t l = 0;
        for (; l + VF <= kc; l += VF) {
            vf square[VF];
            for (size_t j = 0; j < VF; j++)
                square[j] = j < have ? vf_load(x + (j0 + j) * ld + l) : vf_zero();
            vf_transpose(square);
            for (size_t i = 0; i < VF; i++) vf_store(to + (l + i) * width + j0, square[i]);
        }
        for (; l < kc; l++)
            for (size_t j = 0; j < VF; j++)
                to[l * width + j0 + j] = j < have ? x[(j0 + j) * ld + l] : 0;
    }
}

/* Packs rows of A for tiles of MR rows, one after another; trans: A is stored (k, rows). */
static void pack_a(size_t rows, size_t kc, const float *a, size_t lda, bool trans, float *to)
{
    for (size_t i = 0; i < rows; i += MR, to += kc * SLOT) {
        const size_t mr = rows - i < MR ? rows - i : MR;
        if (trans) {
            pack_rows(kc, mr, SLOT, a + i, lda, to);
        } else {
            pack_cols(kc, mr, SLOT, a + i * lda, lda, to);
        }
    }
}

/* How the rows of A are reached: in columns or rows; packed in groups of MR or not. */
struct rows {
    const float *a;
    size_t lda;
    bool columns;
    bool packed;
};

/* One panel of B against all rows of a block. */
static void panel(const struct tile *first, size_t kc, const struct rows *x, const float *b,
                  size_t ldb)
{
    const size_t nv = first->cols > VF ? 2 : 1;
    struct tile tile = *first;
    for (size_t row = 0, kind = 0; row < first->rows; row += tile.rows) {
        while (micros[kind].rows > first->rows - row) kind++;
        tile.rows = micros[kind].rows;
        const float *a = x->packed    ? x->a + row / MR * kc * SLOT + row % MR
                         : x->columns ? x->a + row
                                      : x->a + row * x->lda;
        micros[kind].run[x->columns][nv - 1](kc, a, x->lda, b, ldb, &tile);
        if (tile.turned) {
            tile.c += tile.rows;
            if (tile.bias != NULL) tile.bias += tile.rows;
            if (tile.mask != NULL) tile.mask += tile.rows;
        } else {
            tile.c += tile.rows * tile.ldc;
            if (tile.mask != NULL) tile.mask += tile.rows * tile.ldmask;
        }
    }
}

/* The job as the loops see it: x is the operand of rows, y that of columns. */
struct product {
    const float *x;
    size_t ldx;
    size_t rows;
    bool x_trans; /* stored (k, rows) */
    const float *y;
    size_t ldy;
    size_t cols;
    bool y_trans; /* stored (cols, k) */
    bool turned;
};

static struct product product_of(const struct kern_gemm *job)
{
    struct product p = {
        .x = job->a,
        .ldx = job->lda,
        .rows = job->m,
        .x_trans = job->a_trans,
        .y = job->b,
        .ldy = job->ldb,
        .cols = job->n,
        .y_trans = job->b_trans,
    };
    if (job->b_trans && !job->a_trans && job->m * 2 <= job->n) {
        p = (struct product){
            .x = job->b,
            .ldx = job->ldb,
            .rows = job->n,
            .y = job->a,
            .ldy = job->lda,
            .cols = job->m,
            .y_trans = true,
            .turned = true,
        };
    }
    return p;
}

static struct tile tile_of(const struct kern_gemm *job, const struct product *p, size_t row,
                           size_t col, size_t rows, size_t l0, size_t kc)
{
    const size_t c_row = p->turned ? col : row;
    const size_t c_col = p->turned ? row : col;
    return (struct tile){
        .c = job->c + c_row * job->ldc + c_col,
        .ldc = job->ldc,
        .rows = rows,
        .cols = p->cols - col < NR ? p->cols - col : NR,
        .bias = job->bias == NULL ? NULL : job->bias + c_col,
        .mask = job->mask == NULL ? NULL : job->mask + c_row * job->ldmask + c_col,
        .ldmask = job->ldmask,
        .load = job->add || l0 > 0,
        .last = l0 + kc == job->k,
        .relu = job->act == KERN_RELU,
        .turned = p->turned,
    };
}

/* All of C for one block of k, l0 .. l0 + kc. */
static void block(const struct kern_gemm *job, const struct product *p, size_t l0, size_t kc)
{
    _Alignas(64) float pack_y[KC * NR];
    _Alignas(64) float pack_x[MC / MR * SLOT * KC];
    const float *x = p->x + (p->x_trans ? l0 * p->ldx : l0);
    const float *y = p->y + (p->y_trans ? l0 : l0 * p->ldy);
    struct rows rows = {.lda = p->ldx, .columns = p->x_trans};
    rows.packed = (p->x_trans && kc > KC_IN_PLACE) || p->ldx % LD_ALIAS == 0;
    if (rows.packed) rows = (struct rows){.lda = SLOT, .columns = true, .packed = true};
    const size_t mc = rows.packed ? MC : p->rows;
    for (size_t i = 0; i < p->rows; i += mc) {
        const size_t count = p->rows - i < mc ? p->rows - i : mc;
        rows.a = x + (p->x_trans ? i : i * p->ldx);
        if (rows.packed) {
            pack_a(count, kc, rows.a, p->ldx, p->x_trans, pack_x);
            rows.a = pack_x;
        }
        for (size_t j = 0; j < p->cols; j += NR) {
            const struct tile tile = tile_of(job, p, i, j, count, l0, kc);
            const size_t width = tile.cols > VF ? NR : VF;
            if (!p->y_trans && tile.cols == NR && count <= ROWS_IN_PLACE) {
                panel(&tile, kc, &rows, y + j, p->ldy);
                continue;
            }
            if (p->y_trans) {
                pack_cols(kc, tile.cols, width, y + j * p->ldy, p->ldy, pack_y);
            } else {
                pack_rows(kc, tile.cols, width, y + j, p->ldy, pack_y);
            }
            panel(&tile, kc, &rows, pack_y, width);
        }
    }
}

void gemm_isa(const struct kern_gemm *job)
{
    const struct product p = product_of(job);
    const size_t blocks = job->k == 0 ? 1 : (job->k + KC - 1) / KC;
    const size_t kc_max = (job->k + blocks - 1) / blocks;
    size_t l0 = 0;
    do {
        const size_t kc = job->k - l0 < kc_max ? job->k - l0 : kc_max;
        block(job, &p, l0, kc);
        l0 += kc;
    } while (l0 < job->k);
    if (job->act == KERN_SIGMOID || job->act == KERN_TANH) {
        ASSERT(job->mask == NULL);
        act_forward_isa(job->act, job->m, job->n, job->c, job->ldc, NULL, job->c, job->ldc);
    }
}
