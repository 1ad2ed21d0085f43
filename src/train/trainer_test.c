#include "train/trainer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

static struct err err;

/* DIN on the golden examples, in file order and without dropout. */
static struct job *din_job(const char *data, const char *train)
{
    struct job *job = NULL;
    char text[2400];
    snprintf(text, sizeof text,
             "model_dir: unused\n"
             "model: {type: din, attention: [16, 8], hidden: [64, 16]}\n"
             "features:\n"
             "  label: {kind: label}\n"
             "  user_id: {kind: hash, buckets: 10000}\n"
             "  age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
             "  gender: {kind: hash, buckets: 100}\n"
             "  item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"
             "  clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: \"0\", table: "
             "item}\n"
             "data: {format: tfrecord, train: \"%s\", eval: \"%s\", shuffle: 0, %s}\n"
             "train: {%s}\n",
             test_path("golden/din/data.tfrecord"), test_path("golden/din/data.tfrecord"), data,
             train);
    CHECK_OK(job_parse("job.yaml", text, NULL, 0, &job, &err));
    return job;
}

static struct trainer *trained(const struct job *job, uint64_t steps, double *loss_out)
{
    struct trainer *trainer = NULL;
    struct trainer_step step = {0};
    CHECK_OK(trainer_create(job, NULL, &trainer, &err));
    CHECK_OK(trainer_open_data(trainer, NULL, &err));
    for (uint64_t i = 0; i < steps; i++) {
        CHECK_OK(trainer_next(trainer, NULL, &err));
        CHECK_OK(trainer_step(trainer, &step, &err));
    }
    CHECK_INT(step.step, steps);
    if (loss_out != NULL) *loss_out = step.loss;
    return trainer;
}

/* The largest difference between two models. */
static double distance(struct trainer *a, struct trainer *b)
{
    double most = 0;
    for (uint32_t t = 0; t < store_tables_count(trainer_store(a)); t++) {
        const struct store_table_info info = store_table_info(trainer_store(a), t);
        const uint64_t count = info.rows * info.cols;
        float *x = mem_alloc_array(MEM_TRAIN, count, sizeof *x);
        float *y = mem_alloc_array(MEM_TRAIN, count, sizeof *y);
        uint64_t *keys = mem_alloc_array(MEM_TRAIN, info.rows, sizeof *keys);
        for (uint64_t i = 0; i < info.rows; i++) keys[i] = i;
        struct store_rows rows = {.table = t, .count = (uint32_t)info.rows, .keys = keys};
        if (info.kind == STORE_DENSE) {
            CHECK_OK(store_fetch_dense(trainer_store(a), t, 0, 0, count, x, &err));
            CHECK_OK(store_fetch_dense(trainer_store(b), t, 0, 0, count, y, &err));
        } else {
            rows.parts[0] = x;
            CHECK_OK(store_fetch_rows(trainer_store(a), &rows, &err));
            rows.parts[0] = y;
            CHECK_OK(store_fetch_rows(trainer_store(b), &rows, &err));
        }
        for (uint64_t i = 0; i < count; i++) most = fmax(most, fabs((double)x[i] - (double)y[i]));
        mem_free(x);
        mem_free(y);
        mem_free(keys);
    }
    return most;
}

static void check_eval(const char *path, const json_t *wants, const char *key, double got)
{
    const double want = json_number_value(json_object_get(wants, key));
    if (!(fabs(got - want) <= 1e-5)) {
        test_fail(__FILE__, __LINE__, "%s: %s: got %.9g, want %.9g", path, key, got, want);
    }
}

/* From the same start, the same examples lead to what TensorFlow's model measures on the same file. */
TEST(the_golden_job_is_evaluated_as_tensorflow_does)
{
    struct job *job = din_job("batch_size: 32", "optimizer: {type: adagrad, learning_rate: 0.1, "
                                                "initial_accumulator: 0.1, decay: {type: "
                                                "exponential, rate: 0.9, steps: 10000}}");
    struct trainer *trainer = trained(job, 0, NULL);
    CHECK_OK(checkpoint_init_from(test_path("golden/din/init.safetensors"), trainer_store(trainer),
                                  NULL, &err));
    while (trainer_next(trainer, NULL, &err) == 0) CHECK_OK(trainer_step(trainer, NULL, &err));
    struct evaluate *evaluate = NULL;
    struct metrics_result result;
    CHECK_OK(evaluate_create(trainer, &evaluate, &err));
    CHECK_OK(evaluate_run(evaluate, 0, NULL, &result, &err));
    const char *path = test_path("golden/din/eval.json");
    json_t *wants = json_load_file(path, 0, NULL);
    check_eval(path, wants, "loss", result.loss);
    check_eval(path, wants, "auc_500", result.auc);
    check_eval(path, wants, "auc_exact", result.auc_exact);
    json_decref(wants);
    evaluate_destroy(evaluate);
    trainer_destroy(trainer);
    job_destroy(job);
}

/* Two batches added up are one batch of twice the size. */
TEST(accumulated_batches_are_one_batch)
{
    struct job *whole = din_job("batch_size: 64", "seed: 3");
    struct job *halves = din_job("batch_size: 32", "seed: 3, accumulate: 2");
    double whole_loss = 0;
    double halves_loss = 0;
    struct trainer *a = trained(whole, 12, &whole_loss);
    struct trainer *b = trained(halves, 12, &halves_loss);
    CHECK_NEAR(whole_loss, halves_loss, 1e-6);
    CHECK_NEAR(distance(a, b), 0, 1e-6);
    CHECK_INT(trainer_examples(a), trainer_examples(b));
    trainer_destroy(a);
    trainer_destroy(b);
    job_destroy(whole);
    job_destroy(halves);
}

/* At the end of the data the last update is made of the batches that there are. */
TEST(the_last_update_may_have_fewer_batches)
{
    struct job *job =
        din_job("batch_size: 512", "accumulate: 2"); /* 1,280: two batches and a half */
    struct trainer *trainer = trained(job, 2, NULL);
    CHECK_INT(trainer_examples(trainer), 1280);
    CHECK_INT(trainer_next(trainer, NULL, &err), SHOAL_END);
    trainer_destroy(trainer);
    job_destroy(job);
}

/* A norm that is never reached changes nothing; a small one does. */
TEST(clipping_by_norm)
{
    struct job *plain = din_job("batch_size: 64", "seed: 3");
    struct job *loose = din_job("batch_size: 64", "seed: 3, clip_norm: 1000");
    struct job *tight = din_job("batch_size: 64", "seed: 3, clip_norm: 0.001");
    struct trainer *a = trained(plain, 5, NULL);
    struct trainer *b = trained(loose, 5, NULL);
    struct trainer *c = trained(tight, 5, NULL);
    CHECK_NEAR(distance(a, b), 0, 1e-6);
    CHECK(distance(a, c) > 1e-4);
    trainer_destroy(a);
    trainer_destroy(b);
    trainer_destroy(c);
    job_destroy(plain);
    job_destroy(loose);
    job_destroy(tight);
}

/* Evaluation uses the moving average where one is kept: after one step with a decay of nearly 1 the
 * average is still the initial model. */
TEST(evaluation_uses_the_average)
{
    struct metrics_result before;
    struct metrics_result averaged;
    struct metrics_result plain;
    struct job *jobs[] = {din_job("batch_size: 64", "seed: 3"),
                          din_job("batch_size: 64", "seed: 3, average: {decay: 0.999999}"),
                          din_job("batch_size: 64", "seed: 3")};
    struct metrics_result *results[] = {&before, &averaged, &plain};
    for (int i = 0; i < 3; i++) {
        struct evaluate *evaluate = NULL;
        struct trainer *trainer = trained(jobs[i], i == 0 ? 0 : 10, NULL);
        CHECK_OK(evaluate_create(trainer, &evaluate, &err));
        CHECK_OK(evaluate_run(evaluate, 0, NULL, results[i], &err));
        CHECK_INT(results[i]->examples, 1280);
        evaluate_destroy(evaluate);
        trainer_destroy(trainer);
        job_destroy(jobs[i]);
    }
    CHECK_NEAR(averaged.loss, before.loss, 1e-4);
    CHECK(fabs(plain.loss - before.loss) > 1e-3);
}

/* An evaluation ends when it is asked to, and the next one measures everything again. */
TEST(an_evaluation_can_be_interrupted)
{
    struct job *job = din_job("batch_size: 64", "seed: 3");
    struct trainer *trainer = trained(job, 1, NULL);
    struct evaluate *evaluate = NULL;
    struct metrics_result result = {0};
    atomic_bool stop = true;
    CHECK_OK(evaluate_create(trainer, &evaluate, &err));
    evaluate_stop_by(evaluate, &stop);
    CHECK_INT(evaluate_run(evaluate, 0, NULL, &result, &err), SHOAL_EINTR);
    CHECK_INT(result.examples, 0);
    stop = false;
    CHECK_OK(evaluate_run(evaluate, 0, NULL, &result, &err));
    CHECK_INT(result.examples, 1280);
    evaluate_destroy(evaluate);
    trainer_destroy(trainer);
    job_destroy(job);
}

/* Different variables move by different rules. */
TEST(a_rule_per_table)
{
    struct job *job = din_job("batch_size: 64", "optimizer: {type: adagrad, learning_rate: 0.1}, "
                                                "optimizers: {item: {type: ftrl, learning_rate: "
                                                "0.1}, hidden: {type: adam, learning_rate: 0.01}}");
    struct trainer *trainer = trained(job, 3, NULL);
    static const struct {
        const char *name;
        enum store_rule_type type;
    } wants[] = {{"item/embedding", STORE_FTRL},
                 {"hidden/1/bias", STORE_ADAM},
                 {"user_id/embedding", STORE_ADAGRAD},
                 {"output/weight", STORE_ADAGRAD}};
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        uint32_t table = 0;
        CHECK_OK(store_table_find(trainer_store(trainer), wants[i].name, &table, &err));
        CHECK_INT(store_table_info(trainer_store(trainer), table).rule->type, wants[i].type);
    }
    trainer_destroy(trainer);
    job_destroy(job);
}

/* A step without a batch is a mistake of the caller, and plain adam on a dynamic table one of the
 * job's. */
TEST(mistakes_are_errors)
{
    struct job *job = din_job("batch_size: 64", "seed: 3");
    struct trainer *trainer = trained(job, 1, NULL);
    CHECK_INT(trainer_step(trainer, NULL, &err), SHOAL_EINVAL);
    trainer_destroy(trainer);
    job_destroy(job);
    CHECK_OK(job_parse("job.yaml",
                       "model_dir: unused\nmodel: {type: fm}\n"
                       "features: {label: {kind: label}, a: {kind: dynamic, embed: 4}, b: {kind: "
                       "hash, buckets: 9, embed: 4}}\n"
                       "data: {train: none}\ntrain: {optimizer: {type: adam, learning_rate: 1}}\n",
                       NULL, 0, &job, &err));
    CHECK_INT(trainer_create(job, NULL, &trainer, &err), SHOAL_ECONFIG);
    CHECK_HAS(err.text, "lazy_adam");
    job_destroy(job);
}

/* Whatever allocation fails, making a trainer says so and leaves nothing behind. */
TEST(create_survives_every_failed_allocation)
{
    struct job *job = din_job("batch_size: 64", "accumulate: 2, threads: 2");
    for (uint64_t nth = 1;; nth++) {
        struct trainer *trainer = NULL;
        const size_t bytes = mem_bytes_total();
        mem_fail_nth(nth);
        const int rc = trainer_create(job, NULL, &trainer, &err);
        const bool failed = mem_fail_nth(0);
        trainer_destroy(trainer);
        CHECK_INT(mem_bytes_total(), bytes);
        if (!failed) {
            CHECK_INT(rc, 0);
            break;
        }
        CHECK_INT(rc, SHOAL_ENOMEM);
        trainer = NULL;
    }
    job_destroy(job);
}
