/* Lines as in Criteo's display-advertising logs: a label, 13 counts and 26 hashed words between
 * tabs, many of them empty. Every word carries a weight of its own and a place in a small space of
 * tastes, and words of two columns attract or repel each other by these: something to find for
 * linear models, and more for those that look at pairs (FM, DeepFM, DLRM). */
#include <math.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"
#include "data/data_gen_kinds.h"

enum { COUNTS = 13, WORDS = 26, TASTES = 4 };
enum { USE_WEIGHT = 1, USE_TASTE, USE_COUNT }; /* what a parameter of the world is drawn for */

static const double word_weight = 0.28;
static const double taste_weight = 0.30;
static const double count_weight = 0.12;
static const double offset = -1.3;
static const double missing = 0.15; /* share of fields left empty */

struct criteo {
    uint64_t seed;
    double count_weights[COUNTS];
};

/* How many different words a column has: from a handful to thousands, as in the real log. */
static uint32_t vocabulary(uint32_t column)
{
    static const uint32_t sizes[] = {8, 40, 200, 1000, 4000};
    return sizes[column % 5];
}

static double world(const struct criteo *criteo, uint32_t use, uint64_t index)
{
    return (double)rand_normal(criteo->seed, RAND_GEN, UINT64_MAX - use, index);
}

static int create(const struct data_gen_opts *opts, void **generator_out, struct err *err)
{
    struct criteo *criteo = mem_alloc(MEM_DATA, sizeof *criteo);
    if (criteo == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the generator");
    criteo->seed = opts->seed;
    for (uint32_t i = 0; i < COUNTS; i++) {
        criteo->count_weights[i] = count_weight * world(criteo, USE_COUNT, i);
    }
    *generator_out = criteo;
    return 0;
}

struct row {
    int32_t counts[COUNTS]; /* -1: missing */
    int32_t words[WORDS];   /* -1: missing; small numbers are frequent */
};

static void draw_row(const struct criteo *criteo, uint64_t step, struct row *row, double *unit_out)
{
    uint32_t words[2 * (COUNTS + WORDS) + 1];
    const uint32_t drawn = (uint32_t)(sizeof words / sizeof words[0]);
    rand_philox_fill(criteo->seed, RAND_GEN, step, 0, drawn, words);
    for (uint32_t i = 0; i < COUNTS + WORDS; i++) {
        const bool is_missing = (double)rand_unit(words[2 * i]) < missing;
        const double unit = (double)rand_unit(words[2 * i + 1]);
        if (i < COUNTS) {
            row->counts[i] = is_missing ? -1 : (int32_t)(1 / (1 - 0.999 * unit)) - 1;
        } else {
            const uint32_t column = i - COUNTS;
            row->words[column] =
                is_missing ? -1 : (int32_t)(vocabulary(column) * unit * unit * unit);
        }
    }
    *unit_out = (double)rand_unit(words[drawn - 1]);
}

static double logit_of(const struct criteo *criteo, const struct row *row)
{
    double sum = offset;
    double tastes[TASTES] = {0};
    double squares = 0;
    for (uint32_t i = 0; i < COUNTS; i++) {
        if (row->counts[i] >= 0) sum += criteo->count_weights[i] * log1p(row->counts[i]);
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        if (row->words[i] < 0) continue;
        const uint64_t word = (uint64_t)i << 32 | (uint32_t)row->words[i];
        sum += word_weight * world(criteo, USE_WEIGHT, word);
        if (i >= 8) continue; /* the first columns have tastes */
        for (uint32_t k = 0; k < TASTES; k++) {
            const double taste = taste_weight * world(criteo, USE_TASTE, word * TASTES + k);
            tastes[k] += taste;
            squares += taste * taste;
        }
    }
    double pairs = -squares;
    for (uint32_t k = 0; k < TASTES; k++) pairs += tastes[k] * tastes[k];
    return sum + pairs / 2;
}

static void put_row(const void *generator, bool eval, uint64_t index, struct data_gen_buffer *out,
                    struct data_gen_truth *truth_out)
{
    const struct criteo *criteo = generator;
    struct row row;
    double unit = 0;
    char line[16 * (COUNTS + WORDS)];
    draw_row(criteo, data_gen_step(eval, index), &row, &unit);
    const double probability = 1 / (1 + exp(-logit_of(criteo, &row)));
    const int label = unit < probability;
    int bytes = snprintf(line, sizeof line, "%d", label);
    for (uint32_t i = 0; i < COUNTS; i++) {
        line[bytes++] = '\t';
        if (row.counts[i] >= 0) bytes += snprintf(line + bytes, 12, "%d", row.counts[i]);
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint64_t word = (uint64_t)i << 32 | (uint32_t)row.words[i];
        line[bytes++] = '\t';
        if (row.words[i] >= 0) {
            bytes += snprintf(line + bytes, 12, "%08x", (uint32_t)hash_mix64(word));
        }
    }
    line[bytes++] = '\n';
    *truth_out = (struct data_gen_truth){.score = (float)probability, .label = (float)label};
    uint8_t *at = data_gen_room(out, (size_t)bytes);
    for (int i = 0; at != NULL && i < bytes; i++) at[i] = (uint8_t)line[i];
}

const struct data_gen_kind_ops data_gen_criteo_ops = {
    .name = "criteo",
    .suffix = "tsv",
    .rows = 200000,
    .eval_rows = 20000,
    .files = 8,
    .best = DATA_GEN_AUC,
    .create = create,
    .row = put_row,
    .destroy = mem_free,
};
