/* DIN and MLP against what TensorFlow computed: loss, learning rate and gradient norms of every step,
 * every final weight and slot, every prediction. A difference is reported with the file and the entry. The update rules are written out here, so that
 * this tests data, graph and model and nothing else. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "../tests/test.h"
#include "base/mem.h"
#include "data/data.h"
#include "graph/exec.h"
#include "io/safetensors.h"
#include "model/model.h"

#define VARIABLES_MAX 32

static struct err err;

/* A variable with up to two slots, whole. */
struct variable {
    char name[128];
    uint64_t rows;
    uint32_t cols;
    float *value;
    float *slots[2];
};

struct job {
    const char *folder; /* "din" */
    const char *yaml;
    const char *data;
    bool adam;

    struct config *config;
    struct data_spec *spec;
    struct model *model;
    struct data *input;
    struct variable params[VARIABLES_MAX];
    struct variable tables[VARIABLES_MAX];
    float *rows[VARIABLES_MAX]; /* by table: pulled */
    float *grads[VARIABLES_MAX];
};

static const char *file_of(const struct job *job, const char *file)
{
    char name[256];
    snprintf(name, sizeof name, "golden/%s/%s", job->folder, file);
    return test_path(name);
}

/* ---- Tensors ---- */

static const float *tensor(const struct safetensors *file, const char *path, const char *name,
                           uint64_t count)
{
    const struct safetensors_tensor *found = safetensors_find(file, name);
    if (found == NULL) test_fail(__FILE__, __LINE__, "%s: no tensor %s", path, name);
    if (found->type != SAFETENSORS_F32 || found->bytes_count != count * sizeof(float)) {
        test_fail(__FILE__, __LINE__, "%s: %s has another size", path, name);
    }
    return found->bytes;
}

static void variable_init(struct variable *v, const struct graph_variable *of, uint64_t rows,
                          const struct safetensors *file, const char *path)
{
    snprintf(v->name, sizeof v->name, "%s", of->name);
    v->rows = rows;
    v->cols = of->cols;
    const uint64_t count = rows * of->cols;
    v->value = malloc(count * sizeof(float));
    memcpy(v->value, tensor(file, path, of->name, count), count * sizeof(float));
    for (int s = 0; s < 2; s++) v->slots[s] = calloc(count, sizeof(float));
}

static void load_init(struct job *job)
{
    struct safetensors *file = NULL;
    const char *path = file_of(job, "init.safetensors");
    CHECK_OK(safetensors_open(path, &file, &err));
    const struct graph *graph = job->model->graph;
    for (uint32_t i = 0; i < graph_params_count(graph); i++) {
        const struct graph_variable *of = graph_param_at(graph, i);
        variable_init(&job->params[i], of, of->rows == 0 ? 1 : of->rows, file, path);
        job->grads[i] = calloc(job->params[i].rows * of->cols, sizeof(float));
    }
    for (uint32_t i = 0; i < graph_tables_count(graph); i++) {
        const struct graph_variable *of = graph_table_at(graph, i);
        const struct data_table *table = &data_spec_schema(job->spec)->tables[of->rows];
        variable_init(&job->tables[i], of, table->rows, file, path);
        job->rows[i] = malloc(table->rows * of->cols * sizeof(float));
    }
    for (int i = 0; i < VARIABLES_MAX && !job->adam; i++) {
        struct variable *both[] = {&job->params[i], &job->tables[i]};
        for (int k = 0; k < 2; k++) {
            for (uint64_t e = 0; e < both[k]->rows * both[k]->cols; e++)
                both[k]->slots[0][e] = 0.1f;
        }
    }
    safetensors_close(file);
}

static void check_values(const char *path, const char *name, const float *got, const float *want,
                         uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (fabsf(got[i] - want[i]) <= 2e-5f) continue;
        test_fail(__FILE__, __LINE__, "%s: %s[%llu]: got %.9g, want %.9g", path, name,
                  (unsigned long long)i, (double)got[i], (double)want[i]);
    }
}

static void check_final(const struct job *job, const struct safetensors *file, const char *path,
                        const struct variable *v)
{
    const uint64_t count = v->rows * v->cols;
    check_values(path, v->name, v->value, tensor(file, path, v->name, count), count);
    static const char *const slots[2][2] = {{"adagrad", NULL}, {"m", "v"}};
    for (int s = 0; s < 2; s++) {
        char name[256];
        if (slots[job->adam][s] == NULL) continue;
        snprintf(name, sizeof name, "%s/%s", v->name, slots[job->adam][s]);
        if (safetensors_find(file, name) == NULL) continue;
        check_values(path, name, v->slots[s], tensor(file, path, name, count), count);
    }
}

/* ---- Update rules ---- */

static void adagrad(double lr, float *w, float *a, float g)
{
    *a += g * g;
    *w -= (float)lr * g / sqrtf(*a);
}

static void adam(double lr, uint32_t t, float *w, float *m, float *v, float g)
{
    const double rate = lr * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t));
    *m += (g - *m) * 0.1f;
    *v += (g * g - *v) * 0.001f;
    *w -= (float)rate * *m / (sqrtf(*v) + 1e-8f);
}

static double rate_of(const struct job *job, uint32_t step)
{
    return job->adam ? 1e-3 : 0.1 * pow(0.9, (step - 1) / 10000.0);
}

static void update(const struct job *job, struct variable *v, uint64_t at, uint32_t step, float g)
{
    const double lr = rate_of(job, step);
    if (job->adam) {
        adam(lr, step, &v->value[at], &v->slots[0][at], &v->slots[1][at], g);
    } else {
        adagrad(lr, &v->value[at], &v->slots[0][at], g);
    }
}

/* ---- The loop ---- */

static void pull(struct job *job, const struct batch *batch)
{
    for (uint32_t t = 0; t < graph_tables_count(job->model->graph); t++) {
        const struct variable *v = &job->tables[t];
        const struct batch_keys *keys = &batch->tables[graph_table_at(job->model->graph, t)->rows];
        for (uint32_t k = 0; k < keys->keys_count; k++) {
            memcpy(&job->rows[t][k * v->cols], &v->value[keys->keys[k] * v->cols],
                   v->cols * sizeof(float));
        }
    }
}

static void push(struct job *job, const struct batch *batch, const struct exec *exec, uint32_t step)
{
    const struct graph *graph = job->model->graph;
    for (uint32_t p = 0; p < graph_params_count(graph); p++) {
        struct variable *v = &job->params[p];
        for (uint64_t i = 0; i < v->rows * v->cols; i++) update(job, v, i, step, job->grads[p][i]);
    }
    for (uint32_t t = 0; t < graph_tables_count(graph); t++) {
        struct variable *v = &job->tables[t];
        const struct batch_keys *keys = &batch->tables[graph_table_at(graph, t)->rows];
        const struct exec_value grad = exec_table_grad(exec, t);
        for (uint32_t k = 0; k < keys->keys_count; k++) {
            for (uint32_t c = 0; c < v->cols; c++) {
                update(job, v, keys->keys[k] * v->cols + c, step, grad.values[k * grad.stride + c]);
            }
        }
    }
}

static struct exec_feed feed_of(struct job *job, const struct batch *batch, uint32_t step)
{
    static const float *params[VARIABLES_MAX];
    for (int i = 0; i < VARIABLES_MAX; i++) params[i] = job->params[i].value;
    return (struct exec_feed){.batch = batch,
                              .params = params,
                              .tables = (const float *const *)job->rows,
                              .grads = job->grads,
                              .step = step};
}

/* ---- steps.jsonl: an object a line ---- */

static void check_number(const char *path, uint32_t step, const json_t *object, const char *key,
                         double got, double tolerance)
{
    const json_t *want = json_object_get(object, key);
    if (want == NULL) return; /* not every job's steps tell everything */
    if (!(fabs(got - json_number_value(want)) <= tolerance)) {
        test_fail(__FILE__, __LINE__, "%s: step %u: %s %.9g, want %.9g", path, step, key, got,
                  json_number_value(want));
    }
}

/* The norm of a gradient: of a parameter whole, of a table's rows with duplicates summed. */
static void check_norm(const char *path, uint32_t step, const json_t *norms, const char *name,
                       struct exec_value grad)
{
    double sum = 0;
    for (uint32_t row = 0; row < grad.rows; row++) {
        for (uint32_t c = 0; c < grad.cols; c++) {
            const double g = (double)grad.values[row * grad.stride + c];
            sum += g * g;
        }
    }
    check_number(path, step, norms, name, sqrt(sum), 1e-5);
}

static void check_step(const struct job *job, const char *path, const char *line, uint32_t step,
                       const struct exec *exec)
{
    json_t *object = json_loads(line, 0, NULL);
    CHECK(json_object_get(object, "loss") != NULL);
    check_number(path, step, object, "step", step, 0);
    check_number(path, step, object, "loss", exec_loss(exec), 1e-5);
    check_number(path, step, object, "learning_rate", rate_of(job, step), 1e-7);
    const json_t *norms = json_object_get(object, "gradient_norms");
    for (uint32_t p = 0; p < graph_params_count(job->model->graph); p++) {
        const struct variable *v = &job->params[p];
        check_norm(path, step, norms, v->name,
                   (struct exec_value){.values = job->grads[p],
                                       .rows = (uint32_t)v->rows,
                                       .cols = v->cols,
                                       .stride = v->cols});
    }
    for (uint32_t t = 0; t < graph_tables_count(job->model->graph); t++) {
        check_norm(path, step, norms, job->tables[t].name, exec_table_grad(exec, t));
    }
    json_decref(object);
}

/* Nothing of the data is broken, to the end. */
static void check_input_ends(struct job *job)
{
    struct data_stats stats;
    const struct batch *batch = NULL;
    int rc = 0;
    while (rc == 0) rc = data_next(job->input, NULL, &batch, NULL, &err);
    CHECK_INT(rc, SHOAL_END);
    data_stats_get(job->input, &stats);
    CHECK_INT(stats.skipped, 0);
}

static void train(struct job *job)
{
    struct exec *exec = NULL;
    const char *path = file_of(job, "steps.jsonl");
    FILE *steps = fopen(path, "r");
    CHECK(steps != NULL);
    CHECK_OK(
        exec_create(&(struct exec_opts){.graph = job->model->graph, .batch_max = 32, .train = true},
                    &exec, &err));
    char line[8192];
    uint32_t step = 0;
    while (fgets(line, sizeof line, steps) != NULL) {
        step++;
        const struct batch *batch = NULL;
        CHECK_OK(data_next(job->input, NULL, &batch, NULL, &err));
        pull(job, batch);
        const struct exec_feed feed = feed_of(job, batch, step);
        CHECK_OK(exec_run(exec, &feed, &err));
        check_step(job, path, line, step, exec);
        push(job, batch, exec, step);
    }
    CHECK(step > 0);
    fclose(steps);
    exec_destroy(exec);
    check_input_ends(job);
    struct safetensors *file = NULL;
    path = file_of(job, "final.safetensors");
    CHECK_OK(safetensors_open(path, &file, &err));
    for (uint32_t i = 0; i < graph_params_count(job->model->graph); i++) {
        check_final(job, file, path, &job->params[i]);
    }
    for (uint32_t i = 0; i < graph_tables_count(job->model->graph); i++) {
        check_final(job, file, path, &job->tables[i]);
    }
    safetensors_close(file);
}

/* The predictions of eval.json over the same file, with the final weights. */
static void check_predictions(struct job *job)
{
    struct exec *exec = NULL;
    const char *path = file_of(job, "eval.json");
    json_t *eval = json_load_file(path, 0, NULL);
    CHECK(eval != NULL);
    const json_t *wants = json_object_get(eval, "predictions");
    const graph_id probability = job->model->probability;
    CHECK_OK(data_rewind(job->input, &err));
    CHECK_OK(exec_create(&(struct exec_opts){.graph = job->model->graph,
                                             .batch_max = 32,
                                             .fetches = &probability,
                                             .fetches_count = 1},
                         &exec, &err));
    const struct batch *batch = NULL;
    size_t seen = 0;
    while (data_next(job->input, NULL, &batch, NULL, &err) == 0) {
        pull(job, batch);
        const struct exec_feed feed = feed_of(job, batch, 0);
        CHECK_OK(exec_run(exec, &feed, &err));
        const struct exec_value got = exec_value(exec, probability);
        for (uint32_t row = 0; row < got.rows; row++, seen++) {
            const double want = json_number_value(json_array_get(wants, seen));
            if (!(fabs((double)got.values[row * got.stride] - want) <= 1e-5)) {
                test_fail(__FILE__, __LINE__, "%s: predictions[%zu]: got %.9g, want %.9g", path,
                          seen, (double)got.values[row * got.stride], want);
            }
        }
    }
    CHECK_INT(seen, json_array_size(wants));
    exec_destroy(exec);
    json_decref(eval);
}

static void job_init(struct job *job)
{
    CHECK_OK(config_parse("golden.yaml", job->yaml, &job->config, &err));
    const struct config_node *root = config_root(job->config);
    CHECK_OK(data_spec_create(config_get(root, "features"), NULL, &job->spec, &err));
    CHECK_OK(
        model_create(config_get(root, "model"), data_spec_schema(job->spec), &job->model, &err));
    struct data_opts opts = {.spec = job->spec};
    opts.settings = (struct data_settings){.batch_size = 32, .epochs = 1, .errors_max = 0.01};
    char glob[1024];
    snprintf(glob, sizeof glob, "%s", file_of(job, job->data));
    opts.settings.train.globs[0] = glob;
    opts.settings.train.count = 1;
    CHECK_OK(data_open(&opts, &job->input, &err));
    load_init(job);
}

static void job_fini(struct job *job)
{
    for (int i = 0; i < VARIABLES_MAX; i++) {
        struct variable *both[] = {&job->params[i], &job->tables[i]};
        for (int k = 0; k < 2; k++) {
            free(both[k]->value);
            free(both[k]->slots[0]);
            free(both[k]->slots[1]);
        }
        free(job->rows[i]);
        free(job->grads[i]);
    }
    data_close(job->input);
    model_destroy(job->model);
    data_spec_destroy(job->spec);
    config_destroy(job->config);
}

TEST(din_trains_as_tensorflow_does)
{
    static struct job job = {
        .folder = "din",
        .data = "data.tfrecord",
        .yaml = "model: {type: din, attention: [16, 8], hidden: [64, 16]}\n"
                "features:\n"
                "  label: {kind: label}\n"
                "  user_id: {kind: hash, buckets: 10000}\n"
                "  age: {kind: bucketize, boundaries: [18, 25, 36, 45, 55, 65, 80]}\n"
                "  gender: {kind: hash, buckets: 100}\n"
                "  item_id: {kind: hash, buckets: 100, embed: 16, table: item}\n"
                "  clicked_items_15d: {kind: hash, buckets: 100, sequence: true, pad: \"0\", "
                "table: item}\n",
    };
    job_init(&job);
    train(&job);
    check_predictions(&job);
    job_fini(&job);
}

TEST(mlp_trains_as_tensorflow_does)
{
    static struct job job = {
        .folder = "mlp",
        .data = "images-idx3-ubyte.gz",
        .adam = true,
        .yaml = "model: {type: mlp, hidden: [64, 32], classes: 10}\n"
                "features:\n"
                "  label: {kind: label}\n"
                "  image: {kind: numeric, width: 784}\n",
    };
    file_of(&job, "labels-idx1-ubyte.gz"); /* found beside the images: named when it is the cause */
    job_init(&job);
    train(&job);
    job_fini(&job);
}
