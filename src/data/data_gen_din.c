/* Click logs for DIN. The world behind them:
 *
 *   items    belong to kinds (item index % kinds), which their names tell: film0, shoe3; within a kind
 *            the first are by far the most popular. Each has a quality of its own.
 *   users    have an age, a gender and two favourite kinds.
 *   a row    is a user in a mood: two kinds, sometimes the favourites, often others, so that a user's
 *            name tells little. The history is drawn by the mood, the candidate partly so.
 *   a click  has the logit: quality of the item + what age and gender do to clicks, and to those on its
 *            kind + HEAT times the mean heat of the history's kinds (who looks at some things is about
 *            to buy, who looks at others is not) + TASTE times the share of the history that is of the
 *            candidate's kind.
 *
 * The probability is a function of what the row shows, so that a perfect model would reach the AUC of
 * the probabilities, and most of what there is to know stands in the history. The numbers are chosen so
 * that the reference job, whose Adagrad takes small steps, gets nine tenths of the way in 400 batches. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"
#include "data/data_gen_kinds.h"
#include "data/data_text.h"

enum { KINDS_MAX = 5, AGES = 8, GENDERS = 2, SPREAD_MAX = 98, SPREAD_BUCKETS = 100 };

static const double heat_weight = 2.7;
static const double taste_weight = 1.4;
static const double taste_prior = 0.25; /* share of its kind that an empty history counts as */
static const double prior_items = 1;    /* and as how many items that counts among others */
static const double quality_deviation = 0.3;
static const double age_weight = 0.5; /* from the youngest (-) to the oldest (+) */
static const double gender_weight = 0.3;
static const double kind_deviation = 0.2; /* of what ages and genders think of a kind */
static const double bias = -1.6;

struct din {
    struct data_gen_opts opts;
    uint32_t kinds;
    double heat[KINDS_MAX];
    double by_age[AGES][KINDS_MAX];
    double by_gender[GENDERS][KINDS_MAX];
    uint32_t spread[SPREAD_MAX];    /* numbers of the first items, each within its kind */
    uint32_t spread_end[KINDS_MAX]; /* the others are numbered from here */
};

static const char *const kind_words[KINDS_MAX] = {"book", "film", "game", "shoe", "wine"};
enum { KIND_WORD_BYTES = 4 };

/* Uses of the generator within RAND_GEN, kept apart by the highest bits of `step`. */
enum { STEP_TRAIN = 0, STEP_EVAL = 1, STEP_USER = 2, STEP_ITEM = 3, STEP_WORLD = 4 };

static uint64_t step_of(uint64_t use, uint64_t index)
{
    return use << 56 | index;
}

static size_t put_name(uint32_t kind, uint64_t number, char out[32])
{
    memcpy(out, kind_words[kind], KIND_WORD_BYTES);
    return KIND_WORD_BYTES + data_text_of_i64((int64_t)number, out + KIND_WORD_BYTES);
}

/* Numbers for the first items such that their names fall into different ones of 100 buckets (and
 * none into that of "0"): the reference job hashes to 100, and two items in one bucket are one item
 * to it. */
static void spread_names(struct din *din)
{
    bool taken[SPREAD_BUCKETS] = {false};
    taken[hash_fingerprint64("0", 1) % SPREAD_BUCKETS] = true;
    for (uint32_t item = 0; item < SPREAD_MAX; item++) {
        const uint32_t kind = item % din->kinds;
        for (bool placed = false; !placed;) {
            char name[32];
            const uint32_t number = din->spread_end[kind]++;
            const size_t bytes = put_name(kind, number, name);
            const uint64_t bucket = hash_fingerprint64(name, bytes) % SPREAD_BUCKETS;
            placed = !taken[bucket];
            taken[bucket] = true;
            din->spread[item] = number;
        }
    }
}

static double draw_normal(const struct din *din, uint64_t use, uint64_t index)
{
    return (double)rand_normal(din->opts.seed, RAND_GEN, step_of(STEP_WORLD, use), index);
}

static void make_world(struct din *din)
{
    uint32_t order[KINDS_MAX];
    rand_permutation(din->opts.seed, RAND_GEN, step_of(STEP_WORLD, 2), order, din->kinds);
    /* Evenly spaced, with the deviation that five kinds between -1 and 1 have. */
    const double n = din->kinds;
    const double reach = n > 1 ? sqrt(0.5 * 3 * (n - 1) / (n + 1)) : 0;
    for (uint32_t kind = 0; kind < din->kinds; kind++) {
        if (din->kinds > 1) din->heat[order[kind]] = reach * (2.0 * kind / (n - 1) - 1);
        for (uint32_t age = 0; age < AGES; age++) {
            din->by_age[age][kind] = age_weight * (2.0 * age / (AGES - 1) - 1) +
                                     kind_deviation * draw_normal(din, 0, age * KINDS_MAX + kind);
        }
        for (uint32_t gender = 0; gender < GENDERS; gender++) {
            din->by_gender[gender][kind] =
                gender_weight * (2.0 * gender / (GENDERS - 1) - 1) +
                kind_deviation * draw_normal(din, 1, gender * KINDS_MAX + kind);
        }
    }
}

static int create(const struct data_gen_opts *opts, void **generator_out, struct err *err)
{
    struct din *din = mem_alloc(MEM_DATA, sizeof *din);
    if (din == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the generator");
    din->opts = *opts;
    din->kinds = opts->items / 3 < KINDS_MAX ? (uint32_t)(opts->items / 3) : KINDS_MAX;
    if (din->kinds == 0) din->kinds = 1;
    spread_names(din);
    make_world(din);
    *generator_out = din;
    return 0;
}

/* ---- people and things ---- */

struct user {
    uint32_t age;
    uint32_t gender;
    uint32_t favourites[2];
};

static struct user user_of(const struct din *din, uint64_t index)
{
    uint32_t words[4];
    rand_philox(din->opts.seed, RAND_GEN, step_of(STEP_USER, index), 0, words);
    return (struct user){.age = 14 + words[0] % 70,
                         .gender = words[1] % GENDERS,
                         .favourites = {words[2] % din->kinds, words[3] % din->kinds}};
}

/* As the reference job cuts ages. */
static uint32_t age_group(uint32_t age)
{
    static const uint32_t cuts[AGES - 1] = {18, 25, 36, 45, 55, 65, 80};
    uint32_t group = 0;
    while (group < AGES - 1 && cuts[group] <= age) group++;
    return group;
}

static double quality_of(const struct din *din, uint64_t item)
{
    return quality_deviation *
           (double)rand_normal(din->opts.seed, RAND_GEN, step_of(STEP_ITEM, item), 0);
}

/* An item of a kind; the fifth power of the draw makes the first ones popular. */
static uint64_t draw_item(const struct din *din, uint32_t kind, uint32_t word)
{
    const uint64_t of_kind = (din->opts.items - kind + din->kinds - 1) / din->kinds;
    const double unit = (double)word * 0x1p-32;
    uint64_t at = (uint64_t)((double)of_kind * unit * unit * unit * unit * unit);
    if (at >= of_kind) at = of_kind - 1;
    return at * din->kinds + kind;
}

static size_t item_name(const struct din *din, uint64_t item, char out[32])
{
    const uint32_t kind = (uint32_t)(item % din->kinds);
    if (item < SPREAD_MAX) return put_name(kind, din->spread[item], out);
    const uint64_t before = (SPREAD_MAX - kind + din->kinds - 1) / din->kinds; /* of its kind */
    return put_name(kind, din->spread_end[kind] + item / din->kinds - before, out);
}

/* ---- a row ---- */

struct row {
    uint64_t user_index;
    struct user user;
    uint64_t item;
    uint32_t history_count;
    uint64_t history[DATA_GEN_HISTORY_MAX];
    float probability;
    uint32_t label;
};

/* Draws a kind by mood: `certain` of 256 times one of the two, else any. */
static uint32_t draw_kind(const struct din *din, const uint32_t mood[2], uint32_t certain,
                          uint32_t word)
{
    if ((word & 255) >= certain) return (word >> 8) % din->kinds;
    return mood[(word >> 8) % 256 < 205 ? 0 : 1];
}

static void make_row(const struct din *din, bool eval, uint64_t index, struct row *row)
{
    uint32_t words[12 + 2 * DATA_GEN_HISTORY_MAX];
    const struct data_gen_opts *opts = &din->opts;
    const uint64_t step = step_of(eval ? STEP_EVAL : STEP_TRAIN, index);
    rand_philox_fill(opts->seed, RAND_GEN, step, 0, 12, words);
    row->user_index = ((uint64_t)words[0] << 32 | words[1]) % opts->users;
    row->user = user_of(din, row->user_index);
    row->history_count = opts->history_min + words[2] % (opts->history_max - opts->history_min + 1);
    uint32_t mood[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t word = words[3 + i];
        mood[i] = (word & 255) < 90 ? row->user.favourites[i] : (word >> 8) % din->kinds;
    }
    const uint32_t kind = draw_kind(din, mood, 90, words[5]);
    row->item = draw_item(din, kind, words[6]);

    uint32_t alike = 0;
    double heat = 0;
    rand_philox_fill(opts->seed, RAND_GEN, step, 12, 2 * (size_t)row->history_count, words + 12);
    for (uint32_t i = 0; i < row->history_count; i++) {
        const uint32_t of = draw_kind(din, mood, 230, words[12 + 2 * i]);
        row->history[i] = draw_item(din, of, words[13 + 2 * i]);
        alike += of == kind;
        heat += din->heat[of];
    }
    const double weight = 1.0 / ((double)row->history_count + prior_items);
    const double share = ((double)alike + prior_items * taste_prior) * weight;
    const double logit =
        bias + quality_of(din, row->item) + din->by_age[age_group(row->user.age)][kind] +
        din->by_gender[row->user.gender][kind] + heat_weight * heat * weight + taste_weight * share;
    row->probability = (float)(1.0 / (1.0 + exp(-logit)));
    row->label = rand_unit(words[7]) < row->probability;
}

/* ---- as a tf.train.Example in a TFRecord ---- */

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static size_t varint_bytes(uint64_t value)
{
    size_t bytes = 1;
    for (; value >= 0x80; value >>= 7) bytes++;
    return bytes;
}

/* One entry of Features up to the inside of its list of `list_bytes`. tag: 1 bytes, 3 integers. */
static uint8_t *put_entry(uint8_t *at, const char *name, uint32_t tag, size_t list_bytes)
{
    const size_t name_bytes = strlen(name);
    const size_t feature_bytes = 1 + varint_bytes(list_bytes) + list_bytes;
    *at++ = 1 << 3 | 2;
    at = put_varint(at, 2 + name_bytes + 1 + varint_bytes(feature_bytes) + feature_bytes);
    *at++ = 1 << 3 | 2;
    *at++ = (uint8_t)name_bytes;
    memcpy(at, name, name_bytes);
    at += name_bytes;
    *at++ = 2 << 3 | 2;
    at = put_varint(at, feature_bytes);
    *at++ = (uint8_t)(tag << 3 | 2);
    return put_varint(at, list_bytes);
}

static uint8_t *put_string(uint8_t *at, const char *text, size_t bytes)
{
    *at++ = 1 << 3 | 2;
    *at++ = (uint8_t)bytes;
    memcpy(at, text, bytes);
    return at + bytes;
}

static uint8_t *put_one_string(uint8_t *at, const char *name, const char *text, size_t bytes)
{
    return put_string(put_entry(at, name, 1, 2 + bytes), text, bytes);
}

static uint8_t *put_one_integer(uint8_t *at, const char *name, uint64_t value)
{
    const size_t bytes = varint_bytes(value);
    at = put_entry(at, name, 3, 2 + bytes);
    *at++ = 1 << 3 | 2;
    *at++ = (uint8_t)bytes;
    return put_varint(at, value);
}

static uint8_t *put_history(const struct din *din, uint8_t *at, const struct row *row)
{
    uint8_t list[DATA_GEN_HISTORY_MAX * 34];
    char name[32];
    uint8_t *end = list;
    for (uint32_t i = 0; i < row->history_count; i++) {
        end = put_string(end, name, item_name(din, row->history[i], name));
    }
    const size_t bytes = (size_t)(end - list);
    at = put_entry(at, "clicked_items_15d", 1, bytes);
    memcpy(at, list, bytes);
    return at + bytes;
}

static uint8_t *put_features(const struct din *din, uint8_t *at, const struct row *row)
{
    char name[32];
    at = put_one_integer(at, "label", row->label);
    name[0] = 'u';
    at = put_one_string(at, "user_id", name,
                        1 + data_text_of_i64((int64_t)row->user_index, name + 1));
    at = put_one_integer(at, "age", row->user.age);
    at = put_one_string(at, "gender", row->user.gender == 0 ? "1" : "2", 1);
    at = put_one_string(at, "item_id", name, item_name(din, row->item, name));
    return put_history(din, at, row);
}

static void put_row(const void *generator, bool eval, uint64_t index, struct data_gen_buffer *out,
                    struct data_gen_truth *truth_out)
{
    const struct din *din = generator;
    struct row row;
    uint8_t features[512 + DATA_GEN_HISTORY_MAX * 34];
    make_row(din, eval, index, &row);
    const size_t bytes = (size_t)(put_features(din, features, &row) - features);
    ASSERT(bytes <= sizeof features);
    const uint64_t payload = 1 + varint_bytes(bytes) + bytes;
    uint8_t *record = data_gen_room(out, 12 + (size_t)payload + 4);
    *truth_out = (struct data_gen_truth){.score = row.probability, .label = (float)row.label};
    if (record == NULL) return;
    memcpy(record, &payload, 8);
    const uint32_t length_crc = hash_crc32c_mask(hash_crc32c(0, record, 8));
    memcpy(record + 8, &length_crc, 4);
    uint8_t *at = record + 12;
    *at++ = 1 << 3 | 2;
    at = put_varint(at, bytes);
    memcpy(at, features, bytes);
    const uint32_t crc = hash_crc32c_mask(hash_crc32c(0, record + 12, (size_t)payload));
    memcpy(at + bytes, &crc, 4);
}

const struct data_gen_kind_ops data_gen_din_ops = {
    .name = "din",
    .suffix = "tfrecord",
    .rows = 200000,
    .eval_rows = 50000,
    .files = 8,
    .best = DATA_GEN_AUC,
    .create = create,
    .row = put_row,
    .destroy = mem_free,
};
