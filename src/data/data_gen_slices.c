/* Rows of 64 numbers in [0,1) with a label 0..9: the label is drawn from the softmax of a linear
 * function of the row, sharp enough that softmax regression has something to find. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rand.h"
#include "data/data_gen_kinds.h"

enum { INPUTS = 64, LABELS = 10 };

static const double sharpness = 2.0;

struct slices {
    uint64_t seed;
    double weights[LABELS][INPUTS];
};

static int create(const struct data_gen_opts *opts, void **generator_out, struct err *err)
{
    struct slices *slices = mem_alloc(MEM_DATA, sizeof *slices);
    if (slices == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the generator");
    slices->seed = opts->seed;
    for (uint32_t i = 0; i < LABELS; i++) {
        for (uint32_t j = 0; j < INPUTS; j++) {
            const float draw = rand_normal(opts->seed, RAND_GEN, UINT64_MAX, i * INPUTS + j);
            slices->weights[i][j] = sharpness * (double)draw;
        }
    }
    *generator_out = slices;
    return 0;
}

/* The label drawn; *best_out is the likeliest. */
static uint32_t draw_label(const struct slices *slices, const uint32_t *ticks, double unit,
                           uint32_t *best_out)
{
    double odds[LABELS];
    double sum = 0;
    uint32_t best = 0;
    for (uint32_t i = 0; i < LABELS; i++) {
        double score = 0;
        for (uint32_t j = 0; j < INPUTS; j++) {
            score += slices->weights[i][j] * ((double)ticks[j] * 1e-4 - 0.5);
        }
        odds[i] = exp(score);
        sum += odds[i];
        if (odds[i] > odds[best]) best = i;
    }
    uint32_t label = 0;
    double left = unit * sum;
    while (label + 1 < LABELS && left >= odds[label]) left -= odds[label++];
    *best_out = best;
    return label;
}

static void make_row(const void *generator, bool eval, uint64_t row, struct data_gen_buffer *out,
                     struct data_gen_truth *truth_out)
{
    const struct slices *slices = generator;
    uint32_t words[INPUTS + 1];
    rand_philox_fill(slices->seed, RAND_GEN, data_gen_step(eval, row), 0, INPUTS + 1, words);
    for (uint32_t j = 0; j < INPUTS; j++) words[j] = (uint32_t)((uint64_t)words[j] * 10000 >> 32);
    uint32_t best = 0;
    const uint32_t label = draw_label(slices, words, (double)rand_unit(words[INPUTS]), &best);
    *truth_out = (struct data_gen_truth){.score = label == best, .label = (float)label};
    uint8_t *at = data_gen_room(out, 1 + 7 * INPUTS + 1);
    if (at == NULL) return;
    *at++ = (uint8_t)('0' + label);
    for (uint32_t j = 0; j < INPUTS; j++) {
        uint32_t tick = words[j];
        memcpy(at, ",0.", 3);
        for (int digit = 6; digit >= 3; digit--, tick /= 10) at[digit] = (uint8_t)('0' + tick % 10);
        at += 7;
    }
    *at = '\n';
}

const struct data_gen_kind_ops data_gen_slices_ops = {
    .name = "slices",
    .suffix = "csv",
    .rows = 300000,
    .eval_rows = 30000,
    .files = 10,
    .best = DATA_GEN_ACCURACY,
    .create = create,
    .row = make_row,
    .destroy = mem_free,
};
