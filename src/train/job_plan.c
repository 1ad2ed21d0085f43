#include "train/job_plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/exec.h"
#include "model/model.h"
#include "train/trainer.h"

/* Distinct keys are counted by HyperLogLog (Flajolet et al., AofA '07): the longest run of zero bits
 * per register tells how many different hashes there were, within 0.8 %. */
#define SKETCH_BITS 14u
#define SKETCH_SIZE (1u << SKETCH_BITS)

struct sketch {
    uint8_t longest[SKETCH_SIZE];
};

static void sketch_add(struct sketch *sketch, uint64_t key)
{
    const uint64_t hash = hash_mix64(key);
    const uint32_t index = (uint32_t)(hash >> (64 - SKETCH_BITS));
    const uint64_t rest = hash << SKETCH_BITS | 1u << (SKETCH_BITS - 1);
    const uint8_t length = (uint8_t)(__builtin_clzll(rest) + 1);
    if (length > sketch->longest[index]) sketch->longest[index] = length;
}

static uint64_t sketch_count(const struct sketch *sketch)
{
    double sum = 0;
    uint32_t empty = 0;
    for (uint32_t i = 0; i < SKETCH_SIZE; i++) {
        sum += ldexp(1, -(int)sketch->longest[i]);
        empty += sketch->longest[i] == 0;
    }
    const double size = SKETCH_SIZE;
    const double estimate = 0.7213 / (1 + 1.079 / size) * size * size / sum;
    if (estimate <= 2.5 * size && empty > 0) return (uint64_t)(size * log(size / empty) + 0.5);
    return (uint64_t)(estimate + 0.5);
}

/* A prediction held to be ranked (8 bytes, in an array that doubles) and the room to sort it. */
#define METRICS_BYTES_PER_EXAMPLE 20u

/* Buffers of the checkpoint's and the log's writers, and of the rows pulled: as seen in small jobs. */
#define WRITERS_BYTES ((uint64_t)2 << 20)

/* What the data showed. */
struct sample {
    uint64_t examples;
    uint64_t batches;
    bool all;
    double *keys;            /* by key list: unique ones, summed over batches */
    struct sketch *sketches; /* by key list */
    double per_row;          /* occurrences of ragged features, mean */
    uint64_t reader_bytes;   /* of the windows that the readers will fill, and of open files */
    uint64_t eval_bytes;     /* that the metrics of an evaluation will hold */
};

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void sample_batch(struct sample *sample, const struct batch *batch)
{
    uint64_t occurrences = 0;
    uint32_t ragged = 0;
    for (uint32_t i = 0; i < batch->tables_count; i++) {
        const struct batch_keys *keys = &batch->tables[i];
        sample->keys[i] += keys->keys_count;
        for (uint32_t k = 0; k < keys->keys_count; k++) {
            sketch_add(&sample->sketches[i], keys->keys[k]);
        }
    }
    for (uint32_t i = 0; i < batch->ids_count; i++) {
        if (batch->ids[i].offsets == NULL) continue;
        occurrences += batch->ids[i].count;
        ragged++;
    }
    if (ragged > 0) sample->per_row += (double)occurrences / (ragged * (double)batch->rows);
    sample->examples += batch->rows;
    sample->batches++;
}

/* The step of a batch on zeros, so that the executor takes the memory that it will take. */
static int dry_run(struct exec *exec, const struct model *model, const struct batch *batch,
                   struct err *err)
{
    const uint32_t params = graph_params_count(model->graph);
    const uint32_t tables = graph_tables_count(model->graph);
    float **arrays = mem_alloc_array(MEM_TRAIN, 2 * (size_t)params + tables, sizeof *arrays);
    bool ok = arrays != NULL;
    for (uint32_t i = 0; ok && i < 2 * params + tables; i++) {
        size_t floats = 0;
        if (i < 2 * params) {
            const struct graph_variable *param = graph_param_at(model->graph, i % params);
            floats = (size_t)(param->rows == 0 ? 1 : param->rows) * param->cols;
        } else {
            const struct graph_variable *table = graph_table_at(model->graph, i - 2 * params);
            floats = (size_t)batch->tables[table->rows].keys_count * table->cols;
        }
        arrays[i] = mem_alloc_array(MEM_TRAIN, floats, sizeof(float));
        ok = arrays[i] != NULL;
    }
    int rc = ok ? 0 : err_set(err, SHOAL_ENOMEM, "no memory to plan a step");
    if (rc == 0) {
        rc = exec_run(exec,
                      &(struct exec_feed){.batch = batch,
                                          .params = (const float *const *)arrays,
                                          .tables = (const float *const *)(arrays + 2 * params),
                                          .grads = arrays + params},
                      err);
    }
    for (uint32_t i = 0; arrays != NULL && i < 2 * params + tables; i++) mem_free(arrays[i]);
    mem_free(arrays);
    return rc;
}

static void sample_reader(struct sample *sample, const struct job *job, const struct data *data)
{
    struct data_stats stats;
    if (data == NULL) return;
    data_stats_get(data, &stats);
    const uint64_t open = stats.files < job->data.interleave ? stats.files : job->data.interleave;
    sample->reader_bytes += stats.memory_bytes + open * STREAM_CHUNK_BYTES;
}

/* One epoch of the training data, or as much of it as PLAN_EXAMPLES_MAX allows. The reader is told
 * of all epochs, so that it fills as many windows as it will. */
static int read_train(const struct job *job, const struct model *model, struct exec *exec,
                      struct team *team, struct sample *sample, struct err *err)
{
    struct data *data = NULL;
    const struct batch *batch = NULL;
    struct data_info info = {0};
    int rc = data_open(
        &(struct data_opts){.spec = job->spec, .settings = job->data, .seed = job->train.seed},
        &data, err);
    while (rc == 0 && !info.epoch_end && sample->examples < PLAN_EXAMPLES_MAX) {
        rc = data_next(data, team, &batch, &info, err);
        if (rc != 0 || info.epoch > 0) break;
        if (sample->batches == 0) rc = dry_run(exec, model, batch, err);
        sample_batch(sample, batch);
    }
    sample->all = rc == SHOAL_END || info.epoch_end || info.epoch > 0;
    if (rc == SHOAL_END) rc = 0;
    sample_reader(sample, job, data);
    data_close(data);
    if (sample->batches > 0) sample->per_row /= (double)sample->batches;
    return rc;
}

/* The evaluation data: an evaluation has windows of its own and holds all predictions. */
static int read_eval(const struct job *job, const struct model *model, struct exec *exec,
                     struct team *team, struct sample *sample, struct err *err)
{
    struct data *data = NULL;
    const struct batch *batch = NULL;
    uint64_t batches = 0;
    uint64_t examples = 0;
    if (job->data.eval.count == 0) return 0;
    int rc = data_open(&(struct data_opts){.spec = job->spec, .settings = job->data, .eval = true},
                       &data, err);
    while (rc == 0 && (job->eval.steps == 0 || batches < job->eval.steps) &&
           examples < PLAN_EXAMPLES_MAX) {
        rc = data_next(data, team, &batch, NULL, err);
        if (rc == 0 && batches++ == 0) rc = dry_run(exec, model, batch, err);
        if (rc == 0) examples += batch->rows;
    }
    if (rc == SHOAL_END) rc = 0;
    sample_reader(sample, job, data);
    data_close(data);
    sample->eval_bytes = examples * METRICS_BYTES_PER_EXAMPLE;
    return rc;
}

/* Reads the data as a run would. What is resident in the end is what the run will have beside its
 * tables, but for the windows, which the reader fills at its own pace. */
static int read_sample(const struct job *job, const struct model *model, struct exec *exec,
                       struct exec *eval_exec, struct team *team, struct sample *sample,
                       uint64_t *resident_out, struct err *err)
{
    int rc = read_train(job, model, exec, team, sample, err);
    if (rc == 0) rc = read_eval(job, model, eval_exec, team, sample, err);
    *resident_out = resident_bytes() + sample->reader_bytes + sample->eval_bytes + WRITERS_BYTES;
    return rc;
}

/* A table whose rows are known beforehand takes a page when one of its rows is first written, so it
 * takes as many as `keys` rows, anywhere in it, lie on. */
static uint64_t touched_bytes(uint64_t bytes, uint64_t rows, uint64_t keys)
{
    const double page_bytes = rows >= STORE_HUGE_ROWS_MIN ? 2 << 20 : 4096;
    const double pages = fmax(1, (double)bytes / page_bytes);
    const double share = -expm1((double)keys * log1p(-1 / fmax(pages, 2)));
    return (uint64_t)((double)bytes * fmin(share, 1));
}

static void fill_table(struct job_plan_table *table, const struct store_table_opts *opts,
                       const struct sample *sample, uint32_t keys)
{
    *table = (struct job_plan_table){.name = opts->name,
                                     .kind = opts->kind,
                                     .rule = store_rule_name(opts->rule.type),
                                     .rows = opts->rows,
                                     .cols = opts->cols,
                                     .shards = opts->shards != 0 ? opts->shards
                                                                 : store_shards_rule(opts)};
    if (opts->kind != STORE_DENSE && sample->batches > 0) {
        table->keys_per_step = sample->keys[keys] / (double)sample->batches;
    }
    if (opts->kind == STORE_DYNAMIC) table->rows = sketch_count(&sample->sketches[keys]);
    table->bytes = store_bytes_plan(opts, table->rows);
    const uint64_t rows_bytes = table->bytes.values + table->bytes.slots;
    table->touched_bytes = rows_bytes;
    if (opts->kind == STORE_FIXED && sample->all) {
        table->touched_bytes =
            touched_bytes(rows_bytes, table->rows, sketch_count(&sample->sketches[keys]));
    }
    table->touched_bytes += table->bytes.index;
}

static int fill_tables(const struct job *job, const struct sample *sample, struct job_plan *plan,
                       struct err *err)
{
    const struct graph *graph = plan->model->graph;
    const uint32_t params = graph_params_count(graph);
    const uint32_t count = params + graph_tables_count(graph);
    struct store_table_opts *opts = mem_alloc_array(MEM_TRAIN, count, sizeof *opts);
    plan->tables = mem_alloc_array(MEM_TRAIN, count, sizeof *plan->tables);
    int rc = 0;
    if (opts == NULL || plan->tables == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory for a plan of %u tables", count);
    } else {
        rc = trainer_table_opts(job, plan->model, opts, count, err);
    }
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        struct job_plan_table *table = &plan->tables[i];
        fill_table(table, &opts[i], sample,
                   i < params ? 0 : graph_table_at(graph, i - params)->rows);
        plan->tables_count++;
        plan->parameters += table->rows * table->cols;
        plan->table_bytes += table->touched_bytes;
        const double floats = table->kind == STORE_DENSE ? (double)table->rows * table->cols
                                                         : table->keys_per_step * table->cols;
        plan->bytes_per_step += 2 * floats * sizeof(float) + 2 * 8 * table->keys_per_step;
    }
    mem_free(opts);
    return rc;
}

/* As trainer and evaluate make theirs. */
static int make_exec(const struct job *job, const struct model *model, struct team *team,
                     bool train, struct exec **exec_out, struct err *err)
{
    const graph_id fetches[] = {model->loss, model->probability};
    return exec_create(&(struct exec_opts){.graph = model->graph,
                                           .team = team,
                                           .batch_max = job->data.batch_size,
                                           .seed = job->train.seed,
                                           .train = train,
                                           .fetches = fetches,
                                           .fetches_count = train ? 0 : 2},
                       exec_out, err);
}

int job_plan_make(const struct job *job, struct job_plan *plan_out, struct err *err)
{
    struct job_plan plan = {.batch_rows = job->data.batch_size};
    const struct data_schema *schema = data_spec_schema(job->spec);
    struct sample sample = {0};
    struct team *team = NULL;
    struct exec *exec = NULL;
    struct exec *eval_exec = NULL;
    struct err data_err = {0};
    sample.keys = mem_alloc_array(MEM_TRAIN, schema->tables_count, sizeof *sample.keys);
    sample.sketches = mem_alloc_array(MEM_TRAIN, schema->tables_count, sizeof *sample.sketches);
    int rc = sample.keys == NULL || sample.sketches == NULL
                 ? err_set(err, SHOAL_ENOMEM, "no memory for a plan")
                 : 0;
    if (rc == 0) rc = model_create(job->model, schema, &plan.model, err);
    if (rc == 0) rc = team_create(job->train.threads, &team, err);
    if (rc == 0) rc = make_exec(job, plan.model, team, true, &exec, err);
    if (rc == 0) rc = make_exec(job, plan.model, team, false, &eval_exec, err);
    plan.other_bytes = resident_bytes();
    if (rc == 0 && read_sample(job, plan.model, exec, eval_exec, team, &sample, &plan.other_bytes,
                               &data_err) != 0) {
        log_line(LOG_WARN, "plan", "planned without the data: %s", data_err.text);
        sample.batches = 0;
    }
    if (rc == 0) rc = fill_tables(job, &sample, &plan, err);
    if (rc == 0) {
        plan.flops_per_step = exec_flops(exec, plan.batch_rows, sample.per_row);
        plan.examples_read = sample.examples;
        plan.all_read = sample.all;
        plan.memory_bytes = plan.other_bytes + plan.table_bytes;
    }
    exec_destroy(eval_exec);
    exec_destroy(exec);
    team_destroy(team);
    mem_free(sample.keys);
    mem_free(sample.sketches);
    if (rc != 0) {
        job_plan_fini(&plan);
        return rc;
    }
    *plan_out = plan;
    return 0;
}

void job_plan_fini(struct job_plan *plan)
{
    mem_free(plan->tables);
    model_destroy(plan->model);
    *plan = (struct job_plan){0};
}

static const char *kind_name(enum store_kind kind)
{
    switch (kind) {
    case STORE_DENSE: return "dense";
    case STORE_FIXED: return "fixed";
    case STORE_DYNAMIC: return "dynamic";
    }
    return "";
}

static void json_number(struct str *json, const char *key, double value)
{
    str_json_key(json, key);
    str_json_f64(json, value);
}

static void json_count(struct str *json, const char *key, uint64_t value)
{
    str_json_key(json, key);
    str_json_u64(json, value);
}

void job_plan_json(const struct job_plan *plan, struct str *json)
{
    str_json_open(json, '{');
    str_json_key(json, "tasks");
    str_json_open(json, '[');
    str_json_open(json, '{');
    str_json_key(json, "role");
    str_json_string(json, "worker", 6);
    json_count(json, "memory_bytes", plan->memory_bytes);
    json_number(json, "bytes_per_step", plan->bytes_per_step);
    str_json_close(json, '}');
    str_json_close(json, ']');
    str_json_key(json, "tables");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < plan->tables_count; i++) {
        const struct job_plan_table *table = &plan->tables[i];
        const struct store_bytes *bytes = &table->bytes;
        str_json_open(json, '{');
        str_json_key(json, "name");
        str_json_string(json, table->name, strlen(table->name));
        str_json_key(json, "kind");
        str_json_string(json, kind_name(table->kind), strlen(kind_name(table->kind)));
        str_json_key(json, "optimizer");
        str_json_string(json, table->rule, strlen(table->rule));
        json_count(json, "rows", table->rows);
        json_count(json, "cols", table->cols);
        json_count(json, "shards", table->shards);
        json_count(json, "bytes", (bytes->values + bytes->slots + bytes->index));
        json_number(json, "keys_per_step", table->keys_per_step);
        str_json_close(json, '}');
    }
    str_json_close(json, ']');
    json_count(json, "parameters", plan->parameters);
    json_count(json, "batch_size", plan->batch_rows);
    json_count(json, "table_bytes", plan->table_bytes);
    json_count(json, "other_bytes", plan->other_bytes);
    json_count(json, "memory_bytes", plan->memory_bytes);
    json_number(json, "flops_per_step", plan->flops_per_step);
    json_number(json, "bytes_per_step", plan->bytes_per_step);
    json_count(json, "examples_read", plan->examples_read);
    str_json_close(json, '}');
}

void job_plan_text(const struct job_plan *plan, struct str *text)
{
    char count[32];
    char bytes[32];
    char more[32];
    str_printf(text, "%-24s %-8s %-10s %12s %6s %7s %10s %10s\n", "table", "kind", "optimizer",
               "rows", "cols", "shards", "bytes", "keys/step");
    for (uint32_t i = 0; i < plan->tables_count; i++) {
        const struct job_plan_table *table = &plan->tables[i];
        const uint64_t held = table->bytes.values + table->bytes.slots + table->bytes.index;
        str_printf(text, "%-24s %-8s %-10s %12s %6u %7u %10s %10.0f\n", table->name,
                   kind_name(table->kind), table->rule, str_count(table->rows, count), table->cols,
                   table->shards, str_bytes(held, bytes), table->keys_per_step);
    }
    str_printf(text, "\n%s parameters; memory %s, of it tables ",
               str_count(plan->parameters, count), str_bytes(plan->memory_bytes, bytes));
    str_printf(text, "%s and the rest %s\n", str_bytes(plan->table_bytes, bytes),
               str_bytes(plan->other_bytes, more));
    str_printf(text, "a step of %u examples: %.1f MFLOP, %s pulled and pushed\n", plan->batch_rows,
               plan->flops_per_step * 1e-6, str_bytes((uint64_t)plan->bytes_per_step, bytes));
    if (plan->examples_read == 0) {
        str_add(text, "the data is not there: keys per step and dynamic tables are not known");
    } else {
        str_printf(text, "from %s%s examples read", plan->all_read ? "all " : "the first ",
                   str_count(plan->examples_read, count));
    }
}
