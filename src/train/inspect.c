#include "train/inspect.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/data_frame.h"
#include "graph/graph.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/stream.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_manifest.h"
#include "train/events.h"
#include "train/inspect_table.h"
#include "train/inspect_tensor.h"

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory to describe a file");
}

static void add_text(struct str *json, const char *key, const char *text)
{
    str_json_key(json, key);
    str_json_string(json, text, strlen(text));
}

static void add_u64(struct str *json, const char *key, uint64_t value)
{
    str_json_key(json, key);
    str_json_u64(json, value);
}

static void json_begin(struct str *json, const char *kind, const char *path)
{
    str_json_open(json, '{');
    add_text(json, "kind", kind);
    add_text(json, "path", path);
}

static void json_end(struct str *json)
{
    str_json_close(json, '}');
    str_add(json, "\n");
}

/* "whole", or what is wrong. */
static void add_health(struct str *json, int rc, const struct err *why)
{
    add_text(json, "health", rc == 0 ? "whole" : "damaged");
    if (rc != 0) add_text(json, "problem", why->text);
}

/* ---- Checkpoints -------------------------------------------------------------------------------- */

static uint64_t table_bytes(const struct checkpoint_table *table)
{
    const uint64_t row = (uint64_t)table->cols * 4 * table->parts_count +
                         (table->kind == STORE_DYNAMIC ? 8 : 0) + (table->has_steps ? 4 : 0) +
                         (table->has_counts ? 4 : 0);
    return table->rows * row;
}

static void checkpoint_json(const struct checkpoint *checkpoint, struct str *json)
{
    add_u64(json, "step", checkpoint->step);
    add_u64(json, "bytes", checkpoint->bytes);
    str_json_key(json, "tables");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        str_json_open(json, '{');
        add_text(json, "name", table->name);
        add_text(json, "table", checkpoint_kind_name(table->kind));
        add_u64(json, "rows", table->rows);
        add_u64(json, "cols", table->cols);
        add_u64(json, "shards", table->shards_count);
        add_text(json, "optimizer", table->optimizer);
        str_json_key(json, "slots");
        str_json_open(json, '[');
        for (uint32_t p = 1; p < table->parts_count; p++) {
            str_json_string(json, table->parts[p], strlen(table->parts[p]));
        }
        str_json_close(json, ']');
        add_u64(json, "bytes", table_bytes(table));
        str_json_close(json, '}');
    }
    str_json_close(json, ']');
    str_json_key(json, "files");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        str_json_open(json, '{');
        add_text(json, "name", checkpoint->files[i].name);
        add_u64(json, "bytes", checkpoint->files[i].bytes);
        str_json_close(json, '}');
    }
    str_json_close(json, ']');
    str_json_key(json, "config");
    str_add(json, checkpoint->config);
    str_json_key(json, "position");
    str_add(json, checkpoint->position);
}

static void checkpoint_text(const struct checkpoint *checkpoint, struct str *out)
{
    char size[32];
    struct str rows = {0};
    str_add(&rows, "TABLE\tKIND\tSHAPE\tSHARDS\tOPTIMIZER\tSLOTS\tBYTES\n");
    for (uint32_t i = 0; i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        inspect_table_add_name(&rows, table->name, strlen(table->name));
        str_printf(&rows, "\t%s\t%" PRIu64 " x %u\t%u\t", checkpoint_kind_name(table->kind),
                   table->rows, table->cols, table->shards_count);
        inspect_table_add_name(&rows, table->optimizer, strlen(table->optimizer));
        str_add(&rows, "\t");
        for (uint32_t p = 1; p < table->parts_count; p++) {
            if (p > 1) str_add(&rows, ", ");
            inspect_table_add_name(&rows, table->parts[p], strlen(table->parts[p]));
        }
        str_printf(&rows, "\t%s\n", str_bytes(table_bytes(table), size));
    }
    inspect_table_print(&rows, out);
    str_clear(&rows);
    str_add(&rows, "FILE\tBYTES\tCRC32C\n");
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        const struct checkpoint_file *file = &checkpoint->files[i];
        inspect_table_add_name(&rows, file->name, strlen(file->name));
        str_printf(&rows, "\t%s\t%08" PRIx32 "\n", str_bytes(file->bytes, size), file->crc32c);
    }
    str_add(out, "\n");
    inspect_table_print(&rows, out);
    str_fini(&rows);
}

static void show_checkpoint(const struct checkpoint *checkpoint, const char *kind, const char *path,
                            int health, const struct err *why, bool json, struct str *out)
{
    char size[32];
    if (json) {
        json_begin(out, kind, path);
        if (why != NULL) add_health(out, health, why);
        checkpoint_json(checkpoint, out);
        json_end(out);
        return;
    }
    str_printf(out, "%s %s: step %" PRIu64 ", %s in %u files", kind, path, checkpoint->step,
               str_bytes(checkpoint->bytes, size), checkpoint->files_count + 1);
    if (why != NULL) str_printf(out, ", %s", health == 0 ? "whole" : why->text);
    str_add(out, "\n\n");
    checkpoint_text(checkpoint, out);
}

static int show_checkpoint_folder(const char *path, bool json, struct str *out, struct err *err)
{
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_open(path, &checkpoint, err);
    if (rc != 0) return rc;
    struct err why;
    const int health = checkpoint_verify(checkpoint, &why);
    show_checkpoint(checkpoint, "checkpoint", path, health, &why, json, out);
    checkpoint_close(checkpoint);
    return 0;
}

static int show_manifest(const char *path, bool json, struct str *out, struct err *err)
{
    char *text = NULL;
    size_t count = 0;
    struct checkpoint *checkpoint = NULL;
    int rc = io_read_whole(path, CHECKPOINT_MANIFEST_BYTES_MAX, &text, &count, err);
    if (rc == 0) rc = checkpoint_parse(path, text, count, &checkpoint, err);
    if (rc == 0) show_checkpoint(checkpoint, "manifest", path, 0, NULL, json, out);
    checkpoint_close(checkpoint);
    mem_free(text);
    return rc;
}

/* ---- Model directories -------------------------------------------------------------------------- */

/* "40 s", "5 min", "3 h", "2 days". */
static void add_age(struct str *text, double secs)
{
    static const struct {
        double secs;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    size_t unit = 0;
    while (unit < 3 && secs < 2 * units[unit].secs) unit++;
    str_printf(text, "%.0f %s", secs > 0 ? secs / units[unit].secs : 0, units[unit].unit);
}

struct looked { /* a checkpoint of a model directory */
    uint64_t step;
    uint64_t bytes;
    double age_secs;
    int health;
    struct err why;
};

static void look_at(const char *path, struct looked *looked)
{
    struct checkpoint *checkpoint = NULL;
    double modified = 0;
    looked->health = checkpoint_open(path, &checkpoint, &looked->why);
    if (looked->health == 0) {
        looked->bytes = checkpoint->bytes;
        looked->health = checkpoint_verify(checkpoint, &looked->why);
    }
    if (io_modified(path, &modified, NULL) == 0) looked->age_secs = clock_now_secs() - modified;
    checkpoint_close(checkpoint);
}

static void looked_json(const struct looked *looked, const char *path, struct str *json)
{
    str_json_open(json, '{');
    add_u64(json, "step", looked->step);
    add_text(json, "path", path);
    add_u64(json, "bytes", looked->bytes);
    str_json_key(json, "age_secs");
    str_json_f64(json, looked->age_secs);
    add_health(json, looked->health, &looked->why);
    str_json_close(json, '}');
}

static void looked_row(const struct looked *looked, struct str *rows)
{
    char size[32];
    str_printf(rows, "%" PRIu64 "\t%s\t", looked->step, str_bytes(looked->bytes, size));
    add_age(rows, looked->age_secs);
    str_printf(rows, "\t%s\n", looked->health == 0 ? "whole" : looked->why.text);
}

static int show_model_dir(const char *path, bool json, struct str *out, struct err *err)
{
    struct checkpoint_list list;
    int rc = checkpoint_list(path, &list, err);
    if (rc != 0) return rc;
    struct str rows = {0};
    str_add(&rows, "STEP\tBYTES\tAGE\tHEALTH\n");
    if (json) {
        json_begin(out, "model_dir", path);
        str_json_key(out, "checkpoints");
        str_json_open(out, '[');
    }
    for (size_t i = 0; rc == 0 && i < list.count; i++) {
        char *folder = NULL;
        struct looked looked = {.step = list.steps[i]};
        rc = checkpoint_path(path, list.steps[i], &folder, err);
        if (rc == 0) look_at(folder, &looked);
        if (rc == 0 && json) looked_json(&looked, folder, out);
        if (rc == 0 && !json) looked_row(&looked, &rows);
        mem_free(folder);
    }
    if (json) {
        str_json_close(out, ']');
        json_end(out);
    } else {
        str_printf(out, "model directory %s: %zu checkpoints\n\n", path, list.count);
        inspect_table_print(&rows, out);
    }
    if (rc == 0 && rows.failed) rc = no_memory(err);
    str_fini(&rows);
    checkpoint_list_fini(&list);
    return rc;
}

static int show_folder(const char *path, bool json, struct str *out, struct err *err)
{
    char *resolved = NULL;
    int rc = checkpoint_resolve(path, &resolved, err);
    if (rc == SHOAL_ENOENT) {
        return err_set(err, SHOAL_EINVAL,
                       "%s: a folder without checkpoints (ckpt-STEP) and without %s", path,
                       CHECKPOINT_MANIFEST);
    }
    if (rc != 0) return rc;
    /* A checkpoint stands for itself, a model directory for its newest. */
    rc = strcmp(resolved, path) == 0 ? show_checkpoint_folder(path, json, out, err)
                                     : show_model_dir(path, json, out, err);
    mem_free(resolved);
    return rc;
}

/* ---- Safetensors -------------------------------------------------------------------------------- */

static void tensor_json(const struct safetensors_tensor *tensor,
                        const struct inspect_tensor *summary, struct str *json)
{
    str_json_open(json, '{');
    add_text(json, "name", tensor->name);
    add_text(json, "type", safetensors_type_name(tensor->type));
    str_json_key(json, "shape");
    str_json_open(json, '[');
    for (uint32_t d = 0; d < tensor->dims_count; d++) str_json_u64(json, tensor->dims[d]);
    str_json_close(json, ']');
    add_u64(json, "bytes", tensor->bytes_count);
    str_json_key(json, "min");
    str_json_f64(json, summary->min);
    str_json_key(json, "max");
    str_json_f64(json, summary->max);
    str_json_key(json, "mean");
    str_json_f64(json, summary->mean);
    if (summary->not_finite > 0) add_u64(json, "not_finite", summary->not_finite);
    str_json_close(json, '}');
}

static void tensor_row(const struct safetensors_tensor *tensor,
                       const struct inspect_tensor *summary, struct str *rows)
{
    inspect_table_add_name(rows, tensor->name, strlen(tensor->name));
    str_printf(rows, "\t%s\t", safetensors_type_name(tensor->type));
    for (uint32_t d = 0; d < tensor->dims_count; d++) {
        str_printf(rows, "%s%" PRIu64, d > 0 ? " x " : "", tensor->dims[d]);
    }
    if (tensor->dims_count == 0) str_add(rows, "scalar");
    str_printf(rows, "\t%.6g\t%.6g\t%.6g", summary->min, summary->max, summary->mean);
    if (summary->not_finite > 0) str_printf(rows, "\t%" PRIu64 " not finite", summary->not_finite);
    str_add(rows, "\n");
}

static int show_safetensors(const char *path, bool json, struct str *out, struct err *err)
{
    struct safetensors *file = NULL;
    int rc = safetensors_open(path, &file, err);
    if (rc != 0) return rc;
    struct str rows = {0};
    str_add(&rows, "TENSOR\tTYPE\tSHAPE\tMIN\tMAX\tMEAN\n");
    const uint32_t count = safetensors_count(file);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += safetensors_at(file, i)->bytes_count;
    if (json) {
        json_begin(out, "safetensors", path);
        add_u64(out, "bytes", bytes);
        str_json_key(out, "tensors");
        str_json_open(out, '[');
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        const struct inspect_tensor summary = inspect_tensor(tensor);
        if (json) {
            tensor_json(tensor, &summary, out);
        } else {
            tensor_row(tensor, &summary, &rows);
        }
    }
    if (json) {
        str_json_close(out, ']');
        json_end(out);
    } else {
        char size[32];
        str_printf(out, "safetensors %s: %u tensors, %s\n\n", path, count, str_bytes(bytes, size));
        inspect_table_print(&rows, out);
    }
    if (rows.failed) rc = no_memory(err);
    str_fini(&rows);
    safetensors_close(file);
    return rc;
}

/* ---- Records and events ------------------------------------------------------------------------- */

struct scalars {
    bool json;
    uint64_t count;
    struct str rows; /* JSON objects, or lines of a table */
};

static int add_scalar(void *ctx, const struct events_point *point, struct err *err)
{
    struct scalars *scalars = ctx;
    struct str *rows = &scalars->rows;
    scalars->count++;
    if (scalars->json) {
        str_json_open(rows, '{');
        add_u64(rows, "step", point->step);
        str_json_key(rows, "tag");
        str_json_string(rows, point->tag, point->tag_bytes);
        str_json_key(rows, "value");
        str_json_f32(rows, point->value);
        str_json_key(rows, "wall_time");
        str_json_f64(rows, point->wall_secs);
        str_json_close(rows, '}');
    } else {
        str_printf(rows, "%" PRIu64 "\t", point->step);
        inspect_table_add_name(rows, point->tag, point->tag_bytes);
        str_printf(rows, "\t%.6g\n", (double)point->value);
    }
    return rows->failed ? no_memory(err) : 0;
}

static int show_events(const char *path, bool json, struct str *out, struct err *err)
{
    struct scalars scalars = {.json = json};
    if (!json) str_add(&scalars.rows, "STEP\tTAG\tVALUE\n");
    struct err why;
    const int health = events_read(path, add_scalar, &scalars, &why);
    int rc = health == SHOAL_ECORRUPT ? 0 : health;
    if (rc != 0) {
        str_fini(&scalars.rows);
        return err_set(err, rc, "%s", why.text);
    }
    if (json) {
        json_begin(out, "events", path);
        add_health(out, health, &why);
        str_json_key(out, "scalars");
        str_json_open(out, '[');
        str_add_bytes(out, scalars.rows.text, scalars.rows.bytes);
        str_json_close(out, ']');
        json_end(out);
    } else {
        str_printf(out, "events %s: %" PRIu64 " scalars%s%s\n\n", path, scalars.count,
                   health == 0 ? "" : ", ", health == 0 ? "" : why.text);
        inspect_table_print(&scalars.rows, out);
    }
    str_fini(&scalars.rows);
    return 0;
}

static int show_tfrecord(const char *path, bool json, struct str *out, struct err *err)
{
    struct data_frame *frame = NULL;
    const struct data_frame_opts opts = {.format = DATA_TFRECORD};
    int rc = data_frame_open(path, &opts, 0, 0, &frame, err);
    uint64_t records = 0;
    uint64_t bytes = 0;
    uint64_t skipped = 0;
    while (rc == 0 || rc == SHOAL_ECORRUPT) {
        struct data_record record;
        enum data_fault fault = DATA_FAULT_COUNT;
        rc = data_frame_next(frame, &record, &fault, err);
        if (rc == SHOAL_ECORRUPT) skipped++;
        if (rc != 0) continue;
        records++;
        bytes += record.count;
    }
    data_frame_close(frame);
    if (rc != SHOAL_END) return rc;
    if (json) {
        json_begin(out, "tfrecord", path);
        add_u64(out, "records", records);
        add_u64(out, "skipped", skipped);
        add_u64(out, "bytes", bytes);
        json_end(out);
    } else {
        char count[32];
        char size[32];
        str_printf(out, "TFRecord %s: %s records, %s", path, str_count(records, count),
                   str_bytes(bytes, size));
        if (skipped > 0) str_printf(out, ", %s broken", str_count(skipped, count));
        str_printf(out, "; `shoal data cat %s` shows them\n", path);
    }
    return 0;
}

/* ---- Graphs ------------------------------------------------------------------------------------- */

static void show_graph(const struct graph *graph, const char *path, bool json, struct str *out)
{
    const uint32_t params = graph_params_count(graph);
    const uint32_t tables = graph_tables_count(graph);
    struct str rows = {0};
    str_add(&rows, "NAME\tKIND\tSHAPE\n");
    if (json) {
        json_begin(out, "graph", path);
        add_u64(out, "nodes", graph_nodes_count(graph));
        str_json_key(out, "variables");
        str_json_open(out, '[');
    }
    for (uint32_t i = 0; i < params + tables; i++) {
        const bool is_param = i < params;
        const struct graph_variable *variable =
            is_param ? graph_param_at(graph, i) : graph_table_at(graph, i - params);
        if (json) {
            str_json_open(out, '{');
            add_text(out, "name", variable->name);
            add_text(out, "variable", is_param ? "param" : "table");
            if (is_param) add_u64(out, "rows", variable->rows);
            add_u64(out, "cols", variable->cols);
            str_json_close(out, '}');
            continue;
        }
        inspect_table_add_name(&rows, variable->name, strlen(variable->name));
        if (is_param) str_printf(&rows, "\tparam\t%u x %u\n", variable->rows, variable->cols);
        if (!is_param) str_printf(&rows, "\ttable\trows of %u\n", variable->cols);
    }
    if (json) {
        str_json_close(out, ']');
        json_end(out);
    } else {
        str_printf(out, "graph %s: %u nodes\n\n", path, graph_nodes_count(graph));
        inspect_table_print(&rows, out);
    }
    out->failed = out->failed || rows.failed;
    str_fini(&rows);
}

/* A file that nothing else has claimed: a graph, or none of ours. */
static int show_other(const char *path, bool json, struct str *out, struct err *err)
{
    struct io_map map;
    int rc = io_map_open(path, &map, err);
    if (rc != 0) return rc;
    struct graph *graph = NULL;
    rc = graph_decode(map.bytes, map.count, &graph, err);
    if (rc == 0) show_graph(graph, path, json, out);
    if (rc == SHOAL_ECORRUPT) {
        rc = err_set(err, SHOAL_EINVAL,
                     "%s: not a file of ours (checkpoint, safetensors, event file, TFRecord, "
                     "graph)",
                     path);
    }
    graph_destroy(graph);
    io_map_close(&map);
    return rc;
}

/* ---- What is it? -------------------------------------------------------------------------------- */

typedef int show_cb(const char *path, bool json, struct str *out, struct err *err);

static bool is_tfrecord(const uint8_t *first, size_t count)
{
    uint32_t crc = 0;
    if (count < 12) return false;
    memcpy(&crc, first + 8, sizeof crc);
    return crc == hash_crc32c_mask(hash_crc32c(0, first, 8));
}

/* The first record of an event file is its version. */
static bool is_events(const uint8_t *first, size_t count)
{
    static const char version[] = "brain.Event:";
    return is_tfrecord(first, count) && memmem(first, count, version, sizeof version - 1) != NULL;
}

static bool is_manifest(const uint8_t *first, size_t count)
{
    static const char format[] = "\"shoal-checkpoint\"";
    return count > 0 && first[0] == '{' && memmem(first, count, format, sizeof format - 1) != NULL;
}

/* A length, then a JSON object. */
static bool is_safetensors(const uint8_t *first, size_t count)
{
    uint64_t header = 0;
    if (count < 9) return false;
    memcpy(&header, first, sizeof header);
    return header >= 2 && header < (uint64_t)1 << 32 && first[8] == '{';
}

static int find_out(const char *path, show_cb **show_out, struct err *err)
{
    struct stream *stream = NULL;
    const uint8_t *first = NULL;
    size_t count = 0;
    int rc = stream_open(path, 0, &stream, err);
    if (rc == 0) rc = stream_peek(stream, 64, &first, &count, err);
    if (rc == 0) {
        if (count > 64) count = 64;
        *show_out = is_manifest(first, count)      ? show_manifest
                    : is_events(first, count)      ? show_events
                    : is_tfrecord(first, count)    ? show_tfrecord
                    : is_safetensors(first, count) ? show_safetensors
                                                   : show_other;
    }
    stream_close(stream);
    return rc;
}

int inspect_path(const char *path, bool json, struct str *out, struct err *err)
{
    show_cb *show = NULL;
    int rc = 0;
    if (io_is_dir(path)) {
        show = show_folder;
    } else {
        rc = find_out(path, &show, err);
    }
    if (rc == 0) rc = show(path, json, out, err);
    return rc == 0 && out->failed ? no_memory(err) : rc;
}

int inspect_export(const char *path, const char *to, struct err *err)
{
    char *folder = NULL;
    int rc = checkpoint_resolve(path, &folder, err);
    if (rc == 0) rc = checkpoint_export(folder, to, err);
    mem_free(folder);
    return rc;
}
