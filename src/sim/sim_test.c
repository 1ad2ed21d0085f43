#include "sim/sim.h"

#include "base/mem.h"
#include "cluster/env.h"
#include "../tests/test.h"

enum { SEEDS = 100, SEEDS_TO_NOTICE = 1000 };

/* A hundred clusters of mixed disciplines, with everything that can happen to them, keep every promise;
 * and something did happen. */
TEST(a_hundred_seeds_keep_every_promise)
{
    struct sim_result sum = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct sim_result result;
        struct err err = {0};
        CHECK_OK(sim_run(&(struct sim_opts){.seed = seed}, &result, &err));
        sum.crashes += result.crashes;
        sum.duplicates += result.duplicates;
        sum.rolled_back_steps += result.rolled_back_steps;
        sum.pushes_repeated += result.pushes_repeated;
        sum.pushes_stale += result.pushes_stale;
        sum.gradients_dropped += result.gradients_dropped;
    }
    CHECK(sum.crashes > SEEDS);
    CHECK(sum.duplicates > SEEDS);
    CHECK(sum.rolled_back_steps > 0);
    CHECK(sum.pushes_repeated > 0);
    CHECK(sum.pushes_stale > 0);
    CHECK(sum.gradients_dropped > 0);
    CHECK_INT(mem_bytes_total(), 0);
}

/* The same seed is the same run. */
TEST(a_seed_repeats)
{
    struct sim_result first = {0};
    struct sim_result second = {0};
    struct err err = {0};
    CHECK_OK(sim_run(&(struct sim_opts){.seed = 9}, &first, &err));
    CHECK_OK(sim_run(&(struct sim_opts){.seed = 9}, &second, &err));
    CHECK_INT(first.messages, second.messages);
    CHECK(first.seconds == second.seconds);
}

TEST(steps_are_as_many_as_asked)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct sim_result result;
        struct err err = {0};
        CHECK_OK(sim_run(&(struct sim_opts){.seed = seed, .steps = 30}, &result, &err));
        CHECK_INT(result.steps, 30);
    }
}

/* Whoever switches a rule off is found out. */
TEST(every_broken_rule_is_noticed)
{
    for (uint32_t rule = 0; rule < ENV_RULES_COUNT; rule++) {
        struct sim_result result;
        struct err err = {0};
        int rc = 0;
        for (uint64_t seed = 1; rc == 0 && seed <= SEEDS_TO_NOTICE; seed++) {
            rc = sim_run(&(struct sim_opts){.seed = seed, .rules_off = 1u << rule}, &result, &err);
        }
        if (rc == SHOAL_ECORRUPT) continue;
        test_fail(__FILE__, __LINE__, "without this nothing is noticed: %s",
                  env_rule_text((enum env_rule)rule));
    }
}
