#include "train/checkpoint_manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

#define FORMAT "shoal-checkpoint"
#define VERSION 1

/* The last bytes of a manifest; the eight digits in the middle are the checksum. */
#define TAIL_HEAD "\"crc32c\": \""
#define TAIL_END "\"}\n"
#define TAIL_BYTES (sizeof TAIL_HEAD - 1 + 8 + sizeof TAIL_END - 1)

/* JSON numbers are read as doubles (jansson's integers are signed): whole up to here. */
#define NUMBER_MAX ((uint64_t)1 << 53)
#define LOAD_FLAGS (JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL)

static const char *const kind_names[] = {
    [STORE_DENSE] = "dense", [STORE_FIXED] = "fixed", [STORE_DYNAMIC] = "dynamic"};
static const char *const work_names[] = {
    [STORE_WORK_NONE] = "none", [STORE_WORK_LEASE] = "lease", [STORE_WORK_STEP] = "step"};

const char *checkpoint_kind_name(enum store_kind kind)
{
    ASSERT(kind <= STORE_DYNAMIC);
    return kind_names[kind];
}

void checkpoint_tensor_name(struct str *name, const char *table, const char *part, uint32_t shard,
                            uint32_t shards)
{
    ASSERT(shard < shards);
    str_clear(name);
    size_t stem = strlen(table);
    static const char embedding[] = "/embedding";
    const size_t tail = sizeof embedding - 1;
    if (strcmp(part, "keys") == 0 && stem > tail && strcmp(table + stem - tail, embedding) == 0) {
        stem -= tail;
    }
    str_add_bytes(name, table, stem);
    if (part[0] != '\0') str_printf(name, "/%s", part);
    if (shards > 1) str_printf(name, ".%u-of-%u", shard, shards);
}

uint64_t checkpoint_fixed_rows(uint64_t rows, uint32_t shard, uint32_t shards)
{
    ASSERT(shard < shards);
    return rows > shard ? (rows - shard - 1) / shards + 1 : 0;
}

static int no_memory(struct err *err)
{
    return err_set(err, SHOAL_ENOMEM, "no memory for the description of a checkpoint");
}

static void table_fini(struct checkpoint_table *table)
{
    for (uint32_t i = 0; table->shards != NULL && i < table->shards_count; i++) {
        mem_free((void *)(uintptr_t)table->shards[i].state.streams);
    }
    for (uint32_t i = 0; i < STORE_PARTS_MAX; i++) mem_free(table->parts[i]);
    mem_free(table->shards);
    mem_free(table->name);
    mem_free(table->optimizer);
}

void checkpoint_fini(struct checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->tables_count; i++) table_fini(&checkpoint->tables[i]);
    for (uint32_t i = 0; i < checkpoint->files_count; i++) mem_free(checkpoint->files[i].name);
    mem_free(checkpoint->tables);
    mem_free(checkpoint->files);
    mem_free(checkpoint->folder);
    mem_free(checkpoint->config);
    mem_free(checkpoint->position);
    memset(checkpoint, 0, sizeof *checkpoint);
}

static int shards_alloc(struct checkpoint_table *table, struct err *err)
{
    table->shards = mem_alloc_array(MEM_TRAIN, table->shards_count, sizeof *table->shards);
    if (table->shards == NULL) return no_memory(err);
    for (uint32_t i = 0; i < table->shards_count; i++) table->shards[i].file = CHECKPOINT_NO_FILE;
    return 0;
}

static int describe_table(const struct store *store, uint32_t index, struct checkpoint_table *table,
                          struct err *err)
{
    const struct store_table_info info = store_table_info(store, index);
    ASSERT(info.parts >= 1 && info.parts <= STORE_PARTS_MAX);
    table->kind = info.kind;
    table->rows = info.rows;
    table->cols = info.cols;
    table->shards_count = info.shards;
    table->average_decay = info.average_decay;
    table->has_steps = info.has_steps;
    table->has_counts = info.has_counts;
    table->name = mem_strdup(MEM_TRAIN, info.name);
    table->optimizer = mem_strdup(MEM_TRAIN, store_rule_name(info.rule->type));
    if (table->name == NULL || table->optimizer == NULL) return no_memory(err);
    for (uint32_t i = 0; i < info.parts; i++, table->parts_count++) {
        table->parts[i] = mem_strdup(MEM_TRAIN, store_part_name(store, index, i));
        if (table->parts[i] == NULL) return no_memory(err);
    }
    return shards_alloc(table, err);
}

int checkpoint_describe(const struct store *store, struct checkpoint *checkpoint, struct err *err)
{
    const uint32_t count = store_tables_count(store);
    checkpoint->tables = mem_alloc_array(MEM_TRAIN, count, sizeof *checkpoint->tables);
    if (checkpoint->tables == NULL) return no_memory(err);
    checkpoint->tables_count = count;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = describe_table(store, i, &checkpoint->tables[i], err);
    }
    return rc;
}

int checkpoint_shard_copy(struct checkpoint_shard *into, const struct store_shard *state,
                          uint32_t file, struct err *err)
{
    ASSERT(into->file == CHECKPOINT_NO_FILE);
    struct store_work *streams = NULL;
    if (state->streams_count > 0) {
        streams = mem_alloc_array(MEM_TRAIN, state->streams_count, sizeof *streams);
        if (streams == NULL) return no_memory(err);
        memcpy(streams, state->streams, state->streams_count * sizeof *streams);
    }
    into->state = *state;
    into->state.streams = streams;
    into->file = file;
    return 0;
}

/* ---- Writing ------------------------------------------------------------------------------------ */

static void add_u64(struct str *json, const char *key, uint64_t value)
{
    str_json_key(json, key);
    str_json_u64(json, value);
}

static void add_text(struct str *json, const char *key, const char *text)
{
    str_json_key(json, key);
    str_json_string(json, text, strlen(text));
}

static void add_bool(struct str *json, const char *key, bool value)
{
    str_json_key(json, key);
    str_json_bool(json, value);
}

/* Names of work may use all 64 bits: as text, so that no reader rounds them. */
static void add_u64_text(struct str *json, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_text(json, key, text);
}

static void write_shard(const struct checkpoint_shard *shard, uint32_t index, struct str *json)
{
    str_json_open(json, '{');
    add_u64(json, "shard", index);
    add_u64(json, "file", shard->file);
    add_u64(json, "version", shard->state.version);
    add_u64(json, "rows", shard->state.rows);
    add_u64(json, "first", shard->state.first);
    str_json_key(json, "streams");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < shard->state.streams_count; i++) {
        const struct store_work *work = &shard->state.streams[i];
        str_json_open(json, '{');
        add_text(json, "kind", work_names[work->kind]);
        add_u64_text(json, "stream", work->stream);
        add_u64_text(json, "token", work->token);
        add_u64_text(json, "number", work->number);
        str_json_close(json, '}');
    }
    str_json_close(json, ']');
    str_json_close(json, '}');
}

static void write_table(const struct checkpoint_table *table, struct str *json)
{
    str_json_open(json, '{');
    add_text(json, "name", table->name);
    add_text(json, "kind", checkpoint_kind_name(table->kind));
    add_u64(json, "rows", table->rows);
    add_u64(json, "cols", table->cols);
    add_u64(json, "shards", table->shards_count);
    add_text(json, "optimizer", table->optimizer);
    str_json_key(json, "parts");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < table->parts_count; i++) {
        str_json_string(json, table->parts[i], strlen(table->parts[i]));
    }
    str_json_close(json, ']');
    str_json_key(json, "average_decay");
    str_json_f64(json, table->average_decay);
    add_bool(json, "steps", table->has_steps);
    add_bool(json, "counts", table->has_counts);
    str_json_key(json, "states");
    str_json_open(json, '[');
    for (uint32_t i = 0; i < table->shards_count; i++) {
        if (table->shards[i].file != CHECKPOINT_NO_FILE) write_shard(&table->shards[i], i, json);
    }
    str_json_close(json, ']');
    str_json_close(json, '}');
}

static void write_file(const struct checkpoint_file *file, struct str *json)
{
    char crc[16];
    snprintf(crc, sizeof crc, "%08" PRIx32, file->crc32c);
    str_json_open(json, '{');
    add_text(json, "name", file->name);
    add_u64(json, "bytes", file->bytes);
    add_text(json, "crc32c", crc);
    str_json_close(json, '}');
}

/* "tables": [...], "files": [...], one element per line. */
static void write_body(const struct checkpoint *checkpoint, struct str *json)
{
    str_add(json, "\"tables\": [\n");
    for (uint32_t i = 0; i < checkpoint->tables_count; i++) {
        write_table(&checkpoint->tables[i], json);
        str_add(json, i + 1 < checkpoint->tables_count ? ",\n" : "\n");
    }
    str_add(json, "],\n\"files\": [\n");
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        write_file(&checkpoint->files[i], json);
        str_add(json, i + 1 < checkpoint->files_count ? ",\n" : "\n");
    }
    str_add(json, "]");
}

void checkpoint_part_write(const struct checkpoint *checkpoint, struct str *part)
{
    str_add(part, "{\n");
    write_body(checkpoint, part);
    str_add(part, "}\n");
}

/* JSON on one line: outside of strings a line break is nothing but space, and inside it cannot be. */
static void add_on_one_line(struct str *json, const char *key, const char *value)
{
    str_printf(json, "\"%s\": ", key);
    const size_t start = json->bytes;
    str_add(json, value);
    for (size_t i = start; i < json->bytes; i++) {
        if (json->text[i] == '\n' || json->text[i] == '\r') json->text[i] = ' ';
    }
    str_add(json, ",\n");
}

void checkpoint_manifest_write(const struct checkpoint *checkpoint, struct str *manifest)
{
    ASSERT(manifest->bytes == 0);
    ASSERT(checkpoint->step < NUMBER_MAX);
    str_printf(manifest, "{\n\"format\": \"%s\",\n\"version\": %d,\n\"step\": %" PRIu64 ",\n",
               FORMAT, VERSION, checkpoint->step);
    add_on_one_line(manifest, "config", checkpoint->config);
    add_on_one_line(manifest, "position", checkpoint->position);
    write_body(checkpoint, manifest);
    str_add(manifest, ",\n");
    checkpoint_manifest_seal(manifest);
}

void checkpoint_manifest_seal(struct str *manifest)
{
    const uint32_t crc = hash_crc32c(0, manifest->text, manifest->bytes);
    str_printf(manifest, TAIL_HEAD "%08" PRIx32 TAIL_END, crc);
}

/* ---- Reading ------------------------------------------------------------------------------------ */

/* Where in the JSON we are, for messages. */
struct place {
    const char *what; /* "table" or "file" or "manifest" */
    uint32_t index;
    struct err *err;
};

static int wrong(const struct place *place, const char *key)
{
    return err_set(place->err, SHOAL_ECORRUPT, "%s %u has no valid \"%s\"", place->what,
                   place->index, key);
}

static int read_u64(const json_t *object, const char *key, uint64_t max, uint64_t *out,
                    const struct place *place)
{
    const json_t *value = json_object_get(object, key);
    const double number = json_is_real(value) ? json_real_value(value) : -1;
    if (!(number >= 0) || !(number <= (double)max) || number != (double)(uint64_t)number) {
        return wrong(place, key);
    }
    *out = (uint64_t)number;
    return 0;
}

static int read_u32(const json_t *object, const char *key, uint32_t max, uint32_t *out,
                    const struct place *place)
{
    uint64_t value = 0;
    const int rc = read_u64(object, key, max, &value, place);
    if (rc == 0) *out = (uint32_t)value;
    return rc;
}

static int read_bool(const json_t *object, const char *key, bool *out, const struct place *place)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return wrong(place, key);
    *out = json_is_true(value);
    return 0;
}

static int copy_text(const json_t *value, const char *key, size_t bytes_max, char **out,
                     const struct place *place)
{
    if (!json_is_string(value) || json_string_length(value) > bytes_max) return wrong(place, key);
    *out = mem_strdup(MEM_TRAIN, json_string_value(value));
    return *out == NULL ? no_memory(place->err) : 0;
}

/* One of the names; its index. */
static int read_choice(const json_t *object, const char *key, const char *const *names,
                       uint32_t names_count, uint32_t *out, const struct place *place)
{
    const char *text = json_string_value(json_object_get(object, key));
    for (uint32_t i = 0; text != NULL && i < names_count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return wrong(place, key);
}

static int read_u64_text(const json_t *object, const char *key, uint64_t *out,
                         const struct place *place)
{
    const char *text = json_string_value(json_object_get(object, key));
    uint64_t value = 0;
    if (text == NULL || *text == '\0') return wrong(place, key);
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return wrong(place, key);
        }
    }
    *out = value;
    return 0;
}

static int read_crc(const json_t *object, uint32_t *out, const struct place *place)
{
    const char *text = json_string_value(json_object_get(object, "crc32c"));
    if (text == NULL || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8) {
        return wrong(place, "crc32c");
    }
    *out = (uint32_t)strtoul(text, NULL, 16);
    return 0;
}

static int read_streams(const json_t *list, struct store_shard *state, const struct place *place)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count > STORE_STREAMS_MAX) return wrong(place, "streams");
    if (count == 0) return 0;
    struct store_work *streams = mem_alloc_array(MEM_TRAIN, count, sizeof *streams);
    if (streams == NULL) return no_memory(place->err);
    state->streams = streams; /* owned by the table from here on */
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        struct store_work *work = &streams[i];
        uint32_t kind = 0;
        int rc = read_choice(item, "kind", work_names, 3, &kind, place);
        if (rc == 0) rc = read_u64_text(item, "stream", &work->stream, place);
        if (rc == 0) rc = read_u64_text(item, "token", &work->token, place);
        if (rc == 0) rc = read_u64_text(item, "number", &work->number, place);
        if (rc != 0) return rc;
        work->kind = (enum store_work_kind)kind;
    }
    state->streams_count = (uint32_t)count;
    return 0;
}

static int check_state(const struct checkpoint_table *table, uint32_t index,
                       const struct store_shard *state, const struct place *place)
{
    if (table->kind == STORE_FIXED &&
        state->rows != checkpoint_fixed_rows(table->rows, index, table->shards_count)) {
        return wrong(place, "rows");
    }
    if (table->kind == STORE_DENSE && state->first + state->rows > table->rows * table->cols) {
        return wrong(place, "first");
    }
    return 0;
}

static int read_state(const json_t *item, uint32_t files_first, uint32_t files_count,
                      struct checkpoint_table *table, const struct place *place)
{
    uint32_t index = 0;
    int rc = read_u32(item, "shard", table->shards_count - 1, &index, place);
    if (rc != 0) return rc;
    struct checkpoint_shard *shard = &table->shards[index];
    if (shard->file != CHECKPOINT_NO_FILE) {
        return err_set(place->err, SHOAL_ECORRUPT, "%s %u: shard %u stands there twice",
                       place->what, place->index, index);
    }
    uint32_t file = 0;
    if (files_count == 0) return wrong(place, "file");
    rc = read_u32(item, "file", files_count - 1, &file, place);
    if (rc == 0) rc = read_u64(item, "version", NUMBER_MAX, &shard->state.version, place);
    if (rc == 0) rc = read_u64(item, "rows", STORE_ELEMENTS_MAX, &shard->state.rows, place);
    if (rc == 0) rc = read_u64(item, "first", STORE_ELEMENTS_MAX, &shard->state.first, place);
    if (rc == 0) rc = read_streams(json_object_get(item, "streams"), &shard->state, place);
    if (rc == 0) rc = check_state(table, index, &shard->state, place);
    if (rc == 0) shard->file = files_first + file;
    return rc;
}

static int read_parts(const json_t *list, struct checkpoint_table *table, const struct place *place)
{
    const size_t count = json_array_size(list);
    if (count < 1 || count > STORE_PARTS_MAX) return wrong(place, "parts");
    for (size_t i = 0; i < count; i++) {
        const int rc = copy_text(json_array_get(list, i), "parts", CHECKPOINT_NAME_MAX,
                                 &table->parts[i], place);
        if (rc != 0) return rc;
        if ((table->parts[i][0] == '\0') != (i == 0)) return wrong(place, "parts");
    }
    table->parts_count = (uint32_t)count;
    return 0;
}

static int read_table(const json_t *item, struct checkpoint_table *table, const struct place *place)
{
    uint32_t kind = 0;
    int rc =
        copy_text(json_object_get(item, "name"), "name", CHECKPOINT_NAME_MAX, &table->name, place);
    if (rc == 0) rc = read_choice(item, "kind", kind_names, 3, &kind, place);
    if (rc == 0) rc = read_u64(item, "rows", STORE_ELEMENTS_MAX, &table->rows, place);
    if (rc == 0) rc = read_u32(item, "cols", UINT32_MAX, &table->cols, place);
    if (rc == 0) rc = read_u32(item, "shards", STORE_SHARDS_MAX, &table->shards_count, place);
    if (rc == 0) {
        rc = copy_text(json_object_get(item, "optimizer"), "optimizer", CHECKPOINT_NAME_MAX,
                       &table->optimizer, place);
    }
    if (rc == 0) rc = read_parts(json_object_get(item, "parts"), table, place);
    if (rc == 0) rc = read_bool(item, "steps", &table->has_steps, place);
    if (rc == 0) rc = read_bool(item, "counts", &table->has_counts, place);
    if (rc != 0) return rc;
    table->kind = (enum store_kind)kind;
    table->average_decay = json_real_value(json_object_get(item, "average_decay"));
    uint64_t elements = 0;
    if (table->cols == 0 || __builtin_mul_overflow(table->rows, (uint64_t)table->cols, &elements) ||
        (table->kind == STORE_DENSE && elements > STORE_ELEMENTS_MAX)) {
        return wrong(place, "cols");
    }
    return table->shards_count == 0 ? wrong(place, "shards") : shards_alloc(table, place->err);
}

/* The rows of a dynamic table are those of its shards. */
static void count_rows(struct checkpoint_table *table)
{
    if (table->kind != STORE_DYNAMIC) return;
    table->rows = 0;
    for (uint32_t i = 0; i < table->shards_count; i++) table->rows += table->shards[i].state.rows;
}

static int read_file(const json_t *item, struct checkpoint_file *file, const struct place *place)
{
    int rc =
        copy_text(json_object_get(item, "name"), "name", CHECKPOINT_NAME_MAX, &file->name, place);
    if (rc == 0) rc = read_u64(item, "bytes", NUMBER_MAX, &file->bytes, place);
    if (rc == 0) rc = read_crc(item, &file->crc32c, place);
    /* A name from outside must not lead out of the folder. */
    if (rc == 0 &&
        (file->name[0] == '\0' || file->name[0] == '.' || strchr(file->name, '/') != NULL)) {
        rc = wrong(place, "name");
    }
    return rc;
}

static int read_files(const json_t *list, struct checkpoint *checkpoint, struct err *err)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count > CHECKPOINT_FILES_MAX - checkpoint->files_count) {
        return err_set(err, SHOAL_ECORRUPT, "no valid list of files");
    }
    const size_t all = checkpoint->files_count + count;
    struct checkpoint_file *files = mem_realloc(MEM_TRAIN, checkpoint->files, all * sizeof *files);
    if (files == NULL) return no_memory(err);
    checkpoint->files = files;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = read_file(json_array_get(list, i), &files[checkpoint->files_count++],
                       &(struct place){"file", i, err});
    }
    return rc;
}

static bool tables_are_alike(const struct checkpoint_table *a, const struct checkpoint_table *b)
{
    return strcmp(a->name, b->name) == 0 && a->kind == b->kind && a->cols == b->cols &&
           (a->kind == STORE_DYNAMIC || a->rows == b->rows) && a->shards_count == b->shards_count &&
           a->parts_count == b->parts_count && strcmp(a->optimizer, b->optimizer) == 0;
}

/* Tables of the first part are taken over; those of the next must be the same and add states. */
static int read_tables(const json_t *list, uint32_t files_first, struct checkpoint *checkpoint,
                       struct err *err)
{
    const size_t count = json_array_size(list);
    const bool is_first = checkpoint->tables == NULL;
    if (!json_is_array(list) || count > STORE_TABLES_MAX ||
        (!is_first && count != checkpoint->tables_count)) {
        return err_set(err, SHOAL_ECORRUPT, "no valid list of tables");
    }
    if (is_first) {
        checkpoint->tables = mem_alloc_array(MEM_TRAIN, count, sizeof *checkpoint->tables);
        if (checkpoint->tables == NULL) return no_memory(err);
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        const json_t *item = json_array_get(list, i);
        const struct place place = {"table", i, err};
        struct checkpoint_table *table = &checkpoint->tables[i];
        if (is_first) {
            checkpoint->tables_count++;
            rc = read_table(item, table, &place);
        } else {
            struct checkpoint_table other = {0};
            rc = read_table(item, &other, &place);
            if (rc == 0 && !tables_are_alike(table, &other)) {
                rc = err_set(err, SHOAL_ECORRUPT, "table %s differs between parts", table->name);
            }
            table_fini(&other);
        }
        const json_t *states = json_object_get(item, "states");
        for (size_t s = 0; rc == 0 && s < json_array_size(states); s++) {
            rc = read_state(json_array_get(states, s), files_first,
                            checkpoint->files_count - files_first, table, &place);
        }
        if (rc == 0) count_rows(table);
    }
    return rc;
}

static int read_body(const json_t *root, struct checkpoint *checkpoint, struct err *err)
{
    const uint32_t files_first = checkpoint->files_count;
    const int rc = read_files(json_object_get(root, "files"), checkpoint, err);
    if (rc != 0) return rc;
    return read_tables(json_object_get(root, "tables"), files_first, checkpoint, err);
}

static int load_json(const char *text, size_t bytes, json_t **root_out, struct err *err)
{
    json_error_t why;
    *root_out = json_loadb(text, bytes, LOAD_FLAGS, &why);
    if (*root_out != NULL) return 0;
    return err_set(err, SHOAL_ECORRUPT, "line %d, column %d: %s", why.line, why.column, why.text);
}

int checkpoint_part_merge(struct checkpoint *into, const char *part, struct err *err)
{
    json_t *root = NULL;
    int rc = load_json(part, strlen(part), &root, err);
    if (rc == 0) rc = read_body(root, into, err);
    json_decref(root);
    return rc;
}

int checkpoint_complete(const struct checkpoint *checkpoint, struct err *err)
{
    for (uint32_t i = 0; i < checkpoint->tables_count; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        uint64_t elements = 0;
        for (uint32_t s = 0; s < table->shards_count; s++) {
            const struct checkpoint_shard *shard = &table->shards[s];
            if (shard->file == CHECKPOINT_NO_FILE) {
                return err_set(err, SHOAL_ECORRUPT, "table %s: shard %u of %u is missing",
                               table->name, s, table->shards_count);
            }
            if (table->kind == STORE_DENSE && shard->state.first != elements) {
                return err_set(err, SHOAL_ECORRUPT, "table %s: shard %u starts at element %llu",
                               table->name, s, (unsigned long long)shard->state.first);
            }
            elements += shard->state.rows;
        }
        if (table->kind == STORE_DENSE && elements != table->rows * table->cols) {
            return err_set(err, SHOAL_ECORRUPT, "table %s: shards of %llu elements in all",
                           table->name, (unsigned long long)elements);
        }
    }
    return 0;
}

/* The value of a key that has a line of its own, as it was written: read by others, who may want all
 * 64 bits of a number. What stands on the line must be that value and nothing else. */
static int copy_line(const json_t *root, const char *text, size_t bytes, const char *key,
                     char **out, struct err *err)
{
    char start[32];
    const int start_bytes = snprintf(start, sizeof start, "\n\"%s\": ", key);
    const char *from = memmem(text, bytes, start, (size_t)start_bytes);
    if (from != NULL) from += start_bytes;
    const char *end = from == NULL ? NULL : memchr(from, '\n', (size_t)(text + bytes - from));
    if (end == NULL || end == from || end[-1] != ',') {
        return err_set(err, SHOAL_ECORRUPT, "no line for \"%s\"", key);
    }
    const size_t count = (size_t)(end - 1 - from);
    json_t *value = json_loadb(from, count, LOAD_FLAGS | JSON_DECODE_ANY, NULL);
    const bool same = value != NULL && json_equal(value, json_object_get(root, key));
    json_decref(value);
    if (!same) return err_set(err, SHOAL_ECORRUPT, "no value in the line for \"%s\"", key);
    *out = mem_strndup(MEM_TRAIN, from, count);
    return *out == NULL ? no_memory(err) : 0;
}

static int check_tail(const char *text, size_t bytes, struct err *err)
{
    if (bytes < TAIL_BYTES) return err_set(err, SHOAL_ECORRUPT, "cut short: %zu bytes", bytes);
    const size_t body = bytes - TAIL_BYTES;
    char tail[TAIL_BYTES + 1];
    snprintf(tail, sizeof tail, TAIL_HEAD "%08" PRIx32 TAIL_END, hash_crc32c(0, text, body));
    if (memcmp(text + body, tail, TAIL_BYTES) != 0) {
        return err_set(err, SHOAL_ECORRUPT,
                       "the checksum at its end does not match: damaged or cut short");
    }
    return 0;
}

static int parse(const char *text, size_t bytes, struct checkpoint *checkpoint, struct err *err)
{
    int rc = check_tail(text, bytes, err);
    json_t *root = NULL;
    if (rc == 0) rc = load_json(text, bytes, &root, err);
    if (rc != 0) return rc;
    const struct place place = {"version", VERSION, err};
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t version = 0;
    if (format == NULL || strcmp(format, FORMAT) != 0) {
        rc = err_set(err, SHOAL_ECORRUPT, "not a checkpoint's manifest");
    }
    if (rc == 0) rc = read_u64(root, "version", NUMBER_MAX, &version, &place);
    if (rc == 0 && version != VERSION) {
        rc = err_set(err, SHOAL_EMISMATCH, "format version %llu, this program reads %d",
                     (unsigned long long)version, VERSION);
    }
    if (rc == 0) rc = read_u64(root, "step", NUMBER_MAX - 1, &checkpoint->step, &place);
    if (rc == 0) rc = copy_line(root, text, bytes, "config", &checkpoint->config, err);
    if (rc == 0) rc = copy_line(root, text, bytes, "position", &checkpoint->position, err);
    if (rc == 0) rc = read_body(root, checkpoint, err);
    if (rc == 0) rc = checkpoint_complete(checkpoint, err);
    json_decref(root);
    return rc;
}

int checkpoint_parse(const char *folder, const char *manifest, size_t bytes,
                     struct checkpoint **checkpoint_out, struct err *err)
{
    struct checkpoint *checkpoint = mem_alloc(MEM_TRAIN, sizeof *checkpoint);
    if (checkpoint == NULL) return no_memory(err);
    checkpoint->folder = mem_strdup(MEM_TRAIN, folder);
    int rc = checkpoint->folder == NULL ? no_memory(err) : parse(manifest, bytes, checkpoint, err);
    if (rc != 0) {
        checkpoint_close(checkpoint);
        return rc;
    }
    checkpoint->bytes = bytes;
    for (uint32_t i = 0; i < checkpoint->files_count; i++) {
        checkpoint->bytes += checkpoint->files[i].bytes;
    }
    *checkpoint_out = checkpoint;
    return 0;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (checkpoint == NULL) return;
    checkpoint_fini(checkpoint);
    mem_free(checkpoint);
}
