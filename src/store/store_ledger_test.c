#include "store/store_ledger.h"

#include "../tests/test.h"
#include "base/bounds.h"
#include "base/mem.h"

static struct store_work lease(uint64_t stream, uint64_t token, uint64_t number)
{
    return (struct store_work){STORE_WORK_LEASE, stream, token, number};
}

/* What the ledger says to a piece of work, which is then recorded unless refused. */
static int offer(struct store_ledger *ledger, struct store_work work, enum store_verdict *verdict)
{
    const int rc = store_ledger_check(ledger, &work, verdict, NULL);
    if (rc == 0) store_ledger_record(ledger, &work);
    CHECK(store_ledger_ok(ledger));
    return rc;
}

/* Each piece once and in order; a higher token fences lower ones, even by repeating. */
TEST(once_and_in_order)
{
    const struct {
        const char *name;
        struct store_work work;
        int want;
        enum store_verdict verdict;
    } story[] = {
        {"first", {STORE_WORK_LEASE, 1, 5, 0}, 0, STORE_APPLY},
        {"again", {STORE_WORK_LEASE, 1, 5, 0}, 0, STORE_REPEATED},
        {"next", {STORE_WORK_LEASE, 1, 5, 1}, 0, STORE_APPLY},
        {"skips", {STORE_WORK_LEASE, 1, 5, 7}, 0, STORE_APPLY},
        {"goes back", {STORE_WORK_LEASE, 1, 5, 3}, 0, STORE_REPEATED},
        {"another lease", {STORE_WORK_LEASE, 2, 1, 0}, 0, STORE_APPLY},
        {"new holder repeats", {STORE_WORK_LEASE, 1, 6, 7}, 0, STORE_REPEATED},
        {"old holder", {STORE_WORK_LEASE, 1, 5, 8}, SHOAL_ESTALE, STORE_APPLY},
        {"new holder", {STORE_WORK_LEASE, 1, 6, 8}, 0, STORE_APPLY},
        {"a worker's step", {STORE_WORK_STEP, 1, 0, 3}, 0, STORE_APPLY},
        {"the same step", {STORE_WORK_STEP, 1, 0, 3}, 0, STORE_REPEATED},
        {"unnamed", {0}, 0, STORE_APPLY},
        {"unnamed again", {0}, 0, STORE_APPLY},
    };
    struct store_ledger ledger = {0};
    for (size_t i = 0; i < sizeof story / sizeof *story; i++) {
        enum store_verdict verdict = STORE_APPLY;
        const int rc = offer(&ledger, story[i].work, &verdict);
        if (rc != story[i].want || (rc == 0 && verdict != story[i].verdict)) {
            test_fail(__FILE__, __LINE__, "%s: %d %d", story[i].name, rc, (int)verdict);
        }
    }
    CHECK_INT(ledger.count, 3);
    store_ledger_fini(&ledger);
}

/* A retired lease is forgotten, the others are not; restoring brings all back. */
TEST(retire_and_restore)
{
    struct store_ledger ledger = {0};
    enum store_verdict verdict = STORE_APPLY;
    for (uint64_t i = 0; i < 20; i++) CHECK_INT(offer(&ledger, lease(i, 1, 9), &verdict), 0);
    store_ledger_retire(&ledger, 7);
    store_ledger_retire(&ledger, 7);
    CHECK_INT(ledger.count, 19);
    for (uint64_t i = 0; i < 20; i++) {
        CHECK_INT(offer(&ledger, lease(i, 1, 9), &verdict), 0);
        CHECK_INT(verdict, i == 7 ? STORE_APPLY : STORE_REPEATED);
    }
    struct store_ledger copy = {0};
    struct err err;
    CHECK_OK(store_ledger_restore(&copy, ledger.streams, ledger.count, &err));
    CHECK_INT(offer(&copy, lease(3, 1, 9), &verdict), 0);
    CHECK_INT(verdict, STORE_REPEATED);
    CHECK_INT(store_ledger_restore(&copy, NULL, STORE_STREAMS_MAX + 1, &err), SHOAL_ELIMIT);
    store_ledger_fini(&copy);
    store_ledger_fini(&ledger);
    CHECK_INT(mem_bytes(MEM_STORE), 0);
}

TEST(bounded_and_out_of_memory)
{
    struct store_ledger ledger = {0};
    enum store_verdict verdict = STORE_APPLY;
    mem_fail_nth(1);
    const struct store_work work = lease(1, 1, 1);
    CHECK_INT(store_ledger_check(&ledger, &work, &verdict, NULL), SHOAL_ENOMEM);
    CHECK(mem_fail_nth(0));
    struct store_work *many = mem_alloc_array(MEM_STORE, STORE_STREAMS_MAX, sizeof *many);
    for (uint64_t i = 0; i < STORE_STREAMS_MAX; i++) many[i] = lease(i, 1, 1);
    CHECK_INT(store_ledger_restore(&ledger, many, STORE_STREAMS_MAX, NULL), 0);
    mem_free(many);
    const struct store_work another = lease(STORE_STREAMS_MAX, 1, 1);
    CHECK_INT(store_ledger_check(&ledger, &another, &verdict, NULL), SHOAL_ELIMIT);
    store_ledger_fini(&ledger);
}
