/* config is a job file: a tree of YAML nodes that know their line and column, so that every mistake
 * is reported as FILE:LINE:COLUMN: what was found, what is allowed, the nearest spelling:
 *     job.yaml:12:8: data.batch_size: found "abc"; a whole number from 1 to 1048576 is wanted
 * `--set a.b=value` edits the tree before it is read; such nodes report as `--set a.b`.
 * (1) Keys of a map are unique texts. (2) A null value (`key:`, `~`) counts as an absent key.
 * (3) Aliases are copied where they stand; tags and several documents are refused. (4) Depth, nodes
 * and bytes are bounded (bounds.h). Read only once loaded; not tied to a thread. */
#ifndef SHOAL_BASE_CONFIG_H
#define SHOAL_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct config;
struct config_node;

enum config_kind { CONFIG_SCALAR, CONFIG_LIST, CONFIG_MAP };

/* Reads a YAML file / text whose root is a map (an empty text is an empty map). Errors are
 * SHOAL_ECONFIG, SHOAL_ENOMEM, or SHOAL_ENOENT/EACCES/EIO of the file. name stands before errors.
 */
int config_load(const char *path, struct config **config_out, struct err *err);
int config_parse(const char *name, const char *text, struct config **config_out, struct err *err);
void config_destroy(struct config *config); /* NULL is a no-op. */

/* assignment is "path.to.key=YAML value"; makes maps on the way where they are missing. A list
 * element is named by its number (its count: one more). A mistake leaves the tree as it was. */
int config_set(struct config *config, const char *assignment, struct err *err);

const struct config_node *config_root(const struct config *config);
enum config_kind config_kind(const struct config_node *node);

/* NULL when map is NULL or no map, or has no such key, or its value is null. */
const struct config_node *config_get(const struct config_node *map, const char *key);
size_t config_count(const struct config_node *node); /* of a list or map; 0 for NULL */
const struct config_node *config_at(const struct config_node *node, size_t index);
const char *config_key_at(const struct config_node *map, size_t index);
const char *config_scalar(const struct config_node *node); /* text of a scalar, else NULL */
bool config_is_quoted(const struct config_node *node);     /* "18" rather than 18 */

/* SHOAL_ECONFIG with "FILE:LINE:COLUMN: path.to.node: " before the message; the node may be a map
 * whose key is missing (it is then reported where its own key stands). NULL: the message alone. */
int config_error(const struct config_node *node, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The node must be a map with no key outside the list (the nearest spelling is suggested). NULL is
 * fine: an absent map. */
int config_check_keys(const struct config_node *map, const char *const *allowed, size_t count,
                      struct err *err);

/* Typed reads of map[key]. Absent: *out is left as it is (the caller's default) and 0 is returned.
 * A wrong type or a value outside [min, max] is an error that names what is allowed. `1e-4`,
 * `10_000` and `1000.0` for integers of whole value are accepted. */
int config_read_u64(const struct config_node *map, const char *key, uint64_t min, uint64_t max,
                    uint64_t *out, struct err *err);
int config_read_u32(const struct config_node *map, const char *key, uint32_t min, uint32_t max,
                    uint32_t *out, struct err *err);
int config_read_f64(const struct config_node *map, const char *key, double min, double max,
                    double *out, struct err *err);
int config_read_bool(const struct config_node *map, const char *key, bool *out, struct err *err);
/* Borrowed from the config. */
int config_read_string(const struct config_node *map, const char *key, const char **out,
                       struct err *err);
/* One of choices; *out is its index. */
int config_read_choice(const struct config_node *map, const char *key, const char *const *choices,
                       size_t count, uint32_t *out, struct err *err);
/* A list of numbers (a single number counts as a list of one). Caller owns *out (mem_free). Absent:
 * both outputs are left as they are. */
int config_read_f64_list(const struct config_node *map, const char *key, double min, double max,
                         double **out, size_t *count_out, struct err *err);

int config_read_u32_list(const struct config_node *map, const char *key, uint32_t min, uint32_t max,
                         uint32_t **out, size_t *count_out, struct err *err);

/* The whole tree as canonical JSON (keys in file order), for manifests. Caller owns (mem_free). */
int config_to_json(const struct config_node *node, char **json_out, struct err *err);

#endif
