/* checkpoint_manifest turns a struct checkpoint into the text of manifest.json and back. No files
 * are touched here. The text has one line per table and per file, for people and for diff, and ends
 * in the CRC32C of all before it, in one fixed form:
 *
 *     {
 *     "format": "shoal-checkpoint",
 *     "version": 1,
 *     "step": 1000,
 *     "config": {...},
 *     "position": {...},
 *     "tables": [
 *     {"name": "user_id/embedding", "kind": "fixed", ..., "states": [{"shard": 0, ...}]}
 *     ],
 *     "files": [
 *     {"name": "part-0-0.safetensors", "bytes": 1290384, "crc32c": "0f1e2d3c"}
 *     ],
 *     "crc32c": "89abcdef"}
 *
 * A part, what one writer hands to the one who commits, is the same without the first five lines and
 * the last: tables with the states of the writer's own shards, and its files. */
#ifndef SHOAL_TRAIN_CHECKPOINT_MANIFEST_H
#define SHOAL_TRAIN_CHECKPOINT_MANIFEST_H

#include "train/checkpoint.h"

#define CHECKPOINT_MANIFEST "manifest.json"

/* A shard's file when no part has described it yet. */
#define CHECKPOINT_NO_FILE UINT32_MAX

const char *checkpoint_kind_name(enum store_kind kind); /* "dense", "fixed", "dynamic" */

/* The table's tensor for a part ("" is the value): "user_id/embedding/adagrad". "keys" of
 * X/embedding is X/keys. With shards > 1 ".3-of-16" follows. Replaces what is in name. */
void checkpoint_tensor_name(struct str *name, const char *table, const char *part, uint32_t shard,
                            uint32_t shards);

/* Rows of a shard of a fixed table. */
uint64_t checkpoint_fixed_rows(uint64_t rows, uint32_t shard, uint32_t shards);

/* The tables of a store, without any shard's state. */
int checkpoint_describe(const struct store *store, struct checkpoint *checkpoint, struct err *err);

/* Copies a shard's state, streams too. */
int checkpoint_shard_copy(struct checkpoint_shard *into, const struct store_shard *state,
                          uint32_t file, struct err *err);

void checkpoint_fini(struct checkpoint *checkpoint); /* frees what it points to */

void checkpoint_part_write(const struct checkpoint *checkpoint, struct str *part);

/* Adds what a part describes. SHOAL_EPROTO when it does not fit what is there. */
int checkpoint_part_merge(struct checkpoint *into, const char *part, struct err *err);

/* 0 when every shard of every table is described. */
int checkpoint_complete(const struct checkpoint *checkpoint, struct err *err);

/* checkpoint has step, config and position too. */
void checkpoint_manifest_write(const struct checkpoint *checkpoint, struct str *manifest);

/* Adds the last line, with the checksum of all before it. */
void checkpoint_manifest_seal(struct str *manifest);

#endif
