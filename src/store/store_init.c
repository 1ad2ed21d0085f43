#include "store/store_init.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rand.h"

enum {
    NAME_ZEROS,
    NAME_CONSTANT,
    NAME_UNIFORM,
    NAME_GLOROT_UNIFORM,
    NAME_HE_UNIFORM,
    NAME_NORMAL,
    NAME_TRUNCATED_NORMAL,
    NAME_COUNT
};

static const char *const names[NAME_COUNT] = {
    "zeros", "constant", "uniform", "glorot_uniform", "he_uniform", "normal", "truncated_normal"};

/* The one number that a name takes; NULL: none. */
static const char *const settings[NAME_COUNT] = {NULL, "value",     "limit",    NULL,
                                                 NULL, "deviation", "deviation"};

static struct init init_named(uint32_t name, double number, double rows, double cols)
{
    switch (name) {
    case NAME_UNIFORM: return (struct init){.kind = INIT_UNIFORM, .value = (float)number};
    case NAME_GLOROT_UNIFORM: return init_glorot_uniform(rows, cols);
    case NAME_HE_UNIFORM: return init_he_uniform(rows);
    case NAME_NORMAL: return init_normal(number);
    case NAME_TRUNCATED_NORMAL: return init_truncated_normal(number);
    default: return init_constant((float)number);
    }
}

int store_init_read(const struct config_node *map, const char *key, uint64_t rows, uint32_t cols,
                    struct init *init, struct err *err)
{
    ASSERT(cols > 0);
    const struct config_node *node = config_get(map, key);
    if (node == NULL) return 0;
    const bool is_map = config_kind(node) == CONFIG_MAP;
    uint32_t name = NAME_COUNT;
    int rc = config_read_choice(is_map ? node : map, is_map ? "type" : key, names, NAME_COUNT,
                                &name, err);
    if (rc != 0) return rc;
    if (name == NAME_COUNT) return config_error(node, err, "`%s` needs a `type`", key);
    const double defaults[NAME_COUNT] = {[NAME_UNIFORM] = 0.05,
                                         [NAME_NORMAL] = 0.05,
                                         [NAME_TRUNCATED_NORMAL] = 1 / sqrt((double)cols)};
    double number = defaults[name];
    if (is_map) {
        const char *const allowed[] = {"type", settings[name]};
        rc = config_check_keys(node, allowed, settings[name] == NULL ? 1 : 2, err);
        if (rc != 0) return rc;
        const double least = name == NAME_CONSTANT ? -1e30 : 0;
        if (settings[name] != NULL) {
            rc = config_read_f64(node, settings[name], least, 1e30, &number, err);
        }
        if (rc != 0) return rc;
    }
    *init = init_named(name, number, rows == 0 ? (double)cols : (double)rows, (double)cols);
    return 0;
}

struct store_init store_init_of(struct init init, uint64_t seed, const char *name)
{
    return (struct store_init){
        .init = init, .seed = seed, .name_hash = hash_fingerprint64(name, strlen(name))};
}

static void fill_uniform(const struct store_init *draw, uint64_t step, uint64_t first, size_t count,
                         float *out)
{
    const float limit = draw->init.value;
    uint32_t words[256];
    for (size_t done = 0; done < count;) {
        const size_t piece = count - done < 256 ? count - done : 256;
        rand_philox_fill(draw->seed, RAND_INIT, step, first + done, piece, words);
        for (size_t i = 0; i < piece; i++) {
            out[done + i] = limit * (2 * rand_unit(words[i]) - 1);
        }
        done += piece;
    }
}

void store_init_fill(const struct store_init *draw, uint64_t key, uint64_t first, size_t count,
                     float *out)
{
    const struct init init = draw->init;
    const uint64_t step = hash_mix64(draw->name_hash ^ hash_mix64(key));
    switch (init.kind) {
    case INIT_UNIFORM: fill_uniform(draw, step, first, count, out); return;
    case INIT_NORMAL:
        for (size_t i = 0; i < count; i++) {
            out[i] = init.value * rand_normal(draw->seed, RAND_INIT, step, first + i);
        }
        return;
    case INIT_TRUNCATED_NORMAL:
        rand_truncated_normal_fill(draw->seed, RAND_INIT, step, first, count, out);
        for (size_t i = 0; i < count; i++) out[i] *= init.value;
        return;
    default:
        ASSERT(init.kind == INIT_CONSTANT);
        for (size_t i = 0; i < count; i++) out[i] = init.value;
    }
}
