#include "store/store_index.h"

#include <stdlib.h>

#include "../tests/test.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"

static uint64_t draw(uint64_t step, uint64_t i)
{
    return rand_u64(1, RAND_TEST, step, i);
}

/* An empty index answers and removes nothing and takes no memory. */
TEST(empty)
{
    struct store_index index;
    store_index_init(&index);
    CHECK_INT(store_index_find(&index, 0), STORE_INDEX_NONE);
    CHECK_INT(store_index_find(&index, UINT64_MAX), STORE_INDEX_NONE);
    CHECK_INT(store_index_remove(&index, 5), STORE_INDEX_NONE);
    CHECK_INT(store_index_bytes(&index), 0);
    CHECK(store_index_ok(&index));
    store_index_fini(&index);
}

/* Every 64-bit value is a legal hash, the ends too, whatever else is there. */
TEST(the_ends_of_the_range)
{
    struct store_index index;
    store_index_init(&index);
    const uint64_t ends[] = {0, UINT64_MAX, 1, UINT64_MAX - 1, (uint64_t)1 << 63};
    for (uint32_t i = 0; i < 5; i++) CHECK_INT(store_index_insert(&index, ends[i], i), 0);
    for (uint32_t i = 0; i < 30000; i++) {
        CHECK_INT(store_index_insert(&index, draw(1, i), 100 + i), 0);
        if (i % 3000 == 0) CHECK(store_index_ok(&index));
    }
    for (uint32_t i = 0; i < 5; i++) CHECK_INT(store_index_find(&index, ends[i]), i);
    for (uint32_t i = 0; i < 5; i++) CHECK_INT(store_index_remove(&index, ends[i]), i);
    for (uint32_t i = 0; i < 5; i++) CHECK_INT(store_index_find(&index, ends[i]), STORE_INDEX_NONE);
    CHECK(store_index_ok(&index));
    store_index_fini(&index);
}

/* Row numbers 0 and the largest are kept apart from an empty entry. */
TEST(the_ends_of_row_numbers)
{
    struct store_index index;
    store_index_init(&index);
    CHECK_INT(store_index_insert(&index, 7, 0), 0);
    CHECK_INT(store_index_insert(&index, 8, STORE_INDEX_NONE - 1), 0);
    CHECK_INT(store_index_find(&index, 7), 0);
    CHECK_INT(store_index_find(&index, 8), STORE_INDEX_NONE - 1);
    store_index_fini(&index);
}

/* At every size on the way up, all that was put in is found and nothing else is. */
TEST(growth_at_every_size)
{
    struct store_index index;
    store_index_init(&index);
    for (uint32_t i = 0; i < 3000; i++) {
        CHECK_INT(store_index_insert(&index, draw(2, i), i), 0);
        CHECK(store_index_ok(&index));
        CHECK_INT(store_index_find(&index, draw(2, i + 1)), STORE_INDEX_NONE);
    }
    for (uint32_t i = 3000; i < 200000; i++) {
        CHECK_INT(store_index_insert(&index, draw(2, i), i), 0);
        const uint32_t back = (uint32_t)rand_below(2, RAND_TEST, 3, i, i + 1);
        CHECK_INT(store_index_find(&index, draw(2, back)), back);
        if (i % 9973 == 0) CHECK(store_index_ok(&index));
    }
    for (uint32_t i = 0; i < 200000; i++) CHECK_INT(store_index_find(&index, draw(2, i)), i);
    store_index_fini(&index);
}

/* 16 bytes an entry are enough at any size, also during and right after a growth, some pages
 * apart. */
TEST(bytes_per_entry)
{
    struct store_index index;
    store_index_init(&index);
    for (uint32_t i = 0; i < 400000; i++) {
        CHECK_INT(store_index_insert(&index, draw(4, i), i), 0);
        const size_t bytes = store_index_bytes(&index);
        if (i > 100) CHECK((double)bytes <= 15.4 * (i + 1) + 16384);
        if (i % 50000 == 0) CHECK(bytes <= store_index_bytes_plan(i + 1) + 70000);
    }
    store_index_fini(&index);
}

/* Upkeep between inserts changes nothing. */
TEST(tend)
{
    struct store_index index;
    store_index_init(&index);
    CHECK(!store_index_tend(&index));
    uint32_t joined = 0;
    for (uint32_t i = 0; i < 400000; i++) {
        CHECK_INT(store_index_insert(&index, draw(5, i), i), 0);
        if (i % 1000 == 0) joined += store_index_tend(&index) ? 1 : 0;
    }
    while (store_index_tend(&index)) joined++;
    CHECK(joined >= 2);
    CHECK(store_index_ok(&index));
    for (uint32_t i = 0; i < 400000; i++) CHECK_INT(store_index_find(&index, draw(5, i)), i);
    store_index_fini(&index);
}

/* A plain map: hashes in a sorted array. */
struct plain {
    uint64_t hashes[4096];
    uint32_t rows[4096];
    uint32_t count;
};

static uint32_t plain_place(const struct plain *plain, uint64_t hash)
{
    uint32_t at = 0;
    while (at < plain->count && plain->hashes[at] < hash) at++;
    return at;
}

static void plain_insert(struct plain *plain, uint64_t hash, uint32_t row)
{
    const uint32_t at = plain_place(plain, hash);
    for (uint32_t i = plain->count++; i > at; i--) {
        plain->hashes[i] = plain->hashes[i - 1];
        plain->rows[i] = plain->rows[i - 1];
    }
    plain->hashes[at] = hash;
    plain->rows[at] = row;
}

static uint32_t plain_remove(struct plain *plain, uint64_t hash)
{
    const uint32_t at = plain_place(plain, hash);
    if (at == plain->count || plain->hashes[at] != hash) return STORE_INDEX_NONE;
    const uint32_t row = plain->rows[at];
    plain->count--;
    for (uint32_t i = at; i < plain->count; i++) {
        plain->hashes[i] = plain->hashes[i + 1];
        plain->rows[i] = plain->rows[i + 1];
    }
    return row;
}

static void check_same(const struct store_index *index, const struct plain *plain)
{
    CHECK(store_index_ok(index));
    struct store_index_cursor cursor = {0};
    uint64_t hash = 0;
    uint32_t row = 0;
    for (uint32_t i = 0; i < plain->count; i++) {
        CHECK(store_index_next(index, &cursor, &hash, &row));
        CHECK(hash == plain->hashes[i]);
        CHECK_INT(row, plain->rows[i]);
    }
    CHECK(!store_index_next(index, &cursor, &hash, &row));
}

/* Random inserts and removes of clustered and spread hashes give what a plain map gives, in hash
 * order. `base` entries stand below, so that growth is incremental (mapped arrays). */
static void against_plain(uint64_t seed, uint32_t base)
{
    static struct plain plain;
    plain.count = 0;
    struct store_index index;
    store_index_init(&index);
    for (uint32_t i = 0; i < 6000; i++) {
        const uint64_t word = draw(100 + seed, i);
        const uint64_t near = (word % 400) << 52;
        const uint64_t hash = word % 3 == 0 ? near : (draw(200 + seed, word % 1500) | 1);
        const bool is_there = store_index_find(&index, hash) != STORE_INDEX_NONE;
        if (word % 5 < 3) {
            if (is_there || plain.count == 4096) continue;
            CHECK_INT(store_index_insert(&index, hash, base + i), 0);
            plain_insert(&plain, hash, base + i);
        } else {
            CHECK_INT(store_index_remove(&index, hash), plain_remove(&plain, hash));
        }
        if (i % 100 == 0) check_same(&index, &plain);
    }
    check_same(&index, &plain);
    store_index_fini(&index);
}

TEST(random_operations_against_a_plain_map)
{
    for (uint64_t seed = 0; seed < 8; seed++) against_plain(seed, 0);
}

/* The same with removes while entries are being moved: a large index, checked by membership. */
TEST(random_operations_while_growing)
{
    enum { MANY = 60000 };
    static bool is_in[MANY];
    struct store_index index;
    store_index_init(&index);
    uint64_t count = 0;
    uint32_t growing = 0;
    for (uint64_t i = 0; i < 400000; i++) {
        const uint32_t pick = (uint32_t)rand_below(5, RAND_TEST, 1, i, MANY);
        const uint64_t hash = draw(7, pick);
        const bool insert = rand_below(5, RAND_TEST, 2, i, 10) < (i < 250000 ? 7 : 4);
        CHECK_INT(store_index_find(&index, hash), is_in[pick] ? pick : STORE_INDEX_NONE);
        if (insert && !is_in[pick]) {
            CHECK_INT(store_index_insert(&index, hash, pick), 0);
            count++;
        } else if (!insert) {
            CHECK_INT(store_index_remove(&index, hash), is_in[pick] ? pick : STORE_INDEX_NONE);
            count -= is_in[pick] ? 1 : 0;
        }
        is_in[pick] = insert;
        growing += index.arrays[STORE_INDEX_OLD].entries != NULL;
        if (i % 2003 == 0) CHECK(store_index_ok(&index));
    }
    CHECK_INT(index.count, count);
    CHECK(growing > 1000);
    CHECK(store_index_ok(&index));
    store_index_fini(&index);
}

/* Hashes made to collide at the end of the range are slow but right. */
TEST(crowds_at_the_end)
{
    struct store_index index;
    store_index_init(&index);
    for (uint32_t i = 0; i < 6000; i++) {
        const uint64_t hash = i % 2 == 0 ? UINT64_MAX - i : draw(9, i);
        CHECK_INT(store_index_insert(&index, hash, i), 0);
        if (i % 599 == 0) CHECK(store_index_ok(&index));
    }
    for (uint32_t i = 0; i < 6000; i++) {
        const uint64_t hash = i % 2 == 0 ? UINT64_MAX - i : draw(9, i);
        CHECK_INT(store_index_find(&index, hash), i);
    }
    CHECK(store_index_ok(&index));
    store_index_fini(&index);
}

/* A failed allocation leaves the index as it was, and a later insert works. */
TEST(nth_allocation_fails)
{
    struct store_index index;
    store_index_init(&index);
    uint32_t failures = 0;
    for (uint32_t i = 0; i < 30000; i++) {
        mem_fail_nth(1);
        const int rc = store_index_insert(&index, draw(11, i), i);
        mem_fail_nth(0);
        if (rc != 0) {
            CHECK_INT(rc, SHOAL_ENOMEM);
            CHECK_INT(index.count, i);
            if (failures++ % 16 == 0) CHECK(store_index_ok(&index));
            CHECK_INT(store_index_find(&index, draw(11, i)), STORE_INDEX_NONE);
            CHECK_INT(store_index_insert(&index, draw(11, i), i), 0);
        }
    }
    CHECK(failures > 50);
    for (uint32_t i = 0; i < 30000; i++) CHECK_INT(store_index_find(&index, draw(11, i)), i);
    store_index_fini(&index);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}
