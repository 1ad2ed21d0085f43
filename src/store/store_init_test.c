#include "store/store_init.h"

#include "../tests/test.h"

static int read_init(const char *text, uint64_t rows, uint32_t cols, struct init *init,
                     struct err *err)
{
    struct config *config = NULL;
    int rc = config_parse("job.yaml", text, &config, err);
    if (rc == 0) rc = store_init_read(config_root(config), "init", rows, cols, init, err);
    config_destroy(config);
    return rc;
}

TEST(names_and_numbers)
{
    const struct {
        const char *text;
        uint64_t rows;
        enum init_kind kind;
        double value;
    } cases[] = {
        {"init: zeros", 4, INIT_CONSTANT, 0},
        {"init: {type: constant, value: -0.5}", 4, INIT_CONSTANT, -0.5},
        {"init: uniform", 4, INIT_UNIFORM, 0.05},
        {"init: {type: uniform, limit: 2}", 4, INIT_UNIFORM, 2},
        {"init: glorot_uniform", 8, INIT_UNIFORM, 0.5}, /* sqrt(6 / 24) */
        {"init: glorot_uniform", 0, INIT_UNIFORM, 0.4330127},
        {"init: he_uniform", 24, INIT_UNIFORM, 0.5},
        {"init: normal", 4, INIT_NORMAL, 0.05},
        {"init: truncated_normal", 4, INIT_TRUNCATED_NORMAL, 0.25},
        {"init: {type: truncated_normal, deviation: 0.1}", 4, INIT_TRUNCATED_NORMAL, 0.1},
        {"other: 1", 4, INIT_KIND_COUNT, 9}, /* absent: as it was */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        struct init init = {.kind = INIT_KIND_COUNT, .value = 9};
        CHECK_OK(read_init(cases[i].text, cases[i].rows, 16, &init, &err));
        CHECK_INT(init.kind, cases[i].kind);
        CHECK_NEAR(init.value, cases[i].value, 1e-6);
    }
    const char *const wrong[] = {"init: zero", "init: {value: 1}", "init: {type: zeros, value: 1}",
                                 "init: {type: normal, deviation: -1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        struct init init;
        CHECK_INT(read_init(wrong[i], 4, 16, &init, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, "job.yaml:1:");
    }
}

/* Values depend on seed, name, key and element alone: any cut of a row gives the same. */
TEST(the_same_values_in_any_pieces)
{
    const struct init kinds[] = {init_constant(3), init_glorot_uniform(10, 20), init_normal(0.5),
                                 init_truncated_normal(0.5)};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        enum { COUNT = 700 };
        const struct store_init draw = store_init_of(kinds[k], 7, "user");
        float whole[COUNT];
        float pieces[COUNT];
        store_init_fill(&draw, 42, 0, COUNT, whole);
        for (size_t at = 0; at < COUNT; at += 13) {
            store_init_fill(&draw, 42, at, COUNT - at < 13 ? COUNT - at : 13, pieces + at);
        }
        CHECK(memcmp(whole, pieces, sizeof whole) == 0);
        if (kinds[k].kind == INIT_CONSTANT) continue;
        const struct store_init others[] = {store_init_of(kinds[k], 8, "user"),
                                            store_init_of(kinds[k], 7, "item")};
        for (int i = 0; i < 2; i++) {
            store_init_fill(&others[i], 42, 0, COUNT, pieces);
            CHECK(memcmp(whole, pieces, sizeof whole) != 0);
        }
        store_init_fill(&draw, 43, 0, COUNT, pieces);
        CHECK(memcmp(whole, pieces, sizeof whole) != 0);
    }
}

/* Means, spreads and limits are what the kinds say. */
TEST(distributions)
{
    const struct {
        struct init init;
        double limit;
        double deviation;
    } cases[] = {
        {{INIT_UNIFORM, 0.5f}, 0.5, 0.5 / 1.7320508},
        {{INIT_NORMAL, 0.5f}, 4, 0.5},
        {{INIT_TRUNCATED_NORMAL, 0.5f}, 1, 0.5 * 0.8796257},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        enum { ROWS = 4000, COLS = 16 };
        const struct store_init draw = store_init_of(cases[k].init, 1, "t");
        double sum = 0;
        double squares = 0;
        for (uint64_t key = 0; key < ROWS; key++) {
            float row[COLS];
            store_init_fill(&draw, key, 0, COLS, row);
            for (int c = 0; c < COLS; c++) {
                CHECK(fabs((double)row[c]) <= cases[k].limit);
                sum += (double)row[c];
                squares += (double)row[c] * (double)row[c];
            }
        }
        CHECK_NEAR(sum / (ROWS * COLS), 0, 0.01);
        CHECK_NEAR(sqrt(squares / (ROWS * COLS)), cases[k].deviation, 0.01);
    }
}
