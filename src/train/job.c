#include "train/job.h"

#include <float.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const strategies[] = {"ps", "allreduce", "hybrid", "average"};
static const char *const disciplines[] = {"async", "sync", "ssp", "dc_async"};

static int read_average(const struct config_node *train, double *decay, struct err *err)
{
    static const char *const keys[] = {"decay"};
    const struct config_node *average = config_get(train, "average");
    if (average == NULL) return 0;
    int rc = config_check_keys(average, keys, COUNT(keys), err);
    if (rc == 0 && config_get(average, "decay") == NULL) {
        rc = config_error(average, err, "train.average: `decay` is missing, for example 0.999");
    }
    if (rc == 0) rc = config_read_f64(average, "decay", 1e-9, 1 - 1e-9, decay, err);
    return rc;
}

/* The names must be known here already, so that a typing mistake in `optimizers:` is found before
 * anything starts; whether they name a variable is known only to the model (see job_rule_of). */
static int check_optimizers(const struct config_node *optimizers, struct err *err)
{
    if (optimizers == NULL) return 0;
    if (config_kind(optimizers) != CONFIG_MAP) {
        return config_error(optimizers, err,
                            "train.optimizers: a map from table or layer to optimizer is wanted");
    }
    for (size_t i = 0; i < config_count(optimizers); i++) {
        struct store_rule rule;
        const int rc = store_rule_parse(config_at(optimizers, i), &rule, err);
        if (rc != 0) return rc;
    }
    return 0;
}

static int read_optimizer(const struct config_node *train, struct job_train *out, struct err *err)
{
    const struct config_node *optimizer = config_get(train, "optimizer");
    out->rule = store_rule_default(STORE_ADAGRAD, 0.1);
    int rc = optimizer == NULL ? 0 : store_rule_parse(optimizer, &out->rule, err);
    out->optimizers = config_get(train, "optimizers");
    if (rc == 0) rc = check_optimizers(out->optimizers, err);
    return rc;
}

static int read_train(const struct config_node *train, struct job_train *out, struct err *err)
{
    static const char *const keys[] = {
        "strategy",        "discipline",    "max_steps",  "seed",          "checkpoint_steps",
        "checkpoint_secs", "keep",          "log_steps",  "summary_steps", "threads",
        "optimizer",       "optimizers",    "accumulate", "average",       "clip_norm",
        "init_from",       "sync_replicas", "staleness",  "lambda",        "sparse_mean"};
    if (train != NULL) {
        const int wrong = config_check_keys(train, keys, COUNT(keys), err);
        if (wrong != 0) return wrong;
    }
    uint32_t strategy = JOB_PS;
    uint32_t discipline = JOB_ASYNC;
    *out = (struct job_train){.seed = 1,
                              .checkpoint_steps = 1000,
                              .keep = 10,
                              .log_steps = 100,
                              .summary_steps = 100,
                              .accumulate = 1};
    int rc = config_read_choice(train, "strategy", strategies, COUNT(strategies), &strategy, err);
    if (rc == 0) {
        rc = config_read_choice(train, "discipline", disciplines, COUNT(disciplines), &discipline,
                                err);
    }
    if (rc == 0) rc = config_read_u64(train, "max_steps", 0, UINT64_MAX, &out->max_steps, err);
    if (rc == 0) rc = config_read_u64(train, "seed", 0, UINT64_MAX, &out->seed, err);
    if (rc == 0) {
        rc = config_read_u64(train, "checkpoint_steps", 0, UINT64_MAX, &out->checkpoint_steps, err);
    }
    if (rc == 0) {
        rc = config_read_f64(train, "checkpoint_secs", 0, 1e9, &out->checkpoint_secs, err);
    }
    if (rc == 0) rc = config_read_u32(train, "keep", 1, JOB_KEEP_MAX, &out->keep, err);
    if (rc == 0) rc = config_read_u64(train, "log_steps", 0, UINT64_MAX, &out->log_steps, err);
    if (rc == 0) {
        rc = config_read_u64(train, "summary_steps", 0, UINT64_MAX, &out->summary_steps, err);
    }
    if (rc == 0) rc = config_read_u32(train, "threads", 0, TEAM_THREADS_MAX, &out->threads, err);
    if (rc == 0) {
        rc = config_read_u32(train, "accumulate", 1, JOB_ACCUMULATE_MAX, &out->accumulate, err);
    }
    if (rc == 0) rc = config_read_f64(train, "clip_norm", 0, FLT_MAX, &out->clip_norm, err);
    if (rc == 0) rc = config_read_string(train, "init_from", &out->init_from, err);
    if (rc == 0) rc = read_average(train, &out->average_decay, err);
    if (rc == 0) rc = read_optimizer(train, out, err);
    out->strategy = (enum job_strategy)strategy;
    out->discipline = (enum job_discipline)discipline;
    return rc;
}

static int read_eval(const struct config_node *eval, struct job_eval *out, struct err *err)
{
    static const char *const keys[] = {"steps", "throttle_secs", "each_epoch", "ndcg"};
    *out = (struct job_eval){.steps = 100, .throttle_secs = 60, .ndcg = 10};
    int rc = eval == NULL ? 0 : config_check_keys(eval, keys, COUNT(keys), err);
    if (rc == 0) rc = config_read_u64(eval, "steps", 0, UINT64_MAX, &out->steps, err);
    if (rc == 0) rc = config_read_f64(eval, "throttle_secs", 0, 1e9, &out->throttle_secs, err);
    if (rc == 0) rc = config_read_bool(eval, "each_epoch", &out->each_epoch, err);
    if (rc == 0) rc = config_read_u32(eval, "ndcg", 1, METRICS_NDCG_K_MAX, &out->ndcg, err);
    return rc;
}

/* One process reads nothing of `cluster:` yet, but a mistake there is a mistake all the same. */
static int check_cluster(const struct config_node *cluster, struct err *err)
{
    static const char *const keys[] = {"ps",       "workers", "evaluator", "carrier",
                                       "colocate", "filters", "place"};
    static const char *const carriers[] = {"auto", "tcp", "shm"};
    uint32_t number = 0;
    uint32_t carrier = 0;
    if (cluster == NULL) return 0;
    int rc = config_check_keys(cluster, keys, COUNT(keys), err);
    if (rc == 0) rc = config_read_u32(cluster, "ps", 0, JOB_TASKS_MAX, &number, err);
    if (rc == 0) rc = config_read_u32(cluster, "workers", 1, JOB_TASKS_MAX, &number, err);
    if (rc == 0) rc = config_read_u32(cluster, "evaluator", 0, 1, &number, err);
    if (rc == 0) rc = config_read_choice(cluster, "carrier", carriers, 3, &carrier, err);
    return rc;
}

static int read_root(struct job *job, struct err *err)
{
    static const char *const keys[] = {"model_dir", "model", "features", "data",
                                       "train",     "eval",  "cluster"};
    const struct config_node *root = config_root(job->config);
    int rc = config_check_keys(root, keys, COUNT(keys), err);
    if (rc == 0) rc = config_read_string(root, "model_dir", &job->model_dir, err);
    if (rc == 0 && (job->model_dir == NULL || job->model_dir[0] == '\0')) {
        rc = config_error(root, err, "`model_dir` is missing: the folder for checkpoints and logs");
    }
    job->model = config_get(root, "model");
    const struct config_node *features = config_get(root, "features");
    if (rc == 0 && features == NULL) {
        rc = config_error(root, err, "`features` is missing: what the columns of the data become");
    }
    if (rc == 0) rc = data_spec_create(features, NULL, &job->spec, err);
    if (rc == 0) rc = data_settings_read(config_get(root, "data"), &job->data, err);
    if (rc == 0) rc = read_train(config_get(root, "train"), &job->train, err);
    if (rc == 0) rc = read_eval(config_get(root, "eval"), &job->eval, err);
    if (rc == 0) rc = check_cluster(config_get(root, "cluster"), err);
    return rc;
}

/* Takes the config over, also when it fails. */
static int finish(struct config *config, const char *const *sets, size_t sets_count,
                  struct job **job_out, struct err *err)
{
    struct job *job = mem_alloc(MEM_TRAIN, sizeof *job);
    if (job == NULL) {
        config_destroy(config);
        return err_set(err, SHOAL_ENOMEM, "no memory for a job");
    }
    job->config = config;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sets_count; i++) rc = config_set(config, sets[i], err);
    if (rc == 0) rc = read_root(job, err);
    if (rc != 0) {
        job_destroy(job);
        return rc;
    }
    *job_out = job;
    return 0;
}

int job_load(const char *path, const char *const *sets, size_t sets_count, struct job **job_out,
             struct err *err)
{
    struct config *config = NULL;
    const int rc = config_load(path, &config, err);
    return rc != 0 ? rc : finish(config, sets, sets_count, job_out, err);
}

int job_parse(const char *name, const char *text, const char *const *sets, size_t sets_count,
              struct job **job_out, struct err *err)
{
    struct config *config = NULL;
    const int rc = config_parse(name, text, &config, err);
    return rc != 0 ? rc : finish(config, sets, sets_count, job_out, err);
}

static bool is_at_or_below(const char *name, const char *folder)
{
    const size_t bytes = strlen(folder);
    return strncmp(name, folder, bytes) == 0 && (name[bytes] == '\0' || name[bytes] == '/');
}

static int rule_by_name(const char *name, struct store_rule *rule)
{
    for (int type = 0; type < STORE_RULE_COUNT; type++) {
        if (strcmp(name, store_rule_name((enum store_rule_type)type)) == 0) {
            const struct store_schedule schedule = rule->schedule;
            *rule = store_rule_default((enum store_rule_type)type, schedule.learning_rate);
            rule->schedule = schedule;
            return 0;
        }
    }
    return SHOAL_ENOENT;
}

/* The longest name of `optimizers:` that fits; NULL: none. */
static const struct config_node *own_rule_node(const struct job *job, const char *name)
{
    const struct config_node *optimizers = job->train.optimizers;
    const struct config_node *best = NULL;
    size_t best_bytes = 0;
    for (size_t i = 0; i < config_count(optimizers); i++) {
        const char *key = config_key_at(optimizers, i);
        if (is_at_or_below(name, key) && (best == NULL || strlen(key) > best_bytes)) {
            best = config_at(optimizers, i);
            best_bytes = strlen(key);
        }
    }
    return best;
}

int job_rule_of(const struct job *job, const char *name, const char *wish,
                struct store_rule *rule_out, struct err *err)
{
    const struct config_node *own = own_rule_node(job, name);
    if (own != NULL) return store_rule_parse(own, rule_out, err);
    *rule_out = job->train.rule;
    if (wish != NULL && rule_by_name(wish, rule_out) != 0) {
        return err_set(err, SHOAL_EINVAL, "%s: the model asks for an unknown rule \"%s\"", name,
                       wish);
    }
    return 0;
}

const struct config_node *job_rule_node(const struct job *job, const char *name)
{
    const struct config_node *own = own_rule_node(job, name);
    const struct config_node *root = config_root(job->config);
    const struct config_node *train = config_get(root, "train");
    const struct config_node *optimizer = train == NULL ? NULL : config_get(train, "optimizer");
    if (own != NULL) return own;
    return optimizer != NULL ? optimizer : root;
}

int job_check_rules(const struct job *job, const char *const *names, size_t count, struct err *err)
{
    const struct config_node *optimizers = job->train.optimizers;
    for (size_t i = 0; i < config_count(optimizers); i++) {
        const char *key = config_key_at(optimizers, i);
        size_t fits = 0;
        while (fits < count && !is_at_or_below(names[fits], key)) fits++;
        if (fits < count) continue;
        struct str known = {0};
        for (size_t k = 0; k < count; k++) {
            str_printf(&known, "%s%s", k > 0 ? ", " : "", names[k]);
        }
        const int rc = config_error(config_at(optimizers, i), err,
                                    "no table or layer is named so; the model has: %s",
                                    known.failed ? "" : known.text);
        str_fini(&known);
        return rc;
    }
    return 0;
}

void job_destroy(struct job *job)
{
    if (job == NULL) return;
    data_spec_destroy(job->spec);
    config_destroy(job->config);
    mem_free(job);
}
