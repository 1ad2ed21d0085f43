#include "tensor/kern_check.h"

static const struct {
    size_t rows, fields, e;
} cases[] = {{3, 1, 4},  {5, 2, 1},   {4, 3, 7}, {7, 27, 16}, {2, 40, 16},
             {3, 5, 33}, {2, 4, 300}, {0, 4, 4}, {2, 18, 64}};
#define CASES (sizeof cases / sizeof *cases)

TEST(fm_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t c = 0; c < CASES; c++) {
            const size_t rows = cases[c].rows, fields = cases[c].fields, e = cases[c].e;
            const size_t ldx = fields * e + 3;
            const float *x = array_random(rows * ldx, 1);
            float *got = array_random(rows * 2, 2);
            float *want = array_copy(rows * 2, got);
            kern->fm_forward(rows, fields, e, x, ldx, got, 2);
            kern_ref.fm_forward(rows, fields, e, x, ldx, want, 2);
            check_close("fm", kern, rows * 2, got, want, 1e-5 * sqrt((double)(fields * e)));
            float *dgot = array_random(rows * ldx, 3);
            float *dwant = array_copy(rows * ldx, dgot);
            kern->fm_backward(rows, fields, e, x, ldx, want, 2, dgot, ldx);
            kern_ref.fm_backward(rows, fields, e, x, ldx, want, 2, dwant, ldx);
            check_close("fm'", kern, rows * ldx, dgot, dwant, 2e-5);
            arrays_free();
        }
    }
}

TEST(dot_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t c = 0; c < CASES; c++) {
            const size_t rows = cases[c].rows, fields = cases[c].fields, e = cases[c].e;
            const size_t ldx = fields * e + 3;
            const size_t ldout = fields * (fields - 1) / 2 + 2;
            const float *x = array_random(rows * ldx, 1);
            float *got = array_random(rows * ldout, 2);
            float *want = array_copy(rows * ldout, got);
            kern->dot_forward(rows, fields, e, x, ldx, got, ldout);
            kern_ref.dot_forward(rows, fields, e, x, ldx, want, ldout);
            check_close("dot", kern, rows * ldout, got, want, 5e-6);
            float *dgot = array_random(rows * ldx, 3);
            float *dwant = array_copy(rows * ldx, dgot);
            kern->dot_backward(rows, fields, e, x, ldx, want, ldout, dgot, ldx);
            kern_ref.dot_backward(rows, fields, e, x, ldx, want, ldout, dwant, ldx);
            check_close("dot'", kern, rows * ldx, dgot, dwant, 2e-5);
            arrays_free();
        }
    }
}

/* The gradients are the slopes of sum(out * dout). */
TEST(interactions_match_finite_differences)
{
    enum { ROWS = 3, FIELDS = 5, E = 4, PAIRS = FIELDS * (FIELDS - 1) / 2, LDX = FIELDS * E };
    const struct kern *kern = kern_default();
    for (int dot = 0; dot < 2; dot++) {
        const size_t outs = dot ? PAIRS : 1;
        float *x = array_random(ROWS * LDX, 1);
        const float *dout = array_random(ROWS * outs, 2);
        float *dx = array_random(ROWS * LDX, 3);
        float *out = array_random(ROWS * outs, 4);
        (dot ? kern->dot_backward : kern->fm_backward)(ROWS, FIELDS, E, x, LDX, dout, outs, dx,
                                                       LDX);
        for (size_t i = 0; i < ROWS * LDX; i++) {
            const float old = x[i];
            double value[2];
            for (int side = 0; side < 2; side++) {
                x[i] = old + (side ? 0.01f : -0.01f);
                (dot ? kern_ref.dot_forward : kern_ref.fm_forward)(ROWS, FIELDS, E, x, LDX, out,
                                                                   outs);
                value[side] = 0;
                for (size_t j = 0; j < ROWS * outs; j++)
                    value[side] += (double)out[j] * (double)dout[j];
            }
            x[i] = old;
            CHECK_NEAR((value[1] - value[0]) / 0.02, dx[i], 1e-3);
        }
        arrays_free();
    }
}
