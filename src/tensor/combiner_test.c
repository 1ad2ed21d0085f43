/* Pooled rows as TensorFlow combines them: tests/golden/combiners.json. */
#include <jansson.h>

#include "tensor/kern_check.h"

enum { ROWS_MAX = 4096 };

static float *matrix_of(const json_t *rows, size_t *cols_out)
{
    *cols_out = json_array_size(json_array_get(rows, 0));
    CHECK(*cols_out > 0);
    const size_t bytes = json_array_size(rows) * *cols_out * sizeof(float);
    float *values = memset(array_bytes(bytes), 0, bytes);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        for (size_t j = 0; j < *cols_out; j++) {
            const json_t *value = json_array_get(json_array_get(rows, i), j);
            values[i * *cols_out + j] = (float)json_number_value(value);
        }
    }
    return values;
}

static struct batch_ids ids_of(const json_t *golden, bool weighted)
{
    const json_t *ids = json_object_get(golden, "ids");
    const json_t *weights = json_object_get(golden, "weights");
    const size_t rows = json_array_size(ids);
    CHECK(rows > 0 && rows < ROWS_MAX);
    uint32_t *offsets = array_bytes((rows + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (size_t i = 0; i < rows; i++) {
        offsets[i + 1] = offsets[i] + (uint32_t)json_array_size(json_array_get(ids, i));
    }
    uint32_t *slots = array_bytes(offsets[rows] * sizeof *slots);
    float *weight = array_bytes(offsets[rows] * sizeof *weight);
    for (size_t i = 0; i < rows; i++) {
        for (uint32_t k = offsets[i]; k < offsets[i + 1]; k++) {
            const json_t *id = json_array_get(json_array_get(ids, i), k - offsets[i]);
            const json_t *w = json_array_get(json_array_get(weights, i), k - offsets[i]);
            slots[k] = (uint32_t)json_integer_value(id);
            weight[k] = (float)json_number_value(w);
        }
    }
    return (struct batch_ids){.offsets = offsets,
                              .slots = slots,
                              .count = offsets[rows],
                              .weights = weighted ? weight : NULL};
}

TEST(combiners_equal_tensorflow)
{
    static const struct {
        const char *name;
        enum kern_pool pool;
        bool weighted;
    } cases[] = {{"sum", KERN_SUM, false},
                 {"mean", KERN_MEAN, false},
                 {"sqrtn", KERN_SQRTN, false},
                 {"sum_weighted", KERN_SUM, true},
                 {"mean_weighted", KERN_MEAN, true},
                 {"sqrtn_weighted", KERN_SQRTN, true}};
    json_error_t error;
    json_t *golden = json_load_file(test_path("golden/combiners.json"), 0, &error);
    if (golden == NULL) test_fail(__FILE__, __LINE__, "%s", error.text);
    EACH_KERN(kern)
    {
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            size_t width = 0;
            size_t want_width = 0;
            const float *table = matrix_of(json_object_get(golden, "table"), &width);
            const json_t *rows = json_object_get(golden, cases[c].name);
            const float *want = matrix_of(rows, &want_width);
            const struct batch_ids ids = ids_of(golden, cases[c].weighted);
            const uint32_t count = (uint32_t)json_array_size(rows);
            float *got = array_bytes(count * width * sizeof *got);
            CHECK_INT(width, want_width);
            kern->pool_forward(cases[c].pool, width, &ids, 0, count, table, width, got, width);
            check_close(cases[c].name, kern, count * width, got, want, 1e-6);
            arrays_free();
        }
    }
    json_decref(golden);
}
