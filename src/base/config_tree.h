/* The tree behind base/config.h: config_yaml.c makes it, config.c reads it. */
#ifndef SHOAL_BASE_CONFIG_TREE_H
#define SHOAL_BASE_CONFIG_TREE_H

#include "base/config.h"

struct config_node {
    enum config_kind kind;
    bool is_quoted;
    uint32_t line, column;         /* from 1; of the value's first character */
    uint32_t key_line, key_column; /* 0 when it has no key */
    const struct config *config;
    const struct config_node *parent; /* NULL: the root */
    const char *key;                  /* in a map, else NULL */
    const char *text;                 /* of a scalar; never NULL for one */
    const char *set_path;             /* given by --set: the path it names; else NULL */
    struct config_node **children;    /* of a map or list */
    size_t count;
    size_t capacity;
};

/* All memory of a config lives in its blocks and is freed in one stroke. */
struct config_block {
    struct config_block *next;
    size_t used, bytes;
    _Alignas(16) uint8_t memory[];
};

struct config {
    const char *name;
    struct config_node *root;
    size_t nodes_count;
    struct config_block *blocks;
};

/* Zeroed; NULL when out of memory. Lives as long as the config. */
void *config_alloc(struct config *config, size_t bytes);
/* count bytes and a NUL. */
char *config_copy_text(struct config *config, const char *text, size_t count);

/* A plain (not quoted) empty text, ~ or null. */
bool config_is_null(const struct config_node *node);

#endif
