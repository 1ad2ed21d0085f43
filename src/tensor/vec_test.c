#include "tensor/kern_check.h"

static const size_t sizes[] = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 255, 1000};
#define SIZES (sizeof sizes / sizeof *sizes)

TEST(tables_are_named_after_their_instruction_set)
{
    for (enum cpu_isa isa = CPU_PLAIN; isa < CPU_ISA_COUNT; isa++)
        CHECK_STR(kern_get(isa)->name, cpu_isa_name(isa));
    CHECK(kern_default() == kern_get(cpu_isa()));
}

/* Elementwise kernels equal the reference at every length, also where the output is an input. */
TEST(elementwise_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t n = sizes[s];
            const float *x = array_random(n, 1);
            const float *y = array_random(n, 2);
            float *got = array_copy(n, y);
            float *want = array_copy(n, y);
            kern->add(n, x, got, got);
            kern_ref.add(n, x, want, want);
            check_close("add", kern, n, got, want, 0);
            kern->mul(n, x, got, got);
            kern_ref.mul(n, x, want, want);
            check_close("mul", kern, n, got, want, 0);
            kern->axpy(n, 0.3f, x, got);
            kern_ref.axpy(n, 0.3f, x, want);
            check_close("axpy", kern, n, got, want, 1e-6);
            kern->scale(n, -1.7f, got);
            kern_ref.scale(n, -1.7f, want);
            check_close("scale", kern, n, got, want, 1e-6);
            kern->moving_average(n, 0.9f, x, got);
            kern_ref.moving_average(n, 0.9f, x, want);
            check_close("average", kern, n, got, want, 1e-6);
            kern->delay_compensate(n, 0.5f, got, x, y, got);
            kern_ref.delay_compensate(n, 0.5f, want, x, y, want);
            check_close("delay", kern, n, got, want, 1e-6);
            arrays_free();
        }
    }
}

/* Sums over rows and copies between strided buffers touch what they should and nothing between. */
TEST(sums_and_copies_equal_reference)
{
    EACH_KERN(kern)
    {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t n = sizes[s];
            const float *x = array_random(9 * (n + 2), 1);
            float *got = array_random(9 * (n + 3), 2);
            float *want = array_copy(9 * (n + 3), got);
            kern->sum_parts(9, n, x, n + 2, got);
            kern_ref.sum_parts(9, n, x, n + 2, want);
            check_close("sum_parts", kern, n, got, want, 2e-6);
            kern->col_sums(7, n, x, n + 2, got);
            kern_ref.col_sums(7, n, x, n + 2, want);
            check_close("col_sums", kern, n, got, want, 2e-6);
            memcpy(got, want, n * sizeof *got);
            for (int add = 0; add < 2; add++) {
                kern->copy_rows(9, n, x, n + 2, got, n + 3, add);
                kern_ref.copy_rows(9, n, x, n + 2, want, n + 3, add);
                check_close("copy_rows", kern, 9 * (n + 3), got, want, 0);
            }
            const double squares = kern_ref.sum_squares(n, x);
            CHECK_NEAR(kern->sum_squares(n, x), squares, 1e-6 * (1 + squares));
            arrays_free();
        }
    }
}

/* One value that is not a number, wherever it stands, is found. */
TEST(is_finite_finds_any_bad_value)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    EACH_KERN(kern)
    {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t n = sizes[s];
            float *x = array_random(n, 1);
            CHECK(kern->is_finite(n, x));
            for (size_t i = 0; i < n; i++) {
                const float old = x[i];
                x[i] = bad[i % 4];
                CHECK(!kern->is_finite(n, x));
                x[i] = i % 2 ? 3.4e38f : -1e-44f;
                CHECK(kern->is_finite(n, x));
                x[i] = old;
            }
            arrays_free();
        }
    }
}

TEST(activations_equal_reference)
{
    EACH_KERN(kern)
    {
        for (enum kern_act act = KERN_NONE; act <= KERN_TANH; act++) {
            for (size_t s = 0; s < SIZES; s++) {
                const size_t n = sizes[s];
                float *x = array_random(5 * (n + 1), 1);
                const float *bias = array_random(n, 2);
                float *got = array_random(5 * (n + 1), 3);
                float *want = array_copy(5 * (n + 1), got);
                kern_ref.scale(5 * (n + 1), 5, x);
                kern->act_forward(act, 5, n, x, n + 1, s % 2 ? bias : NULL, got, n + 1);
                kern_ref.act_forward(act, 5, n, x, n + 1, s % 2 ? bias : NULL, want, n + 1);
                check_close("act", kern, 5 * (n + 1), got, want, 2e-7);
                kern->act_backward(act, 5, n, want, n + 1, x, n + 1, got, n + 1);
                kern_ref.act_backward(act, 5, n, want, n + 1, x, n + 1, want, n + 1);
                check_close("act'", kern, 5 * (n + 1), got, want, 3e-7);
                arrays_free();
            }
        }
    }
}

static double units_off(float got, double want)
{
    const double unit = (double)(nextafterf((float)fabs(want), INFINITY) - (float)fabs(want));
    return fabs((double)got - want) / unit;
}

/* Sigmoid and tanh are within two units in the last place over their whole range, and keep their
 * limits and NaN. */
TEST(activations_are_accurate)
{
    EACH_KERN(kern)
    {
        for (float x = -86; x < 89; x += 0.00917f) {
            float in[2] = {x, x * 0.01f};
            float out[2];
            kern->act_forward(KERN_SIGMOID, 1, 2, in, 2, NULL, out, 2);
            for (int i = 0; i < 2; i++)
                CHECK(units_off(out[i], 1 / (1 + exp(-(double)in[i]))) <= 2.5);
            kern->act_forward(KERN_TANH, 1, 2, in, 2, NULL, out, 2);
            for (int i = 0; i < 2; i++) CHECK(units_off(out[i], tanh((double)in[i])) <= 2.5);
        }
        const float in[4] = {INFINITY, -INFINITY, NAN, 0};
        float out[4];
        kern->act_forward(KERN_SIGMOID, 1, 4, in, 4, NULL, out, 4);
        CHECK(out[0] == 1 && out[1] >= 0 && out[1] < 1e-44f && isnan(out[2]) && out[3] == 0.5f);
        kern->act_forward(KERN_TANH, 1, 4, in, 4, NULL, out, 4);
        CHECK(out[0] == 1 && out[1] == -1 && isnan(out[2]) && out[3] == 0);
    }
}

/* A NaN that goes into a ReLU comes out, so that the loss shows it. */
TEST(relu_keeps_nan)
{
    EACH_KERN(kern)
    {
        const float in[3] = {NAN, -1, 2};
        const float one = 1;
        float out[3];
        kern->act_forward(KERN_RELU, 1, 3, in, 3, NULL, out, 3);
        CHECK(isnan(out[0]) && out[1] == 0 && out[2] == 2);
        kern->gemm(&(struct kern_gemm){.a = &one,
                                       .lda = 1,
                                       .b = in,
                                       .ldb = 3,
                                       .c = out,
                                       .ldc = 3,
                                       .m = 1,
                                       .n = 3,
                                       .k = 1,
                                       .act = KERN_RELU});
        CHECK(isnan(out[0]) && out[1] == 0 && out[2] == 2);
    }
}

/* Dropout keeps just the elements that the definition keeps, whatever the cut and the first
 * element's number, and backward keeps the same. */
TEST(dropout_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t s = 0; s < SIZES; s++) {
            const size_t n = sizes[s];
            const struct kern_dropout dropout = {
                .seed = 5,
                .step = 77,
                .index = 1000 + s,
                .what = RAND_DROPOUT,
                .rate = 0.3f,
            };
            const float *x = array_random(n, 1);
            float *got = array_copy(n, x);
            float *want = array_random(n, 2);
            uint32_t *bits = array_bytes((n + 31) / 32 * 4);
            uint32_t *bits_want = array_bytes((n + 31) / 32 * 4);
            kern->dropout_forward(&dropout, n, got, got, bits);
            kern_ref.dropout_forward(&dropout, n, x, want, bits_want);
            check_close("dropout", kern, n, got, want, 0);
            CHECK(memcmp(bits, bits_want, (n + 31) / 32 * 4) == 0);
            kern->dropout_backward(0.3f, n, bits, got, got);
            kern_ref.dropout_backward(0.3f, n, bits, want, want);
            check_close("dropout'", kern, n, got, want, 0);
            arrays_free();
        }
    }
}

/* The share that is kept is 1 - rate, and the mean stays. */
TEST(dropout_keeps_the_mean)
{
    enum { N = 100000 };
    float *x = array_random(N, 1);
    for (size_t i = 0; i < N; i++) x[i] = 1;
    kern_default()->dropout_forward(&(struct kern_dropout){.seed = 3, .rate = 0.3f}, N, x, x, NULL);
    double sum = 0;
    for (size_t i = 0; i < N; i++) sum += (double)x[i];
    CHECK_NEAR(sum / N, 1, 0.01);
    arrays_free();
}
