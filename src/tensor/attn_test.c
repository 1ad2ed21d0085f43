#include "tensor/kern_check.h"

/* A batch of histories of the given lengths over random rows. */
struct batch_of {
    struct kern_attn attn;
    struct kern_attn_in in;
    struct batch_ids ids;
    uint32_t rows;
    float *dout;
    float *weights; /* all of them, in the order of the gradient block */
};

enum { UNIQUE = 23 };

static void attn_weights(struct kern_attn *attn, const float *weights)
{
    attn->w0 = weights;
    attn->b0 = attn->w0 + 4 * (size_t)attn->e * attn->a0;
    attn->w1 = attn->b0 + attn->a0;
    attn->b1 = attn->w1 + (size_t)attn->a0 * attn->a1;
    attn->w2 = attn->b1 + attn->a1;
    attn->b2 = attn->w2 + attn->a1;
}

static void batch_init(struct batch_of *b, uint32_t e, uint32_t a0, uint32_t a1, uint32_t rows,
                       uint32_t length_max)
{
    *b = (struct batch_of){.attn = {.e = e, .a0 = a0, .a1 = a1}, .rows = rows};
    uint32_t *offsets = array_bytes((rows + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (uint32_t i = 0; i < rows; i++)
        offsets[i + 1] =
            offsets[i] + (uint32_t)rand_below(7, RAND_TEST, 1, i, (uint64_t)length_max + 1);
    const uint32_t count = offsets[rows];
    uint32_t *slots = array_bytes(count * sizeof *slots);
    for (uint32_t i = 0; i < count; i++)
        slots[i] = (uint32_t)rand_below(7, RAND_TEST, 2, i, UNIQUE);
    b->weights = array_random(kern_attn_grad_count(&b->attn), 11);
    attn_weights(&b->attn, b->weights);
    b->ids = (struct batch_ids){.offsets = offsets, .slots = slots, .count = count};
    b->in = (struct kern_attn_in){
        .rows = array_random(UNIQUE * (size_t)(e + 1), 12),
        .ldrows = e + 1,
        .target = array_random((size_t)rows * (e + 2), 13),
        .ldtarget = e + 2,
        .row_end = rows,
    };
    b->dout = array_random((size_t)rows * e, 14);
}

/* The history is inside the struct, which may have been moved since. */
static struct kern_attn_in in_of(const struct batch_of *b)
{
    struct kern_attn_in in = b->in;
    in.history = &b->ids;
    return in;
}

struct result {
    float *out;
    float *dhistory;
    float *dtarget;
    float *dweights;
};

static struct result run(const struct kern *kern, const struct batch_of *b, bool dtarget_add)
{
    const size_t e = b->attn.e;
    const struct kern_attn_in in = in_of(b);
    float *save = array_random(b->ids.count * kern_attn_save_width(&b->attn), 1);
    float *scratch = array_random(kern_attn_scratch_count(&b->attn), 2);
    struct result r = {
        .out = array_random(b->rows * e, 3),
        .dhistory = array_random(b->ids.count * (e + 3), 4),
        .dtarget = array_random(b->rows * e, 5),
        .dweights = array_random(kern_attn_grad_count(&b->attn), 6),
    };
    kern->attn_forward(&b->attn, &in, r.out, e, save, scratch);
    kern->attn_backward(&b->attn, &in,
                        &(struct kern_attn_grad){.dout = b->dout,
                                                 .lddout = e,
                                                 .save = save,
                                                 .dhistory = r.dhistory,
                                                 .lddhistory = e + 3,
                                                 .dtarget = r.dtarget,
                                                 .lddtarget = e,
                                                 .dtarget_add = dtarget_add,
                                                 .dweights = r.dweights},
                        scratch);
    return r;
}

static const struct {
    uint32_t e, a0, a1, rows, length_max;
} cases[] = {
    {16, 16, 8, 100, 20}, {16, 16, 8, 1, 1},   {16, 16, 8, 5, 0},   {8, 16, 8, 40, 9},
    {32, 16, 8, 30, 40},  {1, 1, 1, 20, 3},    {5, 3, 2, 33, 7},    {16, 36, 20, 20, 12},
    {40, 80, 40, 10, 30}, {17, 33, 9, 66, 10}, {16, 16, 1, 64, 18}, {4, 16, 16, 129, 5},
};

/* Forward and backward equal the reference, which forms the whole concatenation in double. */
TEST(attn_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct batch_of b;
            batch_init(&b, cases[c].e, cases[c].a0, cases[c].a1, cases[c].rows,
                       cases[c].length_max);
            const struct result want = run(&kern_ref, &b, c % 2);
            const struct result got = run(kern, &b, c % 2);
            const size_t e = b.attn.e;
            check_close("out", kern, b.rows * e, got.out, want.out, 2e-5);
            check_close("dhistory", kern, b.ids.count * (e + 3), got.dhistory, want.dhistory, 5e-5);
            check_close("dtarget", kern, b.rows * e, got.dtarget, want.dtarget, 1e-4);
            check_close("dweights", kern, kern_attn_grad_count(&b.attn), got.dweights,
                        want.dweights, 1e-4);
            arrays_free();
        }
    }
}

/* One position a row, given without offsets, is the same as with them. */
TEST(attn_without_offsets_is_one_position_a_row)
{
    EACH_KERN(kern)
    {
        struct batch_of b;
        batch_init(&b, 16, 16, 8, 21, 1);
        uint32_t offsets[22];
        uint32_t slots[21];
        for (uint32_t i = 0; i < 22; i++) offsets[i] = i;
        for (uint32_t i = 0; i < 21; i++) slots[i] = i % UNIQUE;
        b.ids = (struct batch_ids){.offsets = offsets, .slots = slots, .count = 21};
        const struct result with = run(kern, &b, false);
        b.ids.offsets = NULL;
        const struct result without = run(kern, &b, false);
        CHECK(memcmp(with.out, without.out, 21 * 16 * sizeof(float)) == 0);
        CHECK(memcmp(with.dtarget, without.dtarget, 21 * 16 * sizeof(float)) == 0);
        arrays_free();
    }
}

/* Rows computed in separate calls have the same bits; weight gradients of the calls add up. */
TEST(attn_bits_do_not_depend_on_the_cut)
{
    EACH_KERN(kern)
    {
        struct batch_of b;
        batch_init(&b, 16, 16, 8, 90, 20);
        const struct result whole = run(kern, &b, false);
        struct kern_attn_in in = in_of(&b);
        float *save = array_random(b.ids.count * kern_attn_save_width(&b.attn), 1);
        float *scratch = array_random(kern_attn_scratch_count(&b.attn), 2);
        float *out = array_random(b.rows * 16, 3);
        float *dhistory = array_copy(b.ids.count * 19, whole.dhistory);
        float *dtarget = array_random(b.rows * 16, 5);
        const size_t count = kern_attn_grad_count(&b.attn);
        float *parts = array_random(3 * count, 6);
        for (uint32_t part = 0; part < 3; part++) {
            in.row_begin = part * 30;
            in.row_end = in.row_begin + 30;
            kern->attn_forward(&b.attn, &in, out, 16, save, scratch);
            kern->attn_backward(&b.attn, &in,
                                &(struct kern_attn_grad){.dout = b.dout,
                                                         .lddout = 16,
                                                         .save = save,
                                                         .dhistory = dhistory,
                                                         .lddhistory = 19,
                                                         .dtarget = dtarget,
                                                         .lddtarget = 16,
                                                         .dweights = parts + part * count},
                                scratch);
        }
        float *sum = array_random(count, 7);
        kern->sum_parts(3, count, parts, count, sum);
        CHECK(memcmp(out, whole.out, b.rows * 16 * sizeof(float)) == 0);
        CHECK(memcmp(dhistory, whole.dhistory, b.ids.count * 19 * sizeof(float)) == 0);
        CHECK(memcmp(dtarget, whole.dtarget, b.rows * 16 * sizeof(float)) == 0);
        check_close("dweights", kern, count, sum, whole.dweights, 1e-4);
        arrays_free();
    }
}

/* Without a place to keep what backward needs the same comes out; also for rows so long that they
 * are taken in pieces, where the last digits may differ. */
TEST(attn_forward_without_save_is_the_same)
{
    EACH_KERN(kern)
    {
        for (uint32_t length = 20; length <= 3000; length += 2980) {
            struct batch_of b;
            batch_init(&b, 16, 16, 8, length == 20 ? 90 : 6, length);
            const struct kern_attn_in in = in_of(&b);
            float *save = array_random(b.ids.count * kern_attn_save_width(&b.attn), 1);
            float *scratch = array_random(kern_attn_scratch_count(&b.attn), 2);
            float *with = array_random(b.rows * 16, 3);
            float *without = array_random(b.rows * 16, 4);
            kern->attn_forward(&b.attn, &in, with, 16, save, scratch);
            kern->attn_forward(&b.attn, &in, without, 16, NULL, scratch);
            check_close("out", kern, b.rows * 16, without, with, length == 20 ? 0 : 1e-5);
            arrays_free();
        }
    }
}

/* sum of out * dout, for finite differences, all in the reference. */
static double objective(const struct batch_of *b)
{
    const struct kern_attn_in in = in_of(b);
    float *out = array_random(b->rows * (size_t)b->attn.e, 3);
    kern_ref.attn_forward(&b->attn, &in, out, b->attn.e, NULL, NULL);
    double sum = 0;
    for (size_t i = 0; i < b->rows * (size_t)b->attn.e; i++)
        sum += (double)out[i] * (double)b->dout[i];
    free(arrays[--arrays_count]);
    return sum;
}

static double slope(const struct batch_of *b, float *x)
{
    const float old = *x;
    const float step = 1e-3f;
    *x = old + step;
    const double up = objective(b);
    *x = old - step;
    const double down = objective(b);
    *x = old;
    return (up - down) / (2 * (double)step);
}

/* The gradients are the slopes of the forward pass. */
TEST(attn_gradients_match_finite_differences)
{
    struct batch_of b;
    batch_init(&b, 6, 5, 4, 8, 6);
    const struct result r = run(kern_default(), &b, false);
    const size_t e = 6;
    size_t near = 0;
    const size_t count = kern_attn_grad_count(&b.attn);
    for (size_t i = 0; i < count; i++) /* a ReLU's corner in between is rare but possible */
        near += fabs(slope(&b, b.weights + i) - (double)r.dweights[i]) < 3e-3;
    CHECK(near * 100 >= count * 97);
    float *target = array_copy(b.rows * (e + 2), b.in.target);
    b.in.target = target;
    for (size_t i = near = 0; i < b.rows * e; i++)
        near += fabs(slope(&b, target + i / e * (e + 2) + i % e) - (double)r.dtarget[i]) < 3e-3;
    CHECK(near * 100 >= b.rows * e * 95);
    float *table = array_copy(UNIQUE * (e + 1), b.in.rows);
    b.in.rows = table;
    float *dtable = array_random(UNIQUE * e, 1);
    for (size_t i = 0; i < UNIQUE * e; i++) dtable[i] = 0;
    for (size_t i = 0; i < b.ids.count; i++)
        for (size_t j = 0; j < e; j++)
            dtable[b.ids.slots[i] * e + j] += r.dhistory[i * (e + 3) + j];
    for (size_t i = near = 0; i < UNIQUE * e; i++)
        near += fabs(slope(&b, table + i / e * (e + 1) + i % e) - (double)dtable[i]) < 3e-3;
    CHECK(near * 100 >= UNIQUE * e * 95);
    arrays_free();
}
