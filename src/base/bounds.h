/* Every bound in one place: what it limits and why that number. Reaching a bound is a normal event:
 * an error that names the bound, or a counter; never a crash. */
#ifndef SHOAL_BASE_BOUNDS_H
#define SHOAL_BASE_BOUNDS_H

/* Threads of one process. More cores than this on one host is not a machine we have seen. */
#define TEAM_THREADS_MAX 256u

/* A job file. Real ones have a few KiB; a vocabulary inline may have a few MiB. */
#define CONFIG_BYTES_MAX (16u << 20)
/* Nodes of a job file, copies made by aliases counted: stops the "billion laughs". */
#define CONFIG_NODES_MAX (1u << 20)
/* Nesting of a job file: recursion over the tree is as deep. Ours need six. */
#define CONFIG_DEPTH_MAX 32u

/* Keys of one map: a job with this many features is not a job for one file. */
#define CONFIG_KEYS_MAX 16384u

/* A path that a user gives: Linux's PATH_MAX. */
#define IO_PATH_MAX 4096u

/* What a reader may ask to see at once: the longest record or line. */
#define STREAM_PEEK_MAX ((size_t)1 << 30)
/* Bytes a stream reads or inflates at a time: fits the second-level cache. */
#define STREAM_CHUNK_BYTES ((size_t)256 << 10)

/* The JSON header of a safetensors file; the format's own reader has the same limit. */
#define SAFETENSORS_HEADER_MAX 100000000u
/* Tensors in one file: a model has hundreds. */
#define SAFETENSORS_TENSORS_MAX 1000000u

/* Tables of one store. Models have tens; a table per feature of a wide log, hundreds. */
#define STORE_TABLES_MAX 4096u

/* Width of an embedding row, so that a row with its slots stays far below a shard. */
#define STORE_COLS_MAX 65536u

/* Elements of one dense tensor or rows of one fixed table: what 40 bits of address count. */
#define STORE_ELEMENTS_MAX ((uint64_t)1 << 38)

/* Shards of one table: enough to spread one table over hundreds of servers. */
#define STORE_SHARDS_MAX 1024u

/* Values of a dense shard, and of the largest fixed table that stays one shard. Large enough that a
 * layer of a common model is one block for LAMB, small enough to balance servers. */
#define STORE_SHARD_BYTES ((uint64_t)4 << 20)

/* Keys of one pull or push: 16 Mi keys of 16 floats are 1 GiB. */
#define STORE_KEYS_MAX (1u << 24)

/* Pieces of a piecewise learning rate. */
#define STORE_BOUNDARIES_MAX 32u

/* Arrays of a table's shape: value, at most two slots, moving average. */
#define STORE_PARTS_MAX 4u

/* Streams of work (leases in progress, workers) that a shard remembers. Done leases are retired. */
#define STORE_STREAMS_MAX 65536u

/* Examples whose predictions are held for the exact AUC: 8 bytes each, twice that while sorting, so
 * at most 320 MB. Beyond it a histogram takes over and the result is said to be approximate. */
#define METRICS_EXACT_MAX 20000000u

/* Examples held with their group for GAUC and NDCG: 16 bytes each, twice that while sorting. Beyond
 * it only a sample of the groups is held. */
#define METRICS_GROUPED_MAX 8000000u

/* Largest k of NDCG@k: longer lists are not looked at by anyone. */
#define METRICS_NDCG_K_MAX 1000u

/* Largest weight of an example: 2^31 examples of it still fit the 63 bits before the point of the
 * sums by threshold. */
#define METRICS_WEIGHT_MAX 4294967296.0f

#endif
