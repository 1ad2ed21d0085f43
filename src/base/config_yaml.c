#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/config_tree.h"
#include "base/mem.h"
#include "base/str.h"

/* YAML into our tree, from libyaml's events rather than its documents: so depth, nodes and aliases
 * are bounded while reading, duplicate keys are found where they stand, and no tree of hostile
 * shape is ever built. */

#define BLOCK_BYTES ((size_t)16 << 10)

void *config_alloc(struct config *config, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    struct config_block *block = config->blocks;
    if (block == NULL || block->bytes - block->used < bytes) {
        const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = mem_alloc(MEM_CONFIG, sizeof *block + room);
        if (block == NULL) return NULL;
        block->bytes = room;
        block->next = config->blocks;
        config->blocks = block;
    }
    void *memory = block->memory + block->used;
    block->used += bytes;
    return memory;
}

char *config_copy_text(struct config *config, const char *text, size_t count)
{
    char *copy = config_alloc(config, count + 1);
    if (copy != NULL && count > 0) memcpy(copy, text, count);
    return copy;
}

struct anchor {
    const char *name;
    const struct config_node *node;
};

/* A key that waits for its value. */
struct key {
    const char *text;
    uint32_t line, column;
};

struct builder {
    struct config *config;
    const char *set_path; /* NULL: from the file */
    struct config_node *root;
    struct config_node *stack[CONFIG_DEPTH_MAX]; /* open maps and lists */
    struct key keys[CONFIG_DEPTH_MAX];
    uint32_t depth;
    struct anchor *anchors;
    size_t anchors_count;
    size_t anchors_capacity;
    struct err *err;
};

static int no_memory(struct builder *b)
{
    return err_set(b->err, SHOAL_ENOMEM, "%s: no memory for the job file", b->config->name);
}

/* An error at a place; what --set gave has no place. */
static int fail_at(struct builder *b, const yaml_mark_t *mark, const char *what, const char *detail)
{
    if (b->set_path != NULL) {
        return err_set(b->err, SHOAL_ECONFIG, "--set %s: %s%s", b->set_path, what, detail);
    }
    return err_set(b->err, SHOAL_ECONFIG, "%s:%zu:%zu: %s%s", b->config->name,
                   mark == NULL ? 1 : mark->line + 1, mark == NULL ? 1 : mark->column + 1, what,
                   detail);
}

static struct config_node *new_node(struct builder *b, enum config_kind kind,
                                    const yaml_mark_t *mark)
{
    struct config_node *node = config_alloc(b->config, sizeof *node);
    if (node == NULL) return NULL;
    b->config->nodes_count++;
    node->kind = kind;
    node->config = b->config;
    node->set_path = b->set_path;
    node->text = kind == CONFIG_SCALAR ? "" : NULL;
    if (mark != NULL) {
        node->line = (uint32_t)mark->line + 1;
        node->column = (uint32_t)mark->column + 1;
    }
    return node;
}

static bool add_child(struct config *config, struct config_node *parent, struct config_node *child)
{
    if (parent->count == parent->capacity) {
        const size_t capacity = parent->capacity == 0 ? 4 : 2 * parent->capacity;
        struct config_node **grown = config_alloc(config, capacity * sizeof(struct config_node *));
        if (grown == NULL) return false;
        if (parent->children != NULL)
            memcpy(grown, parent->children, parent->count * sizeof *grown);
        parent->children = grown;
        parent->capacity = capacity;
    }
    ASSERT(parent->children != NULL);
    parent->children[parent->count++] = child;
    child->parent = parent;
    return true;
}

/* Puts a node where the document is: at the root, as a list's next, or under the waiting key. */
static int attach(struct builder *b, struct config_node *node, const yaml_mark_t *mark)
{
    if (b->config->nodes_count > CONFIG_NODES_MAX) {
        return fail_at(b, mark, "too many values", "");
    }
    if (b->depth == 0) {
        b->root = node;
        return 0;
    }
    struct config_node *parent = b->stack[b->depth - 1];
    struct key *key = &b->keys[b->depth - 1];
    if (parent->kind == CONFIG_MAP) {
        if (key->text == NULL) return fail_at(b, mark, "a key must be plain text", "");
        node->key = key->text;
        node->key_line = key->line;
        node->key_column = key->column;
        *key = (struct key){0};
    }
    return add_child(b->config, parent, node) ? 0 : no_memory(b);
}

static int take_key(struct builder *b, const char *text, const yaml_mark_t *mark)
{
    const struct config_node *map = b->stack[b->depth - 1];
    if (text[0] == '\0') return fail_at(b, mark, "an empty key", "");
    if (map->count >= CONFIG_KEYS_MAX) return fail_at(b, mark, "too many keys in one map", "");
    for (size_t i = 0; i < map->count; i++) {
        if (strcmp(map->children[i]->key, text) != 0) continue;
        char detail[160];
        snprintf(detail, sizeof detail, "\"%.80s\" is given twice, first at line %u", text,
                 map->children[i]->key_line);
        return fail_at(b, mark, detail, "");
    }
    b->keys[b->depth - 1] =
        (struct key){text, (uint32_t)mark->line + 1, (uint32_t)mark->column + 1};
    return 0;
}

static bool wants_key(const struct builder *b)
{
    return b->depth > 0 && b->stack[b->depth - 1]->kind == CONFIG_MAP &&
           b->keys[b->depth - 1].text == NULL;
}

/* name is NULL where there is no anchor. */
static int on_anchor(struct builder *b, const yaml_char_t *name, const struct config_node *node,
                     const yaml_mark_t *mark)
{
    if (name == NULL) return 0;
    if (b->anchors_count == CONFIG_ANCHORS_MAX) return fail_at(b, mark, "too many anchors", "");
    void *anchors = b->anchors;
    char *copy = config_copy_text(b->config, (const char *)name, strlen((const char *)name));
    if (copy == NULL || mem_grow(MEM_CONFIG, &anchors, &b->anchors_capacity, b->anchors_count + 1,
                                 sizeof *b->anchors) != 0) {
        return no_memory(b);
    }
    b->anchors = anchors;
    b->anchors[b->anchors_count++] = (struct anchor){copy, node};
    return 0;
}

/* A deep copy of node, which an alias at mark asks for; recursion is as deep as what may be read. */
static int copy_node(struct builder *b, const struct config_node *node, uint32_t depth,
                     const yaml_mark_t *mark, struct config_node **copy_out)
{
    if (depth == CONFIG_DEPTH_MAX || b->config->nodes_count >= CONFIG_NODES_MAX) {
        return fail_at(b, mark, "too much to copy for the alias", "");
    }
    struct config_node *copy = new_node(b, node->kind, NULL);
    if (copy == NULL) return no_memory(b);
    copy->line = node->line;
    copy->column = node->column;
    copy->is_quoted = node->is_quoted;
    copy->text = node->text;
    for (size_t i = 0; i < node->count; i++) {
        struct config_node *child = NULL;
        const int rc = copy_node(b, node->children[i], depth + 1, mark, &child);
        if (rc != 0) return rc;
        ASSERT(child != NULL);
        if (!add_child(b->config, copy, child)) return no_memory(b);
        child->key = node->children[i]->key;
        child->key_line = node->children[i]->key_line;
        child->key_column = node->children[i]->key_column;
    }
    *copy_out = copy;
    return 0;
}

static int on_alias(struct builder *b, const char *name, const yaml_mark_t *mark)
{
    if (wants_key(b)) return fail_at(b, mark, "a key must be plain text, not an alias: *", name);
    const struct config_node *target = NULL;
    for (size_t i = b->anchors_count; i > 0 && target == NULL; i--) {
        if (strcmp(b->anchors[i - 1].name, name) == 0) target = b->anchors[i - 1].node;
    }
    if (target == NULL) return fail_at(b, mark, "no anchor of this name before: *", name);
    for (uint32_t i = 0; i < b->depth; i++) {
        if (b->stack[i] == target)
            return fail_at(b, mark, "an alias inside what it names: *", name);
    }
    struct config_node *copy = NULL;
    const int rc = copy_node(b, target, b->depth, mark, &copy);
    return rc != 0 ? rc : attach(b, copy, mark);
}

static int on_scalar(struct builder *b, const yaml_event_t *event)
{
    const yaml_mark_t *mark = &event->start_mark;
    const char *text = (const char *)event->data.scalar.value;
    const size_t count = event->data.scalar.length;
    if (event->data.scalar.tag != NULL) return fail_at(b, mark, "tags (!) are not supported", "");
    if (memchr(text, '\0', count) != NULL) return fail_at(b, mark, "a NUL character", "");
    const char *copy = config_copy_text(b->config, text, count);
    if (copy == NULL) return no_memory(b);
    if (wants_key(b)) {
        if (event->data.scalar.anchor != NULL) return fail_at(b, mark, "an anchor on a key", "");
        return take_key(b, copy, mark);
    }
    struct config_node *node = new_node(b, CONFIG_SCALAR, mark);
    if (node == NULL) return no_memory(b);
    node->text = copy;
    node->is_quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    const int rc = on_anchor(b, event->data.scalar.anchor, node, mark);
    return rc != 0 ? rc : attach(b, node, mark);
}

static int on_start(struct builder *b, enum config_kind kind, const yaml_char_t *anchor,
                    const yaml_char_t *tag, const yaml_mark_t *mark)
{
    if (tag != NULL) return fail_at(b, mark, "tags (!) are not supported", "");
    if (wants_key(b)) return fail_at(b, mark, "a key must be plain text", "");
    if (b->depth == CONFIG_DEPTH_MAX - 1) return fail_at(b, mark, "nested too deeply", "");
    struct config_node *node = new_node(b, kind, mark);
    if (node == NULL) return no_memory(b);
    int rc = on_anchor(b, anchor, node, mark);
    if (rc == 0) rc = attach(b, node, mark);
    if (rc != 0) return rc;
    b->keys[b->depth] = (struct key){0};
    b->stack[b->depth++] = node;
    return 0;
}

static int on_event(struct builder *b, const yaml_event_t *event)
{
    const yaml_mark_t *mark = &event->start_mark;
    switch (event->type) {
    case YAML_SCALAR_EVENT: return on_scalar(b, event);
    case YAML_ALIAS_EVENT: return on_alias(b, (const char *)event->data.alias.anchor, mark);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, CONFIG_MAP, event->data.mapping_start.anchor,
                        event->data.mapping_start.tag, mark);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, CONFIG_LIST, event->data.sequence_start.anchor,
                        event->data.sequence_start.tag, mark);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        ASSERT(b->depth > 0);
        b->depth--;
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        return b->root == NULL ? 0 : fail_at(b, mark, "a second document", "");
    default: return 0;
    }
}

/* The parser's own words about what is no YAML. */
static int fail_by_parser(struct builder *b, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR) return no_memory(b);
    char words[256];
    const char *problem = parser->problem == NULL ? "unknown mistake" : parser->problem;
    if (parser->context == NULL) {
        snprintf(words, sizeof words, "%s", problem);
    } else {
        snprintf(words, sizeof words, "%s, %s from line %zu", problem, parser->context,
                 parser->context_mark.line + 1);
    }
    return fail_at(b, &parser->problem_mark, "not valid YAML: ", words);
}

static int build_by_events(struct builder *b, yaml_parser_t *parser)
{
    for (;;) {
        yaml_event_t event;
        if (yaml_parser_parse(parser, &event) == 0) return fail_by_parser(b, parser);
        const bool ended = event.type == YAML_STREAM_END_EVENT;
        const int rc = on_event(b, &event);
        yaml_event_delete(&event);
        if (rc != 0 || ended) return rc;
    }
}

/* Bytes that are no UTF-8 and control characters, of which the parser does not say the place. */
static int check_text(struct builder *b, const char *text, size_t count)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < count;) {
        const unsigned char c = (unsigned char)text[i];
        const size_t length = str_utf8_length(text + i, count - i);
        if (length == 0) return fail_at(b, &mark, "a byte that is no UTF-8 text", "");
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
            return fail_at(b, &mark, "a control character", "");
        }
        i += length;
        mark.column = c == '\n' ? 0 : mark.column + 1;
        mark.line += c == '\n';
    }
    return 0;
}

/* Builds the tree of text under b->root. */
static int build(struct builder *b, const char *text)
{
    const size_t count = strlen(text);
    if (count > CONFIG_BYTES_MAX) {
        return err_set(b->err, SHOAL_ECONFIG, "%s: %zu bytes, at most %u", b->config->name, count,
                       CONFIG_BYTES_MAX);
    }
    int rc = check_text(b, text, count);
    if (rc != 0) return rc;
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) return no_memory(b);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, count);
    rc = build_by_events(b, &parser);
    yaml_parser_delete(&parser);
    mem_free(b->anchors);
    b->anchors = NULL;
    return rc;
}

int config_parse(const char *name, const char *text, struct config **config_out, struct err *err)
{
    struct config *config = mem_alloc(MEM_CONFIG, sizeof *config);
    if (config == NULL) return err_set(err, SHOAL_ENOMEM, "%s: no memory for the job file", name);
    struct builder builder = {.config = config, .err = err};
    config->name = "job file";
    const char *copy = config_copy_text(config, name, strlen(name));
    int rc = copy == NULL ? no_memory(&builder) : 0;
    if (rc == 0) {
        config->name = copy;
        rc = build(&builder, text);
    }
    if (rc == 0 && (builder.root == NULL || config_is_null(builder.root))) {
        builder.root = new_node(&builder, CONFIG_MAP, NULL);
        if (builder.root == NULL) rc = no_memory(&builder);
    }
    if (rc == 0 && builder.root->kind != CONFIG_MAP) {
        rc = config_error(builder.root, err, "a job file is a map of settings (key: value)");
    }
    if (rc != 0) {
        config_destroy(config);
        return rc;
    }
    config->root = builder.root;
    *config_out = config;
    return 0;
}

/* base stands below io, so a job file has its own few lines of reading. */
static int read_text(const char *path, char **text_out, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set_errno(err, errno, "open job file %s", path);
    void *text = NULL;
    size_t capacity = 0;
    size_t count = 0;
    int rc = 0;
    for (;;) {
        if (mem_grow(MEM_CONFIG, &text, &capacity, count + 4096, 1) != 0) {
            rc = err_set(err, SHOAL_ENOMEM, "%s: no memory for the job file", path);
            break;
        }
        const ssize_t got = read(fd, (char *)text + count, capacity - count - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = err_set_errno(err, errno, "read job file %s", path);
        if (got <= 0) break;
        count += (size_t)got;
        if (count > CONFIG_BYTES_MAX || memchr(text, '\0', count) != NULL) {
            rc = err_set(err, SHOAL_ECONFIG, "%s: not a job file: %s", path,
                         count > CONFIG_BYTES_MAX ? "too large" : "it has NUL bytes");
            break;
        }
    }
    close(fd);
    if (rc != 0) {
        mem_free(text);
        return rc;
    }
    ((char *)text)[count] = '\0';
    *text_out = text;
    return 0;
}

int config_load(const char *path, struct config **config_out, struct err *err)
{
    char *text = NULL;
    int rc = read_text(path, &text, err);
    if (rc == 0) rc = config_parse(path, text, config_out, err);
    mem_free(text);
    return rc;
}

void config_destroy(struct config *config)
{
    if (config == NULL) return;
    struct config_block *next = NULL;
    for (struct config_block *block = config->blocks; block != NULL; block = next) {
        next = block->next;
        mem_free(block);
    }
    mem_free(config);
}

/* The child of parent that a word of a path names; NULL when it is not there. */
static struct config_node **find_slot(struct config_node *parent, const char *word)
{
    char *end = NULL;
    const unsigned long index = strtoul(word, &end, 10);
    for (size_t i = 0; i < parent->count; i++) {
        struct config_node **slot = &parent->children[i];
        if (parent->kind == CONFIG_MAP && strcmp((*slot)->key, word) == 0) return slot;
        if (parent->kind == CONFIG_LIST && *end == '\0' && index == i) return slot;
    }
    return NULL;
}

/* Puts a node under parent by a word of a path, in the place of what is there. */
static int put(struct builder *b, struct config_node *parent, const char *word,
               struct config_node *node)
{
    struct config_node **slot = find_slot(parent, word);
    if (parent->kind == CONFIG_MAP) node->key = word;
    if (slot != NULL) {
        node->parent = parent;
        *slot = node;
        return 0;
    }
    char *end = NULL;
    if (parent->kind == CONFIG_LIST &&
        (strtoul(word, &end, 10) != parent->count || *end != '\0' || end == word)) {
        char detail[128];
        snprintf(detail, sizeof detail, "\"%.40s\": the list has elements 0 to %zu", word,
                 parent->count);
        return fail_at(b, NULL, "no place ", detail);
    }
    return add_child(b->config, parent, node) ? 0 : no_memory(b);
}

/* Walks the words of path (which is cut at its dots) down to the last, making maps, and puts the
 * value there. */
static int put_by_path(struct builder *b, char *path, struct config_node *value)
{
    struct config_node *parent = b->config->root;
    char *word = path;
    for (char *dot = strchr(word, '.'); dot != NULL; dot = strchr(word, '.')) {
        *dot = '\0';
        struct config_node **slot = find_slot(parent, word);
        struct config_node *child = slot == NULL || config_is_null(*slot) ? NULL : *slot;
        if (child == NULL) {
            child = new_node(b, CONFIG_MAP, NULL);
            const int rc = child == NULL ? no_memory(b) : put(b, parent, word, child);
            if (rc != 0) return rc;
        }
        if (child->kind == CONFIG_SCALAR) {
            return fail_at(b, NULL, "a single value, not a map: ", word);
        }
        parent = child;
        word = dot + 1;
    }
    return put(b, parent, word, value);
}

int config_set(struct config *config, const char *assignment, struct err *err)
{
    const char *equals = strchr(assignment, '=');
    const size_t path_count = equals == NULL ? 0 : (size_t)(equals - assignment);
    if (path_count == 0 || assignment[0] == '.' || equals[-1] == '.' ||
        memmem(assignment, path_count, "..", 2) != NULL) {
        return err_set(err, SHOAL_ECONFIG, "--set %.200s: path.to.key=value is wanted", assignment);
    }
    struct builder builder = {.config = config, .err = err};
    char *words = config_copy_text(config, assignment, path_count);
    const char *set_path = config_copy_text(config, assignment, path_count);
    if (words == NULL || set_path == NULL) return no_memory(&builder);
    builder.set_path = set_path;
    /* There are no anchors here, so "*.gz" can only be meant as it is; and "-" alone is standard
     * input, not a list of one empty item. */
    int rc = 0;
    if (equals[1] == '*' || strcmp(equals + 1, "-") == 0) {
        builder.root = new_node(&builder, CONFIG_SCALAR, NULL);
        const char *text = config_copy_text(config, equals + 1, strlen(equals + 1));
        if (builder.root == NULL || text == NULL) return no_memory(&builder);
        builder.root->text = text;
    } else {
        rc = build(&builder, equals + 1);
    }
    if (rc == 0 && builder.root == NULL) {
        builder.root = new_node(&builder, CONFIG_SCALAR, NULL);
        if (builder.root == NULL) return no_memory(&builder);
    }
    return rc != 0 ? rc : put_by_path(&builder, words, builder.root);
}
