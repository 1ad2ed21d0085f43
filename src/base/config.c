#include "base/config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/config_tree.h"
#include "base/mem.h"
#include "base/str.h"

const struct config_node *config_root(const struct config *config)
{
    return config->root;
}

enum config_kind config_kind(const struct config_node *node)
{
    return node->kind;
}

bool config_is_null(const struct config_node *node)
{
    return node->kind == CONFIG_SCALAR && !node->is_quoted &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 ||
            strcmp(node->text, "null") == 0);
}

const struct config_node *config_get(const struct config_node *map, const char *key)
{
    if (map == NULL || map->kind != CONFIG_MAP) return NULL;
    for (size_t i = 0; i < map->count; i++) {
        const struct config_node *child = map->children[i];
        if (strcmp(child->key, key) == 0) return config_is_null(child) ? NULL : child;
    }
    return NULL;
}

size_t config_count(const struct config_node *node)
{
    return node == NULL ? 0 : node->count;
}

const struct config_node *config_at(const struct config_node *node, size_t index)
{
    ASSERT(index < node->count);
    return node->children[index];
}

const char *config_key_at(const struct config_node *map, size_t index)
{
    ASSERT(index < map->count);
    return map->children[index]->key;
}

const char *config_scalar(const struct config_node *node)
{
    return node == NULL ? NULL : node->text;
}

bool config_is_quoted(const struct config_node *node)
{
    return node->is_quoted;
}

/* "data.batch_size", "features.age.boundaries.3" into text; "" for the root. */
static void path_of(const struct config_node *node, char *text, size_t bytes)
{
    const struct config_node *way[CONFIG_DEPTH_MAX + 1];
    size_t depth = 0;
    for (; node->parent != NULL && depth <= CONFIG_DEPTH_MAX; node = node->parent)
        way[depth++] = node;
    size_t used = 0;
    text[0] = '\0';
    while (depth > 0) {
        const struct config_node *step = way[--depth];
        size_t index = 0;
        while (index < step->parent->count && step->parent->children[index] != step) index++;
        const int wanted =
            step->key != NULL
                ? snprintf(text + used, bytes - used, "%s%.60s", used > 0 ? "." : "", step->key)
                : snprintf(text + used, bytes - used, "%s%zu", used > 0 ? "." : "", index);
        if (wanted < 0 || (size_t)wanted >= bytes - used) return;
        used += (size_t)wanted;
    }
}

/* "job.yaml:12:8: data.batch_size: " or "--set data.batch_size: " into text. A map or list stands
 * where its key does; at_key asks for the key of a scalar too. */
static void place_of(const struct config_node *node, bool at_key, char *text, size_t bytes)
{
    char path[256];
    path_of(at_key && node->parent != NULL ? node->parent : node, path, sizeof path);
    const char *colon = path[0] == '\0' ? "" : ": ";
    if (node->set_path != NULL) {
        const bool same = strcmp(path, node->set_path) == 0;
        snprintf(text, bytes, "--set %.100s: %s%s", node->set_path, same ? "" : path,
                 same ? "" : colon);
        return;
    }
    const bool key = node->key_line != 0 && (at_key || node->kind != CONFIG_SCALAR);
    const uint32_t line = key ? node->key_line : node->line;
    const uint32_t column = key ? node->key_column : node->column;
    snprintf(text, bytes, "%.160s:%u:%u: %s%s", node->config->name, line == 0 ? 1 : line,
             column == 0 ? 1 : column, path, colon);
}

int config_error(const struct config_node *node, struct err *err, const char *format, ...)
{
    char message[ERR_TEXT_MAX];
    char place[ERR_TEXT_MAX] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (node != NULL) place_of(node, false, place, sizeof place);
    return err_set(err, SHOAL_ECONFIG, "%s%s", place, message);
}

/* "a, b, c" */
static void join(const char *const *words, size_t count, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const int wanted = snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", words[i]);
        if (wanted < 0 || (size_t)wanted >= bytes - used) {
            memcpy(text + bytes - 4, "...", 4);
            return;
        }
        used += (size_t)wanted;
    }
}

/* `; did you mean "optimizer"` or nothing. */
static void suggest(const char *word, const char *const *choices, size_t count, char text[96])
{
    const char *nearest = str_nearest(word, choices, count);
    text[0] = '\0';
    if (nearest != NULL) snprintf(text, 96, "; did you mean \"%.60s\"?", nearest);
}

/* What stands there, in a word or two: `"abc"`, `a list`. */
static const char *found_text(const struct config_node *node, char text[96])
{
    if (node->kind != CONFIG_SCALAR) {
        return node->kind == CONFIG_MAP ? "a map of settings" : "a list";
    }
    if (config_is_null(node)) return "nothing";
    snprintf(text, 96, "\"%.64s%s\"%s", node->text, strlen(node->text) > 64 ? "..." : "",
             node->is_quoted ? " in quotes" : "");
    return text;
}

int config_check_keys(const struct config_node *map, const char *const *allowed, size_t count,
                      struct err *err)
{
    if (map == NULL) return 0;
    char found[96];
    if (map->kind != CONFIG_MAP) {
        return config_error(map, err, "found %s; a map of settings (key: value) is wanted",
                            found_text(map, found));
    }
    for (size_t i = 0; i < map->count; i++) {
        const struct config_node *child = map->children[i];
        size_t match = 0;
        while (match < count && strcmp(allowed[match], child->key) != 0) match++;
        if (match < count) continue;
        char place[ERR_TEXT_MAX];
        char suggestion[96];
        char all[256];
        place_of(child, true, place, sizeof place);
        suggest(child->key, allowed, count, suggestion);
        join(allowed, count, all, sizeof all);
        return err_set(err, SHOAL_ECONFIG, "%sunknown key \"%.60s\"%s%s allowed: %s", place,
                       child->key, suggestion, suggestion[0] == '\0' ? ";" : "", all);
    }
    return 0;
}

/* Copies a number's text without the underscores between its digits; false when it cannot be one:
 * words such as "nan", hexadecimals and overlong texts are none. */
static bool clean_number(const char *text, char out[64])
{
    size_t used = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        const char c = text[i];
        const bool digit = c >= '0' && c <= '9';
        if (c == '_' && i > 0 && text[i - 1] >= '0' && text[i - 1] <= '9' && text[i + 1] >= '0' &&
            text[i + 1] <= '9') {
            continue;
        }
        if (!digit && strchr("+-.eE", c) == NULL) return false;
        if (used == 63) return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return used > 0;
}

static bool parse_f64(const char *text, double *out)
{
    char clean[64];
    char *end = NULL;
    if (!clean_number(text, clean)) return false;
    const double value = strtod(clean, &end);
    if (*end != '\0' || end == clean || !isfinite(value)) return false;
    *out = value;
    return true;
}

static bool parse_u64(const char *text, uint64_t *out)
{
    char clean[64];
    if (!clean_number(text, clean)) return false;
    if (strspn(clean, "0123456789") == strlen(clean)) {
        uint64_t value = 0;
        for (const char *c = clean; *c != '\0'; c++) {
            if (__builtin_mul_overflow(value, 10u, &value) ||
                __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value)) {
                return false;
            }
        }
        *out = value;
        return true;
    }
    /* 1e6, 1000.0: exact up to 2^53. */
    double value = 0;
    if (!parse_f64(text, &value) || value < 0 || value > 9007199254740992.0) return false;
    if (value != floor(value)) return false;
    *out = (uint64_t)value;
    return true;
}

static bool is_plain(const struct config_node *node)
{
    return node->kind == CONFIG_SCALAR && !node->is_quoted;
}

static int read_u64_node(const struct config_node *node, uint64_t min, uint64_t max, uint64_t *out,
                         struct err *err)
{
    uint64_t value = 0;
    char found[96];
    if (is_plain(node) && parse_u64(node->text, &value) && value >= min && value <= max) {
        *out = value;
        return 0;
    }
    const unsigned long long from = min;
    const unsigned long long to = max;
    if (max == UINT64_MAX) {
        return config_error(node, err, "found %s; a whole number from %llu up is wanted",
                            found_text(node, found), from);
    }
    return config_error(node, err, "found %s; a whole number from %llu to %llu is wanted",
                        found_text(node, found), from, to);
}

static int read_f64_node(const struct config_node *node, double min, double max, double *out,
                         struct err *err)
{
    double value = 0;
    char found[96];
    char range[96] = "";
    if (is_plain(node) && parse_f64(node->text, &value) && value >= min && value <= max) {
        *out = value;
        return 0;
    }
    /* A limit nobody would write down is none. */
    const bool below = max < 1e30;
    const bool above = min > -1e30;
    if (above && below) {
        snprintf(range, sizeof range, " from %.9g to %.9g", min, max);
    } else if (above) {
        snprintf(range, sizeof range, " from %.9g up", min);
    } else if (below) {
        snprintf(range, sizeof range, " up to %.9g", max);
    }
    return config_error(node, err, "found %s; a number%s is wanted", found_text(node, found),
                        range);
}

int config_read_u64(const struct config_node *map, const char *key, uint64_t min, uint64_t max,
                    uint64_t *out, struct err *err)
{
    const struct config_node *node = config_get(map, key);
    return node == NULL ? 0 : read_u64_node(node, min, max, out, err);
}

int config_read_u32(const struct config_node *map, const char *key, uint32_t min, uint32_t max,
                    uint32_t *out, struct err *err)
{
    uint64_t value = *out;
    const int rc = config_read_u64(map, key, min, max, &value, err);
    if (rc == 0) *out = (uint32_t)value;
    return rc;
}

int config_read_f64(const struct config_node *map, const char *key, double min, double max,
                    double *out, struct err *err)
{
    const struct config_node *node = config_get(map, key);
    return node == NULL ? 0 : read_f64_node(node, min, max, out, err);
}

/* 1 true, 0 false, -1 neither. */
static int parse_bool(const struct config_node *node)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (int i = 0; is_plain(node) && i < 6; i++) {
        if (strcasecmp(node->text, words[i]) == 0) return i % 2;
    }
    return -1;
}

int config_read_bool(const struct config_node *map, const char *key, bool *out, struct err *err)
{
    const struct config_node *node = config_get(map, key);
    if (node == NULL) return 0;
    const int value = parse_bool(node);
    char found[96];
    if (value < 0) {
        return config_error(node, err, "found %s; true or false is wanted",
                            found_text(node, found));
    }
    *out = value == 1;
    return 0;
}

int config_read_string(const struct config_node *map, const char *key, const char **out,
                       struct err *err)
{
    const struct config_node *node = config_get(map, key);
    if (node == NULL) return 0;
    char found[96];
    if (node->kind != CONFIG_SCALAR) {
        return config_error(node, err, "found %s; a text is wanted", found_text(node, found));
    }
    *out = node->text;
    return 0;
}

int config_read_choice(const struct config_node *map, const char *key, const char *const *choices,
                       size_t count, uint32_t *out, struct err *err)
{
    const struct config_node *node = config_get(map, key);
    if (node == NULL) return 0;
    for (size_t i = 0; node->kind == CONFIG_SCALAR && i < count; i++) {
        if (strcmp(node->text, choices[i]) == 0) {
            *out = (uint32_t)i;
            return 0;
        }
    }
    char found[96];
    char suggestion[96] = "";
    char all[256];
    if (node->kind == CONFIG_SCALAR) suggest(node->text, choices, count, suggestion);
    join(choices, count, all, sizeof all);
    return config_error(node, err, "found %s%s%s allowed: %s", found_text(node, found), suggestion,
                        suggestion[0] == '\0' ? ";" : "", all);
}

/* The numbers of map[key], a list or a single one, into a new array of size-byte items. */
typedef int read_item_cb(const struct config_node *node, const void *range, void *item,
                         struct err *err);

static int read_list(const struct config_node *map, const char *key, read_item_cb *read_item,
                     const void *range, size_t size, void **out, size_t *count_out, struct err *err)
{
    const struct config_node *node = config_get(map, key);
    if (node == NULL) return 0;
    char found[96];
    if (node->kind == CONFIG_MAP) {
        return config_error(node, err, "found %s; a list of numbers is wanted",
                            found_text(node, found));
    }
    const size_t count = node->kind == CONFIG_LIST ? node->count : 1;
    uint8_t *items = mem_alloc_array(MEM_CONFIG, count, size);
    if (items == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a list of %zu", count);
    for (size_t i = 0; i < count; i++) {
        const struct config_node *item = node->kind == CONFIG_LIST ? node->children[i] : node;
        const int rc = read_item(item, range, items + i * size, err);
        if (rc != 0) {
            mem_free(items);
            return rc;
        }
    }
    *out = items;
    *count_out = count;
    return 0;
}

static int read_f64_item(const struct config_node *node, const void *range, void *item,
                         struct err *err)
{
    const double *limits = range;
    return read_f64_node(node, limits[0], limits[1], item, err);
}

int config_read_f64_list(const struct config_node *map, const char *key, double min, double max,
                         double **out, size_t *count_out, struct err *err)
{
    void *items = *out;
    const int rc = read_list(map, key, read_f64_item, (const double[2]){min, max}, sizeof **out,
                             &items, count_out, err);
    *out = items;
    return rc;
}

static int read_u32_item(const struct config_node *node, const void *range, void *item,
                         struct err *err)
{
    const uint32_t *limits = range;
    uint64_t value = 0;
    const int rc = read_u64_node(node, limits[0], limits[1], &value, err);
    if (rc == 0) *(uint32_t *)item = (uint32_t)value;
    return rc;
}

int config_read_u32_list(const struct config_node *map, const char *key, uint32_t min, uint32_t max,
                         uint32_t **out, size_t *count_out, struct err *err)
{
    void *items = *out;
    const int rc = read_list(map, key, read_u32_item, (const uint32_t[2]){min, max}, sizeof **out,
                             &items, count_out, err);
    *out = items;
    return rc;
}

static void scalar_to_json(const struct config_node *node, struct str *json)
{
    uint64_t whole = 0;
    double number = 0;
    const bool is_bool =
        is_plain(node) && (strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0);
    if (config_is_null(node)) {
        str_json_null(json);
    } else if (is_bool) {
        str_json_bool(json, node->text[0] == 't');
    } else if (is_plain(node) && parse_u64(node->text, &whole)) {
        /* What is beyond 63 bits stays text: readers of JSON, ours too, take no larger integers. */
        if (whole > INT64_MAX) {
            str_json_string(json, node->text, strlen(node->text));
        } else {
            str_json_u64(json, whole);
        }
    } else if (is_plain(node) && parse_f64(node->text, &number)) {
        str_json_f64(json, number);
    } else {
        str_json_string(json, node->text, strlen(node->text));
    }
}

/* Recursion is bounded by CONFIG_DEPTH_MAX. */
static void node_to_json(const struct config_node *node, struct str *json)
{
    if (node->kind == CONFIG_SCALAR) {
        scalar_to_json(node, json);
        return;
    }
    str_json_open(json, node->kind == CONFIG_MAP ? '{' : '[');
    for (size_t i = 0; i < node->count; i++) {
        if (node->kind == CONFIG_MAP) str_json_key(json, node->children[i]->key);
        node_to_json(node->children[i], json);
    }
    str_json_close(json, node->kind == CONFIG_MAP ? '}' : ']');
}

int config_to_json(const struct config_node *node, char **json_out, struct err *err)
{
    struct str json = {0};
    node_to_json(node, &json);
    if (json.failed) {
        str_fini(&json);
        return err_set(err, SHOAL_ENOMEM, "no memory for a config as JSON");
    }
    *json_out = json.text;
    return 0;
}
