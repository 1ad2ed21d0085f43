#include "train/trainer.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "graph/exec.h"
#include "train/grads.h"

/* A parameter or table of the graph and where it lives. */
struct variable {
    uint32_t table; /* of the store */
    bool trained;   /* the loss depends on it */
};

struct pulled { /* rows of one table of the graph, for one batch */
    float *rows;
    size_t capacity; /* floats */
};

struct trainer {
    const struct job *job;
    struct model *model;
    struct team *team;
    struct store *store;
    struct exec *exec;
    struct data *data;
    struct grads *grads; /* NULL: gradients go to the store block by block */

    uint32_t params_count;
    uint32_t tables_count;
    struct variable *params;
    struct variable *tables;
    const float **values;   /* by parameter, in the store */
    const float **averages; /* by parameter; NULL when none is kept */
    struct pulled *pulled;  /* by table */
    const float **rows;     /* by table: pulled[i].rows */

    const struct batch *batch; /* read and not yet trained on; NULL: none */
    struct data_info info;
    uint64_t step;
    uint64_t examples;
    uint64_t phase_ns[TRAINER_PHASE_COUNT];
};

const char *trainer_phase_name(enum trainer_phase phase)
{
    static const char *const names[] = {"input", "pull", "compute", "push", "wait"};
    ASSERT((unsigned)phase < TRAINER_PHASE_COUNT);
    return names[phase];
}

static int check_rules(const struct job *job, const struct store_table_opts *opts, uint32_t count,
                       struct err *err)
{
    const char **names = mem_alloc_array(MEM_TRAIN, count, sizeof *names);
    if (names == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for %u names", count);
    for (uint32_t i = 0; i < count; i++) names[i] = opts[i].name;
    const int rc = job_check_rules(job, names, count, err);
    mem_free(names);
    return rc;
}

int trainer_table_opts(const struct job *job, const struct model *model,
                       struct store_table_opts *out, uint32_t count, struct err *err)
{
    const struct graph *graph = model->graph;
    const struct data_schema *schema = data_spec_schema(job->spec);
    const uint32_t params_count = graph_params_count(graph);
    ASSERT(count == params_count + graph_tables_count(graph));
    for (uint32_t i = 0; i < count; i++) {
        const bool is_param = i < params_count;
        const uint32_t index = is_param ? i : i - params_count;
        const struct graph_variable *variable =
            is_param ? graph_param_at(graph, index) : graph_table_at(graph, index);
        const char *const *wishes = is_param ? model->param_rules : model->table_rules;
        out[i] = (struct store_table_opts){.name = variable->name,
                                           .kind = STORE_DENSE,
                                           .rows = variable->rows == 0 ? 1 : variable->rows,
                                           .cols = variable->cols,
                                           .init = variable->init,
                                           .average_decay = job->train.average_decay};
        if (!is_param) {
            const struct data_table *table = &schema->tables[variable->rows];
            out[i].kind = table->rows == 0 ? STORE_DYNAMIC : STORE_FIXED;
            out[i].rows = table->rows;
        }
        const int rc = job_rule_of(job, variable->name, wishes == NULL ? NULL : wishes[index],
                                   &out[i].rule, err);
        if (rc != 0) return rc;
        if (out[i].kind == STORE_DYNAMIC && out[i].rule.type == STORE_ADAM) {
            return config_error(job_rule_node(job, variable->name), err,
                                "table %s is dynamic, and `adam` moves every row at every step; "
                                "use optimizer type lazy_adam",
                                variable->name);
        }
    }
    return check_rules(job, out, count, err);
}

static int make_tables(struct trainer *trainer, struct err *err)
{
    const uint32_t count = trainer->params_count + trainer->tables_count;
    struct store_table_opts *opts = mem_alloc_array(MEM_TRAIN, count, sizeof *opts);
    if (opts == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for %u tables", count);
    int rc = trainer_table_opts(trainer->job, trainer->model, opts, count, err);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        struct variable *variable = i < trainer->params_count
                                        ? &trainer->params[i]
                                        : &trainer->tables[i - trainer->params_count];
        rc = store_table_add(trainer->store, &opts[i], &variable->table, err);
    }
    mem_free(opts);
    const struct graph *graph = trainer->model->graph;
    for (uint32_t i = 0; rc == 0 && i < trainer->params_count; i++) {
        struct variable *param = &trainer->params[i];
        param->trained = graph_param_grad(graph, i) != GRAPH_NONE;
        trainer->values[i] = store_dense_values(trainer->store, param->table, false);
        trainer->averages[i] = store_dense_values(trainer->store, param->table, true);
    }
    for (uint32_t i = 0; rc == 0 && i < trainer->tables_count; i++) {
        trainer->tables[i].trained = graph_table_grad(graph, i) != GRAPH_NONE;
    }
    return rc;
}

static int make_grads(struct trainer *trainer, struct err *err)
{
    const struct job_train *train = &trainer->job->train;
    const struct graph *graph = trainer->model->graph;
    if (train->clip_norm == 0 && train->accumulate == 1) return 0;
    uint64_t *sizes = mem_alloc_array(MEM_TRAIN, trainer->params_count, sizeof *sizes);
    uint32_t *cols = mem_alloc_array(MEM_TRAIN, trainer->tables_count, sizeof *cols);
    int rc = 0;
    if (sizes == NULL || cols == NULL) {
        rc = err_set(err, SHOAL_ENOMEM, "no memory for gradients");
    } else {
        for (uint32_t i = 0; i < trainer->params_count; i++) {
            const struct graph_variable *param = graph_param_at(graph, i);
            sizes[i] = (uint64_t)(param->rows == 0 ? 1 : param->rows) * param->cols;
        }
        for (uint32_t i = 0; i < trainer->tables_count; i++) {
            cols[i] = graph_table_at(graph, i)->cols;
        }
        rc = grads_create(&(struct grads_opts){.params_count = trainer->params_count,
                                               .tables_count = trainer->tables_count,
                                               .param_sizes = sizes,
                                               .table_cols = cols},
                          &trainer->grads, err);
    }
    mem_free(sizes);
    mem_free(cols);
    return rc;
}

static int make_arrays(struct trainer *trainer, struct err *err)
{
    trainer->params_count = graph_params_count(trainer->model->graph);
    trainer->tables_count = graph_tables_count(trainer->model->graph);
    const uint32_t params = trainer->params_count;
    const uint32_t tables = trainer->tables_count;
    trainer->params = mem_alloc_array(MEM_TRAIN, params, sizeof *trainer->params);
    trainer->tables = mem_alloc_array(MEM_TRAIN, tables, sizeof *trainer->tables);
    trainer->values = mem_alloc_array(MEM_TRAIN, params, sizeof *trainer->values);
    trainer->averages = mem_alloc_array(MEM_TRAIN, params, sizeof *trainer->averages);
    trainer->pulled = mem_alloc_array(MEM_TRAIN, tables, sizeof *trainer->pulled);
    trainer->rows = mem_alloc_array(MEM_TRAIN, tables, sizeof *trainer->rows);
    if (trainer->params == NULL || trainer->tables == NULL || trainer->values == NULL ||
        trainer->averages == NULL || trainer->pulled == NULL || trainer->rows == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a trainer of %u parameters, %u tables",
                       params, tables);
    }
    return 0;
}

int trainer_create(const struct job *job, struct model *model, struct trainer **trainer_out,
                   struct err *err)
{
    struct trainer *trainer = mem_alloc(MEM_TRAIN, sizeof *trainer);
    if (trainer == NULL) {
        model_destroy(model);
        return err_set(err, SHOAL_ENOMEM, "no memory for a trainer");
    }
    trainer->job = job;
    trainer->model = model;
    int rc = 0;
    if (model == NULL) {
        rc = model_create(job->model, data_spec_schema(job->spec), &trainer->model, err);
    }
    if (rc == 0) rc = team_create(job->train.threads, &trainer->team, err);
    if (rc == 0) {
        rc = store_create(&(struct store_opts){.seed = job->train.seed}, &trainer->store, err);
    }
    if (rc == 0) rc = make_arrays(trainer, err);
    if (rc == 0) rc = make_tables(trainer, err);
    if (rc == 0) rc = make_grads(trainer, err);
    if (rc == 0) {
        rc = exec_create(&(struct exec_opts){.graph = trainer->model->graph,
                                             .team = trainer->team,
                                             .batch_max = job->data.batch_size,
                                             .seed = job->train.seed,
                                             .train = true},
                         &trainer->exec, err);
    }
    if (rc != 0) {
        trainer_destroy(trainer);
        return rc;
    }
    *trainer_out = trainer;
    return 0;
}

void trainer_destroy(struct trainer *trainer)
{
    if (trainer == NULL) return;
    data_close(trainer->data);
    exec_destroy(trainer->exec);
    grads_destroy(trainer->grads);
    store_destroy(trainer->store);
    team_destroy(trainer->team);
    if (trainer->pulled != NULL) {
        for (uint32_t i = 0; i < trainer->tables_count; i++) mem_free(trainer->pulled[i].rows);
    }
    mem_free(trainer->params);
    mem_free(trainer->tables);
    mem_free(trainer->values);
    mem_free(trainer->averages);
    mem_free(trainer->pulled);
    mem_free(trainer->rows);
    model_destroy(trainer->model);
    mem_free(trainer);
}

int trainer_open_data(struct trainer *trainer, const char *position, struct err *err)
{
    ASSERT(trainer->data == NULL);
    return data_open(&(struct data_opts){.spec = trainer->job->spec,
                                         .settings = trainer->job->data,
                                         .seed = trainer->job->train.seed,
                                         .position = position},
                     &trainer->data, err);
}

int trainer_next(struct trainer *trainer, struct data_info *info_out, struct err *err)
{
    ASSERT(trainer->data != NULL);
    struct data_stats before;
    struct data_stats after;
    data_stats_get(trainer->data, &before);
    const uint64_t start_ns = clock_now_ns();
    const int rc = data_next(trainer->data, trainer->team, &trainer->batch, &trainer->info, err);
    const uint64_t spent_ns = clock_now_ns() - start_ns;
    data_stats_get(trainer->data, &after);
    const uint64_t waited_ns = after.wait_ns - before.wait_ns;
    trainer->phase_ns[TRAINER_WAIT] += waited_ns;
    trainer->phase_ns[TRAINER_INPUT] += spent_ns > waited_ns ? spent_ns - waited_ns : 0;
    if (rc != 0) {
        trainer->batch = NULL;
        return rc;
    }
    if (info_out != NULL) *info_out = trainer->info;
    return 0;
}

void trainer_give(struct trainer *trainer, const struct batch *batch)
{
    trainer->batch = batch;
}

uint32_t trainer_batch_rows(const struct trainer *trainer)
{
    return trainer->batch == NULL ? 0 : trainer->batch->rows;
}

static int pulled_reserve(struct pulled *pulled, size_t want)
{
    if (want <= pulled->capacity) return 0;
    mem_free(pulled->rows);
    pulled->capacity = want + want / 4; /* batches vary: do not grow by a row at a time */
    pulled->rows = mem_alloc_array(MEM_TRAIN, pulled->capacity, sizeof(float));
    if (pulled->rows == NULL) pulled->capacity = 0;
    return pulled->rows == NULL ? SHOAL_ENOMEM : 0;
}

int trainer_pull(struct trainer *trainer, const struct batch *batch, bool averaged,
                 const float ***rows_out, struct err *err)
{
    for (uint32_t i = 0; i < trainer->tables_count; i++) {
        const struct graph_variable *variable = graph_table_at(trainer->model->graph, i);
        ASSERT(variable->rows < batch->tables_count);
        const struct batch_keys *keys = &batch->tables[variable->rows];
        const size_t floats = (size_t)keys->keys_count * variable->cols;
        if (pulled_reserve(&trainer->pulled[i], floats) != 0) {
            return err_set(err, SHOAL_ENOMEM, "no memory for %u rows of %s", keys->keys_count,
                           variable->name);
        }
        const int rc = store_pull(trainer->store,
                                  &(struct store_pull){.table = trainer->tables[i].table,
                                                       .count = keys->keys_count,
                                                       .keys = keys->keys,
                                                       .rows = trainer->pulled[i].rows,
                                                       .averaged = averaged,
                                                       .step = trainer->step},
                                  trainer->team, err);
        if (rc != 0) return rc;
        trainer->rows[i] = trainer->pulled[i].rows;
    }
    *rows_out = trainer->rows;
    return 0;
}

const float *const *trainer_params(struct trainer *trainer, bool averaged)
{
    return averaged ? trainer->averages : trainer->values;
}

static void add_phase(struct trainer *trainer, enum trainer_phase phase, uint64_t *since_ns)
{
    const uint64_t now_ns = clock_now_ns();
    trainer->phase_ns[phase] += now_ns - *since_ns;
    *since_ns = now_ns;
}

static struct store_work work_of(const struct trainer *trainer)
{
    return (struct store_work){.kind = STORE_WORK_STEP, .number = trainer->step + 1};
}

static int push_rows(struct trainer *trainer, uint32_t table, const uint64_t *keys,
                     const float *gradients, uint32_t count, struct err *err)
{
    return store_push(trainer->store,
                      &(struct store_push){.table = trainer->tables[table].table,
                                           .count = count,
                                           .work = work_of(trainer),
                                           .step = trainer->step,
                                           .keys = keys,
                                           .gradients = gradients},
                      trainer->team, NULL, err);
}

static int begin_dense(struct trainer *trainer, struct err *err)
{
    for (uint32_t i = 0; i < trainer->params_count; i++) {
        if (!trainer->params[i].trained) continue;
        const int rc = store_dense_begin(trainer->store,
                                         &(struct store_dense_push){
                                             .table = trainer->params[i].table,
                                             .work = work_of(trainer),
                                             .step = trainer->step,
                                         },
                                         err);
        if (rc != 0) return rc;
    }
    return 0;
}

static void sink(void *ctx, uint32_t param, size_t first, size_t count, const float *grad,
                 uint32_t thread)
{
    struct trainer *trainer = ctx;
    (void)thread;
    const int rc = store_dense_apply(trainer->store, trainer->params[param].table, first, count,
                                     grad, NULL, NULL);
    ASSERT(rc == 0); /* The executor has checked that it is finite; nothing else can fail. */
}

static void end_dense(struct trainer *trainer)
{
    for (uint32_t i = 0; i < trainer->params_count; i++) {
        if (!trainer->params[i].trained) continue;
        store_dense_end(trainer->store, trainer->params[i].table, trainer->team);
    }
}

/* The gradient rows of a table of the graph for the batch just run; they lie close. */
static struct exec_value table_grad(const struct trainer *trainer, uint32_t table)
{
    const struct exec_value value = exec_table_grad(trainer->exec, table);
    ASSERT(value.rows == 0 || value.stride == value.cols);
    return value;
}

/* One batch, one update; dense gradients are applied as they are computed. */
static int step_fused(struct trainer *trainer, double *loss_out, struct err *err)
{
    const struct batch *batch = trainer->batch;
    const float **rows = NULL;
    uint64_t since_ns = clock_now_ns();
    int rc = trainer_pull(trainer, batch, false, &rows, err);
    add_phase(trainer, TRAINER_PULL, &since_ns);
    if (rc == 0) rc = begin_dense(trainer, err);
    if (rc != 0) return rc;
    rc = exec_run(trainer->exec,
                  &(struct exec_feed){.batch = batch,
                                      .params = trainer->values,
                                      .tables = rows,
                                      .step = trainer->step,
                                      .sink = sink,
                                      .sink_ctx = trainer},
                  err);
    end_dense(trainer);
    add_phase(trainer, TRAINER_COMPUTE, &since_ns);
    for (uint32_t i = 0; rc == 0 && i < trainer->tables_count; i++) {
        if (!trainer->tables[i].trained) continue;
        const struct batch_keys *keys =
            &batch->tables[graph_table_at(trainer->model->graph, i)->rows];
        const struct exec_value grad = table_grad(trainer, i);
        rc = push_rows(trainer, i, keys->keys, grad.values, grad.rows, err);
    }
    add_phase(trainer, TRAINER_PUSH, &since_ns);
    if (rc == 0) *loss_out = exec_loss(trainer->exec);
    return rc;
}

static double weight_of(const struct batch *batch)
{
    if (batch->weight == NULL) return batch->rows;
    double sum = 0;
    for (uint32_t i = 0; i < batch->rows; i++) sum += (double)batch->weight[i];
    return sum;
}

/* Adds the gradient sums of the batch, whose rows are numbered from row_base, to trainer->grads. */
static int add_batch(struct trainer *trainer, uint32_t row_base, double *loss_sum,
                     double *weight_sum, struct err *err)
{
    const struct batch *batch = trainer->batch;
    const float **rows = NULL;
    uint64_t since_ns = clock_now_ns();
    int rc = trainer_pull(trainer, batch, false, &rows, err);
    add_phase(trainer, TRAINER_PULL, &since_ns);
    if (rc == 0) {
        rc = exec_run(trainer->exec,
                      &(struct exec_feed){.batch = batch,
                                          .params = trainer->values,
                                          .tables = rows,
                                          .step = trainer->step,
                                          .row_base = row_base,
                                          .weight_total = 1,
                                          .grads = grads_params(trainer->grads),
                                          .add = true},
                      err);
    }
    for (uint32_t i = 0; rc == 0 && i < trainer->tables_count; i++) {
        if (!trainer->tables[i].trained) continue;
        const struct batch_keys *keys =
            &batch->tables[graph_table_at(trainer->model->graph, i)->rows];
        const struct exec_value grad = table_grad(trainer, i);
        rc =
            grads_add_rows(trainer->grads, i, keys->keys, grad.values, grad.rows, grad.stride, err);
    }
    add_phase(trainer, TRAINER_COMPUTE, &since_ns);
    if (rc != 0) return rc;
    *loss_sum += exec_loss(trainer->exec);
    *weight_sum += weight_of(batch);
    return 0;
}

static int push_all(struct trainer *trainer, struct err *err)
{
    float *const *dense = grads_params(trainer->grads);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < trainer->params_count; i++) {
        if (!trainer->params[i].trained) continue;
        rc = store_dense_push(trainer->store,
                              &(struct store_dense_push){.table = trainer->params[i].table,
                                                         .work = work_of(trainer),
                                                         .step = trainer->step},
                              dense[i], NULL, trainer->team, err);
    }
    for (uint32_t i = 0; rc == 0 && i < trainer->tables_count; i++) {
        if (!trainer->tables[i].trained) continue;
        const struct grads_rows rows = grads_rows(trainer->grads, i);
        rc = push_rows(trainer, i, rows.keys, rows.rows, rows.count, err);
    }
    return rc;
}

/* Several batches, or a norm to keep: gradients are gathered whole, then applied. */
static int step_gathered(struct trainer *trainer, double *loss_out, uint32_t *rows_out,
                         struct err *err)
{
    const struct job_train *train = &trainer->job->train;
    double loss_sum = 0;
    double weight_sum = 0;
    grads_clear(trainer->grads);
    int rc = add_batch(trainer, 0, &loss_sum, &weight_sum, err);
    for (uint32_t more = 1; rc == 0 && more < train->accumulate; more++) {
        if (trainer_next(trainer, NULL, err) != 0) {
            /* The data ends in the middle: what there is makes the last update. */
            if (err != NULL && err->code != SHOAL_END) return err->code;
            break;
        }
        rc = add_batch(trainer, *rows_out, &loss_sum, &weight_sum, err);
        *rows_out += trainer->batch->rows;
    }
    if (rc != 0) return rc;
    uint64_t since_ns = clock_now_ns();
    if (weight_sum > 0) {
        rc = grads_finish(trainer->grads, 1 / weight_sum, train->clip_norm, NULL, err);
        if (rc == 0) rc = push_all(trainer, err);
        *loss_out = loss_sum / weight_sum;
    }
    add_phase(trainer, TRAINER_PUSH, &since_ns);
    return rc;
}

int trainer_step(struct trainer *trainer, struct trainer_step *step_out, struct err *err)
{
    struct err local = {0};
    if (err == NULL) err = &local;
    if (trainer->batch == NULL) return err_set(err, SHOAL_EINVAL, "no batch has been read");
    struct store_rule_step ticket;
    store_rule_step(&trainer->job->train.rule, trainer->step, &ticket);
    double loss = 0;
    uint32_t rows = trainer->batch->rows;
    int rc = trainer->grads == NULL ? step_fused(trainer, &loss, err)
                                    : step_gathered(trainer, &loss, &rows, err);
    trainer->batch = NULL;
    if (rc != 0) {
        err_wrap(err, "step %llu", (unsigned long long)trainer->step + 1);
        return rc;
    }
    trainer->step++;
    trainer->examples += rows;
    store_tend(trainer->store);
    if (step_out != NULL) {
        *step_out = (struct trainer_step){.step = trainer->step,
                                          .loss = loss,
                                          .learning_rate = (double)ticket.learning_rate,
                                          .rows = rows,
                                          .info = trainer->info};
    }
    return 0;
}

uint64_t trainer_global_step(const struct trainer *trainer)
{
    return trainer->step;
}

void trainer_set_global_step(struct trainer *trainer, uint64_t step)
{
    trainer->step = step;
}

const struct job *trainer_job(const struct trainer *trainer)
{
    return trainer->job;
}

const struct model *trainer_model(const struct trainer *trainer)
{
    return trainer->model;
}

struct store *trainer_store(struct trainer *trainer)
{
    return trainer->store;
}

struct team *trainer_team(struct trainer *trainer)
{
    return trainer->team;
}

struct data *trainer_data(struct trainer *trainer)
{
    return trainer->data;
}

uint32_t trainer_param_table(const struct trainer *trainer, uint32_t param)
{
    ASSERT(param < trainer->params_count);
    return trainer->params[param].table;
}

uint32_t trainer_rows_table(const struct trainer *trainer, uint32_t table)
{
    ASSERT(table < trainer->tables_count);
    return trainer->tables[table].table;
}

uint64_t trainer_phase_ns(const struct trainer *trainer, enum trainer_phase phase)
{
    ASSERT((unsigned)phase < TRAINER_PHASE_COUNT);
    return trainer->phase_ns[phase];
}

uint64_t trainer_examples(const struct trainer *trainer)
{
    return trainer->examples;
}

size_t trainer_exec_bytes(const struct trainer *trainer)
{
    return exec_bytes(trainer->exec);
}
