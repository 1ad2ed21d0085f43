#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/config.h"
#include "base/mem.h"

/* Every typed read of every node: none may crash, whatever the text. */
static void read_all(const struct config_node *node)
{
    static const char *const words[] = {"type", "kind", "data", "train"};
    struct err err = {0};
    for (size_t i = 0; i < config_count(node); i++) {
        const struct config_node *child = config_at(node, i);
        const char *key = config_kind(node) == CONFIG_MAP ? config_key_at(node, i) : NULL;
        if (key != NULL) {
            uint64_t whole = 0;
            uint32_t choice = 0;
            double number = 0;
            double *list = NULL;
            size_t count = 0;
            bool flag = false;
            const char *text = NULL;
            config_read_u64(node, key, 1, 1000, &whole, &err);
            config_read_f64(node, key, -1, 1, &number, &err);
            config_read_bool(node, key, &flag, &err);
            config_read_string(node, key, &text, &err);
            config_read_choice(node, key, words, 4, &choice, &err);
            if (config_read_f64_list(node, key, -1e9, 1e9, &list, &count, &err) == 0)
                mem_free(list);
        }
        config_check_keys(child, words, 4, &err);
        config_error(child, &err, "looked at");
        read_all(child);
    }
}

/* Line breaks of YAML's own, which JSON writes as they are and YAML folds. */
static bool has_odd_breaks(const char *json)
{
    return strstr(json, "\xc2\x85") != NULL || strstr(json, "\xe2\x80\xa8") != NULL ||
           strstr(json, "\xe2\x80\xa9") != NULL;
}

/* A text that is accepted is written as JSON, which is YAML: read again, it gives the same JSON. */
static void check_round_trip(const struct config *config)
{
    struct err err = {0};
    char *json = NULL;
    char *again = NULL;
    struct config *copy = NULL;
    ASSERT(config_to_json(config_root(config), &json, &err) == 0);
    json_t *parsed = json_loads(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    ASSERT(parsed != NULL);
    json_decref(parsed);
    /* Aliases may have made it longer than a text may be, and the parser has limits of its own on
     * long keys: not every JSON is taken, but what is taken is the same. */
    if (!has_odd_breaks(json) && config_parse("again", json, &copy, &err) == 0) {
        ASSERT(config_to_json(config_root(copy), &again, &err) == 0);
        ASSERT(strcmp(json, again) == 0);
    }
    mem_free(again);
    mem_free(json);
    config_destroy(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct err err = {0};
    struct config *config = NULL;
    char *text = malloc(count + 1);
    ASSERT(text != NULL);
    if (count > 0) memcpy(text, bytes, count);
    text[count] = '\0';
    if (config_parse("fuzz", text, &config, &err) == 0) {
        read_all(config_root(config));
        check_round_trip(config);
        /* The same bytes as a setting: the text's own first line, at a path that is often there. */
        char *line_end = strchr(text, '\n');
        if (line_end != NULL) *line_end = '\0';
        if (config_set(config, text, &err) == 0) read_all(config_root(config));
    } else {
        ASSERT(err.code < 0);
        ASSERT(err.text[0] != '\0');
    }
    config_destroy(config);
    free(text);
    return 0;
}
