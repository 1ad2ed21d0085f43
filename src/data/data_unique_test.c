#include "data/data_unique.h"

#include "../tests/test.h"
#include "base/mem.h"
#include "base/rand.h"

static struct err err;

/* Against the plain way: for each occurrence, look at all keys found before. */
static void check(uint64_t rows, const struct data_unique_run *runs, uint32_t runs_count)
{
    struct data_unique unique;
    struct data_unique_out out = {0};
    uint32_t total = 0;
    for (uint32_t i = 0; i < runs_count; i++) total += runs[i].count;
    CHECK_OK(data_unique_init(&unique, rows, &err));
    CHECK_OK(data_unique_reserve(&unique, &out, total, &err));
    for (int again = 0; again < 2; again++) { /* the map must be clean for the next batch */
        data_unique_run(&unique, runs, runs_count, &out);
        CHECK_INT(out.occs_count, total);
        uint32_t keys = 0, occ = 0;
        for (uint32_t i = 0; i < runs_count; i++) {
            for (uint32_t j = 0; j < runs[i].count; j++, occ++) {
                uint32_t slot = 0;
                while (slot < keys && out.keys[slot] != runs[i].keys[j]) slot++;
                CHECK_INT(out.slots[occ], slot);
                CHECK(out.keys[slot] == runs[i].keys[j]);
                if (slot == keys) keys++;
            }
        }
        CHECK_INT(out.keys_count, keys);
        CHECK_INT(out.occ_offsets[keys], total);
        for (uint32_t slot = 0; slot < keys; slot++) {
            for (uint32_t i = out.occ_offsets[slot]; i < out.occ_offsets[slot + 1]; i++) {
                CHECK_INT(out.slots[out.occs[i]], slot);
                CHECK(i == out.occ_offsets[slot] || out.occs[i - 1] < out.occs[i]);
            }
        }
    }
    data_unique_out_fini(&out);
    data_unique_fini(&unique);
}

TEST(keys_are_unique_in_order_of_first_occurrence)
{
    uint64_t keys[3000];
    const struct data_unique_run none = {.keys = keys, .count = 0};
    check(10, &none, 1);
    check(0, &none, 1);
    for (uint64_t spread = 1; spread <= 10000; spread *= 10) {
        for (uint32_t i = 0; i < 3000; i++) keys[i] = rand_below(1, RAND_TEST, spread, i, spread);
        const struct data_unique_run runs[] = {{keys, 1000}, {keys + 1000, 0}, {keys + 1000, 2000}};
        check(10000, runs, 3);      /* mapped directly */
        check(1ull << 38, runs, 3); /* hashed */
        for (uint32_t i = 0; i < 3000; i++) keys[i] = keys[i] * 0x9e3779b97f4a7c15u - spread;
        check(0, runs, 3);
    }
}

TEST(every_key_is_legal_in_a_dynamic_table)
{
    const uint64_t keys[] = {0, UINT64_MAX, 0, 1, UINT64_MAX, 1ull << 32, 1ull << 63};
    check(0, &(struct data_unique_run){keys, 7}, 1);
}

TEST(out_of_memory_is_an_error)
{
    for (uint64_t nth = 1;; nth++) {
        struct data_unique unique = {0};
        struct data_unique_out out = {0};
        mem_fail_nth(nth);
        int rc = data_unique_init(&unique, 100, &err);
        if (rc == 0) rc = data_unique_reserve(&unique, &out, 5000, &err);
        const bool failed = mem_fail_nth(0);
        CHECK_INT(rc, failed ? SHOAL_ENOMEM : 0);
        data_unique_out_fini(&out);
        data_unique_fini(&unique);
        if (!failed) break;
    }
    CHECK_INT(mem_bytes(MEM_DATA), 0);
}
