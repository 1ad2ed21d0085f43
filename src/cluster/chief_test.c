/* One chief alone against hand-made messages; what many tasks do together is the simulator's. */
#include "cluster/chief.h"

#include "base/mem.h"
#include "../tests/test.h"

struct world {
    uint64_t now_ns;
    uint8_t journal[1 << 16];
    size_t journal_count;
    bool is_disk_full;
    struct msg last; /* the last WORK or WORLD that was sent */
    uint32_t works;
};

static uint64_t now_ns(void *ctx)
{
    return ((struct world *)ctx)->now_ns;
}

static uint64_t no_random(void *ctx)
{
    (void)ctx;
    return 0;
}

static void keep_last(void *ctx, const struct msg *msg)
{
    struct world *world = ctx;
    world->last = *msg;
    world->works += msg->type == MSG_WORK;
}

static void no_wake(void *ctx, uint64_t at_ns)
{
    (void)ctx;
    (void)at_ns;
}

static void no_log(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static int append(void *ctx, const void *bytes, size_t count, bool sync, struct err *err)
{
    struct world *world = ctx;
    (void)sync;
    if (world->is_disk_full) return err_set(err, SHOAL_ESPACE, "the disk is full");
    CHECK(world->journal_count + count <= sizeof world->journal);
    memcpy(world->journal + world->journal_count, bytes, count);
    world->journal_count += count;
    return 0;
}

static int read_all(void *ctx, const uint8_t **bytes_out, size_t *count_out, struct err *err)
{
    struct world *world = ctx;
    (void)err;
    *bytes_out = world->journal;
    *count_out = world->journal_count;
    return 0;
}

static int cut(void *ctx, size_t count, struct err *err)
{
    (void)err;
    ((struct world *)ctx)->journal_count = count;
    return 0;
}

static bool two_leases(void *ctx, uint64_t lease, struct chief_span *span_out)
{
    (void)ctx;
    *span_out = (struct chief_span){lease * 10, 10};
    return lease < 2;
}

static struct chief_opts opts_of(struct world *world)
{
    return (struct chief_opts){.env = {.ctx = world,
                                       .now_ns = now_ns,
                                       .random = no_random,
                                       .send = keep_last,
                                       .wake = no_wake,
                                       .journal_append = append,
                                       .journal_read = read_all,
                                       .journal_cut = cut,
                                       .log = no_log},
                               .cluster = {.ps_count = 1, .workers_count = 2},
                               .incarnation = 1,
                               .batch_size = 4,
                               .heartbeat_ns = 10,
                               .deadline_ns = 100,
                               .lease = two_leases};
}

static void say(struct chief *chief, struct msg msg, uint32_t from, uint64_t incarnation)
{
    msg.from = from;
    msg.incarnation = incarnation;
    chief_receive(chief, &msg);
}

static void ask(struct chief *chief, uint32_t from, uint64_t incarnation, uint64_t request,
                struct msg_ask done)
{
    say(chief, (struct msg){.type = MSG_ASK, .epoch = 1, .request = request, .ask = done}, from,
        incarnation);
}

/* ps/0 is task 1, the workers are tasks 2 and 3. */
static struct chief *running(struct world *world)
{
    struct err err = {0};
    struct chief *chief = NULL;
    const struct chief_opts opts = opts_of(world);
    CHECK_OK(chief_create(&opts, &chief, &err));
    say(chief, (struct msg){.type = MSG_HELLO}, 1, 7);
    CHECK_INT(chief_status(chief).epoch, 1);
    CHECK_INT(chief_status(chief).phase, CHIEF_LOAD);
    say(chief, (struct msg){.type = MSG_HELLO, .epoch = 1, .hello = {.loaded = 1}}, 1, 7);
    CHECK_INT(chief_status(chief).phase, CHIEF_RUN);
    return chief;
}

/* A dead worker's lease goes to another with a higher token and the unfinished batch; the same holds
 * after the chief has been started again from its journal. */
TEST(a_lease_outlives_its_holder)
{
    static struct world world;
    struct chief *chief = running(&world);
    ask(chief, 2, 11, 100, (struct msg_ask){0});
    CHECK_INT(world.last.work.kind, MSG_WORK_BATCH);
    CHECK_INT(world.last.work.number, 0);
    const uint64_t token = world.last.work.token;
    ask(chief, 2, 11, 101, (struct msg_ask){.kind = MSG_WORK_BATCH, .token = token});
    CHECK_INT(world.last.work.number, 1);
    CHECK_INT(chief_status(chief).steps, 1);
    say(chief, (struct msg){.type = MSG_HELLO}, 2, 12);
    ask(chief, 3, 21, 500, (struct msg_ask){0});
    CHECK_INT(world.last.work.stream, 0);
    CHECK_INT(world.last.work.number, 1);
    CHECK(world.last.work.token > token);
    const uint64_t newer = world.last.work.token;
    chief_destroy(chief);

    struct err err = {0};
    struct chief_opts opts = opts_of(&world);
    CHECK_OK(chief_create(&opts, &chief, &err));
    say(chief, (struct msg){.type = MSG_HELLO, .epoch = 1, .hello = {.loaded = 1}}, 1, 7);
    CHECK_INT(chief_status(chief).epoch, 1);
    CHECK_INT(chief_status(chief).phase, CHIEF_RUN);
    ask(chief, 3, 21, 501, (struct msg_ask){.kind = MSG_WORK_BATCH, .token = newer, .number = 1});
    CHECK_INT(world.last.work.stream, 0);
    CHECK_INT(world.last.work.token, newer);
    CHECK_INT(world.last.work.number, 2);
    CHECK_INT(chief_status(chief).steps, 2);
    chief_destroy(chief);
}

/* A ps that comes with a new incarnation: new epoch, and the log of steps goes back. */
TEST(a_new_ps_is_a_new_epoch)
{
    static struct world world;
    struct chief *chief = running(&world);
    ask(chief, 2, 11, 100, (struct msg_ask){0});
    ask(chief, 2, 11, 101,
        (struct msg_ask){.kind = MSG_WORK_BATCH, .token = world.last.work.token});
    say(chief, (struct msg){.type = MSG_HELLO}, 1, 8);
    const struct chief_status status = chief_status(chief);
    CHECK_INT(status.epoch, 2);
    CHECK_INT(status.rolled_back, 1);
    CHECK_INT(status.steps, 0);
    struct wait waits[4];
    CHECK_INT(chief_waits(chief, waits, 4), 1);
    CHECK_INT(waits[0].why, WAIT_LOAD);
    CHECK_INT(waits[0].whom, 1);
    chief_destroy(chief);
}

/* What cannot be written down is not promised. */
TEST(a_full_disk_stops_the_chief)
{
    static struct world world;
    struct chief *chief = running(&world);
    world.is_disk_full = true;
    const uint32_t works = world.works;
    ask(chief, 2, 11, 100, (struct msg_ask){0});
    CHECK_INT(world.works, works);
    CHECK_INT(chief_status(chief).failure, SHOAL_ESPACE);
    chief_destroy(chief);
}

/* Any prefix of a journal can be read; one of another cluster is refused. */
TEST(journals_that_are_torn_or_foreign)
{
    static struct world world;
    struct chief *chief = running(&world);
    ask(chief, 2, 11, 100, (struct msg_ask){0});
    chief_destroy(chief);
    struct err err = {0};
    struct chief_opts opts = opts_of(&world);
    static struct world torn;
    const size_t whole = world.journal_count;
    for (size_t count = whole; count > 0; count--) {
        torn = world;
        torn.journal_count = count;
        opts.env.ctx = &torn;
        CHECK_OK(chief_create(&opts, &chief, &err));
        chief_destroy(chief);
    }
    opts.env.ctx = &world;
    opts.cluster.ps_count = 2;
    CHECK_INT(chief_create(&opts, &chief, &err), SHOAL_EMISMATCH);
    opts.batch_size = 0;
    CHECK_INT(chief_create(&opts, &chief, &err), SHOAL_EINVAL);
}

TEST(creating_survives_lack_of_memory)
{
    static struct world world;
    const struct chief_opts opts = opts_of(&world);
    for (uint64_t nth = 1;; nth++) {
        struct err err = {0};
        struct chief *chief = NULL;
        mem_fail_nth(nth);
        const int rc = chief_create(&opts, &chief, &err);
        const bool has_failed = mem_fail_nth(0);
        if (rc == 0) chief_destroy(chief);
        CHECK_INT(mem_bytes(MEM_CLUSTER), 0);
        if (!has_failed) break;
        CHECK_INT(rc, SHOAL_ENOMEM);
    }
}
