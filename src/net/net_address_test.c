#include "net/net_address.h"

#include <netinet/in.h>

#include "../tests/test.h"
#include "base/clock.h"
#include "base/mem.h"

static struct err err;

/* Numbers are read at once, names are told from nonsense, and loopback from the rest. */
TEST(addresses_are_read)
{
    static const struct {
        const char *text;
        int want;
        const char *back;
        bool is_loopback;
    } rows[] = {
        {"127.0.0.1:2222", 0, "127.0.0.1:2222", true},
        {"127.9.9.9:0", 0, "127.9.9.9:0", true},
        {"localhost:65535", 0, "127.0.0.1:65535", true},
        {"0.0.0.0:1", 0, "0.0.0.0:1", false},
        {"10.1.2.3:80", 0, "10.1.2.3:80", false},
        {"[::1]:2222", 0, "[::1]:2222", true},
        {"[::]:2222", 0, "[::]:2222", false},
        {"[::ffff:127.0.0.1]:5", 0, "[::ffff:127.0.0.1]:5", true},
        {"[::ffff:10.0.0.1]:5", 0, "[::ffff:10.0.0.1]:5", false},
        {"some.host:2222", SHOAL_ENOENT, NULL, false},
        {"", SHOAL_EINVAL, NULL, false},
        {":1", SHOAL_EINVAL, NULL, false},
        {"host", SHOAL_EINVAL, NULL, false},
        {"host:", SHOAL_EINVAL, NULL, false},
        {"host:65536", SHOAL_EINVAL, NULL, false},
        {"host:1a", SHOAL_EINVAL, NULL, false},
        {"host:123456", SHOAL_EINVAL, NULL, false},
        {"::1:2222", SHOAL_EINVAL, NULL, false},
        {"[]:1", SHOAL_EINVAL, NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct net_address address;
        char text[NET_ADDRESS_TEXT_MAX];
        const int got = net_address_parse(rows[i].text, &address, &err);
        if (got != rows[i].want) test_fail(__FILE__, __LINE__, "%s: %d", rows[i].text, got);
        if (got != 0) continue;
        net_address_text(&address, text);
        CHECK_STR(text, rows[i].back);
        CHECK_INT(net_address_is_loopback(&address), rows[i].is_loopback);
    }
    char long_host[400];
    memset(long_host, 'a', sizeof long_host);
    memcpy(long_host + sizeof long_host - 4, ":80", 4);
    struct net_address address;
    CHECK_INT(net_address_parse(long_host, &address, &err), SHOAL_EINVAL);
}

TEST(hosts_are_compared_without_ports)
{
    struct net_address a;
    struct net_address b;
    CHECK_OK(net_address_parse("127.0.0.1:1", &a, &err));
    CHECK_OK(net_address_parse("127.0.0.1:2", &b, &err));
    CHECK(net_address_same_host(&a, &b));
    CHECK_OK(net_address_parse("127.0.0.2:1", &b, &err));
    CHECK(!net_address_same_host(&a, &b));
    CHECK_OK(net_address_parse("[::1]:1", &b, &err));
    CHECK(!net_address_same_host(&a, &b));
    a = b;
    CHECK(net_address_same_host(&a, &b));
    const struct net_address unix_one = {.storage.ss_family = AF_UNIX};
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_text(&unix_one, text);
    CHECK_STR(text, "unix");
    CHECK(net_address_is_loopback(&unix_one) && net_address_same_host(&unix_one, &unix_one));
}

struct answer {
    int count;
    int rc;
    struct net_address address;
};

static void on_answer(void *ctx, int rc, const struct net_address *address, const struct err *why)
{
    struct answer *answer = ctx;
    (void)why;
    answer->count++;
    answer->rc = rc;
    answer->address = *address;
}

/* A look-up answers once on the loop's thread; a cancelled one never, whenever it is cancelled. */
TEST(names_are_looked_up_elsewhere)
{
    struct net_loop *loop = NULL;
    CHECK_OK(net_loop_create(&(struct net_loop_opts){0}, &loop, &err));
    struct answer answer = {0};
    struct net_lookup *lookup = NULL;
    CHECK_OK(net_lookup_start(loop, "127.0.0.1:77", on_answer, &answer, &lookup, &err));
    while (answer.count == 0) net_loop_turn(loop, clock_now_ns() + 10000000);
    CHECK_INT(answer.rc, 0);
    CHECK(net_address_is_loopback(&answer.address));

    answer = (struct answer){0};
    CHECK_OK(net_lookup_start(loop, "no such host:77", on_answer, &answer, &lookup, &err));
    while (answer.count == 0) net_loop_turn(loop, clock_now_ns() + 10000000);
    CHECK_INT(answer.rc, SHOAL_ENOENT);

    answer = (struct answer){0};
    for (int i = 0; i < 50; i++) {
        CHECK_OK(net_lookup_start(loop, "127.0.0.1:77", on_answer, &answer, &lookup, &err));
        const uint64_t wait_ns = clock_now_ns() + (uint64_t)(i % 5) * 20000;
        while (clock_now_ns() < wait_ns) continue; /* before or after the thread is done */
        net_lookup_cancel(lookup);
        net_loop_turn(loop, 0);
    }
    CHECK_INT(answer.count, 0);
    net_lookup_cancel(NULL);
    mem_fail_nth(1);
    CHECK_INT(net_lookup_start(loop, "x:1", on_answer, &answer, &lookup, &err), SHOAL_ENOMEM);
    mem_fail_nth(0);
    net_loop_destroy(loop);
    while (mem_bytes(MEM_NET) != 0) continue; /* the last threads are on their way out */
}
