#include "train/job.h"

#include "../tests/test.h"

#define FEATURES "features:\n  label: {kind: label}\n  user: {kind: hash, buckets: 10}\n"
#define HEAD "model_dir: out\nmodel: {type: din}\n" FEATURES

/* What is not said has the documented default. */
TEST(defaults)
{
    struct err err = {0};
    struct job *job = NULL;
    CHECK_OK(job_parse("job.yaml", HEAD "data: {train: x}\n", NULL, 0, &job, &err));
    CHECK_STR(job->model_dir, "out");
    CHECK_INT(job->data.batch_size, 512);
    CHECK_INT(job->data.epochs, 1);
    CHECK_INT(job->train.checkpoint_steps, 1000);
    CHECK_INT(job->train.keep, 10);
    CHECK_INT(job->train.accumulate, 1);
    CHECK_INT(job->eval.steps, 100);
    CHECK_INT(job->train.rule.type, STORE_ADAGRAD);
    job_destroy(job);
}

/* --set changes a setting, also one that the file does not have. */
TEST(sets_are_applied)
{
    struct err err = {0};
    struct job *job = NULL;
    const char *const sets[] = {"train.max_steps=7", "data.batch_size=32", "eval.each_epoch=true"};
    CHECK_OK(job_parse("job.yaml", HEAD "data: {train: x}\n", sets, 3, &job, &err));
    CHECK_INT(job->train.max_steps, 7);
    CHECK_INT(job->data.batch_size, 32);
    CHECK(job->eval.each_epoch);
    job_destroy(job);
}

/* Mistakes are found before anything starts, at their line and column. */
TEST(mistakes_are_named)
{
    static const struct {
        const char *text;
        const char *where;
        const char *what;
    } cases[] = {
        {FEATURES "model: {type: din}\n", "job.yaml:", "`model_dir` is missing"},
        {"model_dir: out\nmodel: {type: din}\n", "job.yaml:", "`features` is missing"},
        {HEAD "trian: {}\n", "job.yaml:6:", "did you mean \"train\""},
        {HEAD "train: {max_stepz: 3}\n", "job.yaml:6:", "did you mean \"max_steps\""},
        {HEAD "train: {max_steps: -3}\n", "job.yaml:6:", "max_steps"},
        {HEAD "train: {strategy: pss}\n", "job.yaml:6:", "did you mean \"ps\""},
        {HEAD "train: {average: {}}\n", "job.yaml:6:", "`decay` is missing"},
        {HEAD "train: {average: {decay: 1.5}}\n", "job.yaml:6:", "decay"},
        {HEAD "train: {optimizer: {type: adagrat}}\n", "job.yaml:6:", "adagrad"},
        {HEAD "train: {optimizers: {user: {type: nope}}}\n", "job.yaml:6:", "nope"},
        {HEAD "train: {optimizers: 3}\n", "job.yaml:6:", "a map"},
        {HEAD "eval: {step: 1}\n", "job.yaml:6:", "did you mean \"steps\""},
        {HEAD "cluster: {workers: 0}\n", "job.yaml:6:", "workers"},
        {HEAD "cluster: {carrier: pigeon}\n", "job.yaml:6:", "pigeon"},
        {HEAD "data: {batch_size: 0}\n", "job.yaml:6:", "batch_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct job *job = NULL;
        CHECK_INT(job_parse("job.yaml", cases[i].text, NULL, 0, &job, &err), SHOAL_ECONFIG);
        CHECK_HAS(err.text, cases[i].where);
        CHECK_HAS(err.text, cases[i].what);
    }
}

/* The longest name in `optimizers:` decides, then the model's wish, then `optimizer:`. */
TEST(a_variable_finds_its_rule)
{
    struct err err = {0};
    struct job *job = NULL;
    struct store_rule rule;
    CHECK_OK(job_parse("job.yaml",
                       HEAD "data: {train: x}\n"
                            "train: {optimizer: {type: sgd, learning_rate: 0.5}, optimizers: "
                            "{hidden: {type: adam, learning_rate: 1}, hidden/0: {type: momentum, "
                            "learning_rate: 2}}}\n",
                       NULL, 0, &job, &err));
    CHECK_OK(job_rule_of(job, "output/weight", NULL, &rule, &err));
    CHECK_INT(rule.type, STORE_SGD);
    CHECK_OK(job_rule_of(job, "output/weight", "ftrl", &rule, &err));
    CHECK_INT(rule.type, STORE_FTRL);
    CHECK_NEAR(rule.schedule.learning_rate, 0.5, 0);
    CHECK_OK(job_rule_of(job, "hidden/1/weight", "ftrl", &rule, &err));
    CHECK_INT(rule.type, STORE_ADAM);
    CHECK_OK(job_rule_of(job, "hidden/0/weight", NULL, &rule, &err));
    CHECK_INT(rule.type, STORE_MOMENTUM);
    CHECK_OK(job_rule_of(job, "hidden_other", NULL, &rule, &err));
    CHECK_INT(rule.type, STORE_SGD);
    CHECK_INT(job_rule_of(job, "x", "no_such_rule", &rule, &err), SHOAL_EINVAL);
    job_destroy(job);
}
