#include "tensor/kern_check.h"

enum { ROWS = 77 };

/* Labels 0 or 1, logits from very small to very large. */
TEST(loss_sigmoid_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t rows = 0; rows <= ROWS; rows += 7) {
            float *logit = array_random(rows, 1);
            float *label = array_random(rows, 2);
            const float *weight = rows % 2 ? array_random(rows, 3) : NULL;
            for (size_t i = 0; i < rows; i++) {
                logit[i] *= i % 3 == 0 ? 100 : 5;
                label[i] = label[i] > 0;
            }
            float *prob[2] = {array_random(rows, 4), array_random(rows, 4)};
            float *d[2] = {array_random(rows, 5), array_random(rows, 5)};
            const double want =
                kern_ref.loss_sigmoid(rows, logit, label, weight, 0.5f, prob[0], d[0]);
            const double got = kern->loss_sigmoid(rows, logit, label, weight, 0.5f, prob[1], d[1]);
            CHECK_NEAR(got, want, 2e-7 * (1 + fabs(want)) * sqrt((double)rows + 1));
            check_close("prob", kern, rows, prob[1], prob[0], 2e-7);
            check_close("dlogit", kern, rows, d[1], d[0], 2e-7);
            CHECK(kern->loss_sigmoid(rows, logit, label, weight, 0.5f, NULL, NULL) == got);
            arrays_free();
        }
    }
}

/* A confident right answer keeps the precision of its small loss. */
TEST(loss_sigmoid_of_sure_answers_is_accurate)
{
    EACH_KERN(kern)
    {
        for (float x = 1; x < 80; x += 0.37f) {
            const float label[2] = {1, 0};
            const float logit[2] = {x, -x};
            const double want = log1p(exp(-(double)x));
            for (int i = 0; i < 2; i++) {
                const double got = kern->loss_sigmoid(1, logit + i, label + i, NULL, 1, NULL, NULL);
                CHECK_NEAR(got, want, 3e-7 * want);
            }
        }
    }
}

TEST(loss_softmax_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t c = 1; c <= 300; c += c < 40 ? 3 : 65) {
            const size_t rows = 9;
            float *logit = array_random(rows * (c + 1), 1);
            float *label = array_random(rows, 2);
            const float *weight = c % 2 ? array_random(rows, 3) : NULL;
            kern_ref.scale(rows * (c + 1), 20, logit);
            for (size_t i = 0; i < rows; i++) label[i] = (float)(i * 5 % c);
            float *prob[2] = {array_random(rows * (c + 2), 4), array_random(rows * (c + 2), 4)};
            float *d[2] = {array_random(rows * (c + 3), 5), array_random(rows * (c + 3), 5)};
            double sum[2];
            for (int i = 0; i < 2; i++)
                sum[i] = (i ? kern : &kern_ref)
                             ->loss_softmax(rows, c, logit, c + 1, label, weight, 0.25f, prob[i],
                                            c + 2, d[i], c + 3);
            CHECK_NEAR(sum[1], sum[0], 3e-6 * (1 + fabs(sum[0])));
            check_close("prob", kern, rows * (c + 2), prob[1], prob[0], 1e-6);
            check_close("dlogit", kern, rows * (c + 3), d[1], d[0], 1e-6);
            CHECK(kern->loss_softmax(rows, c, logit, c + 1, label, weight, 0.25f, NULL, 0, d[1],
                                     c + 3) == sum[1]);
            check_close("dlogit", kern, rows * (c + 3), d[1], d[0], 1e-6);
            CHECK_NEAR(
                kern->loss_softmax(rows, c, logit, c + 1, label, weight, 0.25f, NULL, 0, NULL, 0),
                sum[1], 1e-6 * (1 + fabs(sum[1])));
            arrays_free();
        }
    }
}

/* A label that is no class shows in the loss. */
TEST(loss_softmax_of_impossible_label_is_nan)
{
    static const float labels[] = {-1, 3, NAN, 1e9f};
    const float logit[3] = {0, 1, 2};
    EACH_KERN(kern)
    {
        for (int i = 0; i < 4; i++)
            CHECK(isnan(kern->loss_softmax(1, 3, logit, 3, labels + i, NULL, 1, NULL, 0, NULL, 0)));
    }
}

TEST(loss_squared_equals_reference)
{
    EACH_KERN(kern)
    {
        for (size_t rows = 0; rows <= ROWS; rows += 7) {
            const float *value = array_random(rows, 1);
            const float *label = array_random(rows, 2);
            const float *weight = rows % 2 ? array_random(rows, 3) : NULL;
            float *d[2] = {array_random(rows, 5), array_random(rows, 5)};
            const double want = kern_ref.loss_squared(rows, value, label, weight, 0.5f, d[0]);
            const double got = kern->loss_squared(rows, value, label, weight, 0.5f, d[1]);
            CHECK_NEAR(got, want, 1e-6 * (1 + fabs(want)));
            check_close("dvalue", kern, rows, d[1], d[0], 1e-6);
            CHECK(kern->loss_squared(rows, value, label, weight, 0.5f, NULL) == got);
            arrays_free();
        }
    }
}
