/* y = 2 x1 - 3 x2 + 0.5 + noise: the smallest thing that linear regression can find. */
#include <stdio.h>

#include "base/mem.h"
#include "base/rand.h"
#include "data/data_gen_kinds.h"

static const double noise_deviation = 0.1;

struct linear {
    uint64_t seed;
};

static int create(const struct data_gen_opts *opts, void **generator_out, struct err *err)
{
    struct linear *linear = mem_alloc(MEM_DATA, sizeof *linear);
    if (linear == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the generator");
    linear->seed = opts->seed;
    *generator_out = linear;
    return 0;
}

static void put_row(const void *generator, bool eval, uint64_t row, struct data_gen_buffer *out,
                    struct data_gen_truth *truth_out)
{
    enum { LINE_MAX_BYTES = 64 };
    const struct linear *linear = generator;
    const uint64_t step = data_gen_step(eval, row);
    uint32_t words[4];
    char line[LINE_MAX_BYTES];
    rand_philox(linear->seed, RAND_GEN, step, 0, words);
    const double x1 = 2 * (double)rand_unit(words[0]) - 1;
    const double x2 = 2 * (double)rand_unit(words[1]) - 1;
    const double noise = noise_deviation * (double)rand_normal(linear->seed, RAND_GEN, step, 1);
    const double y = 2 * x1 - 3 * x2 + 0.5 + noise;
    const int bytes = snprintf(line, sizeof line, "%.6f,%.6f,%.6f\n", x1, x2, y);
    *truth_out = (struct data_gen_truth){.score = (float)(noise * noise), .label = (float)y};
    uint8_t *at = data_gen_room(out, (size_t)bytes);
    for (int i = 0; at != NULL && i < bytes; i++) at[i] = (uint8_t)line[i];
}

const struct data_gen_kind_ops data_gen_linear_ops = {
    .name = "linear",
    .suffix = "csv",
    .rows = 100000,
    .eval_rows = 10000,
    .files = 4,
    .best = DATA_GEN_LOSS,
    .create = create,
    .row = put_row,
    .destroy = mem_free,
};
