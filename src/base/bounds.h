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

/* Anchors of one job file: a hundred would be odd. */
#define CONFIG_ANCHORS_MAX 1024u
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

/* Rows of a fixed table from which it lies in huge pages, touched or not. */
#define STORE_HUGE_ROWS_MIN (2u << 20)

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
/* Job files: checkpoints kept, batches added up before an update, tasks of one kind. Far beyond any
 * use; they catch a slip of the finger. */
#define JOB_KEEP_MAX 1000000u
#define JOB_ACCUMULATE_MAX 65536u
#define JOB_TASKS_MAX 4096u

/* Features of a job and columns they read. Criteo has 40, the widest jobs we know a few hundred. */
#define DATA_FEATURES_MAX 1024u
#define DATA_NAME_MAX 128         /* bytes of a feature's name */
#define DATA_WIDTH_MAX (1u << 20) /* floats of one numeric feature: an image of 1024 x 1024 */
#define DATA_EMBED_MAX 4096u      /* floats of one embedding row */
#define DATA_BUCKETS_MAX STORE_ELEMENTS_MAX /* rows of a fixed table */
#define DATA_BOUNDARIES_MAX 65536u
#define DATA_VOCABULARY_MAX (1u << 26) /* words; indices stay in 32 bits with room to spare */
#define DATA_VOCABULARY_BYTES_MAX ((size_t)4 << 30)
#define DATA_CROSS_MAX 8u           /* sides of a cross */
#define DATA_VALUES_MAX (1u << 20)  /* values of one feature in one row */
#define DATA_CROSSED_MAX (1u << 16) /* values a cross makes of one row: a product grows fast */

/* Records. A payload longer than this is damage, not data. */
#define DATA_RECORD_BYTES_MAX ((size_t)64 << 20)
#define DATA_LINE_BYTES_MAX ((size_t)1 << 20) /* of text: a quote left open must not eat the file */
#define DATA_COLUMNS_MAX 16384u               /* of a csv record */
#define DATA_DIRECT_ROWS_MAX                                                                       \
    (1u << 18)                    /* tables up to this are deduplicated through an array of 1 MiB */
#define DATA_BATCH_MAX (1u << 20) /* rows of a batch */
#define DATA_SHUFFLE_MAX (1u << 28) /* records of a window */
#define DATA_INTERLEAVE_MAX 64u     /* files open at once */
#define DATA_FILES_MAX (1u << 20)
#define DATA_REPORTS_MAX 5u /* broken records described one by one; the rest is counted */
#define DATA_REPORTS_MAX 5u /* broken records described one by one; the rest is counted */
/* Examples that a plan reads to learn about the data: about a second. */
#define PLAN_EXAMPLES_MAX 1000000u

/* A checkpoint: its manifest (a line of 200 bytes per table, as many per shard), its files, what one
 * file holds before the next is begun (a good size to copy and to verify), names in it. */
#define CHECKPOINT_MANIFEST_BYTES_MAX ((size_t)256 << 20)
#define CHECKPOINT_FILES_MAX 1000000u
#define CHECKPOINT_FILE_BYTES ((uint64_t)256 << 20)
#define CHECKPOINT_NAME_MAX 1024u

/* Bytes of a tag in an event file: names of curves are short. */
#define EVENTS_TAG_MAX 512u
/* A graph. Nodes: a model of a thousand features with its gradient has some ten thousand. Inputs of
 * one node: a concat of all features. Columns: a parameter's width, a concat's. Elements of one
 * parameter: what a 32-bit count of floats holds. Names as long as a tensor's path may be. */
#define GRAPH_NODES_MAX (1u << 18)
#define GRAPH_INPUTS_MAX (1u << 14)
#define GRAPH_COLS_MAX (1u << 20)
#define GRAPH_FIXED_ROWS_MAX (1u << 24)
#define GRAPH_PARAM_ELEMENTS_MAX (1u << 30)
#define GRAPH_FEATURES_MAX (1u << 14)
#define GRAPH_NAME_BYTES_MAX 255u
#define GRAPH_DEVICES_MAX 1024u
#define DATA_GEN_HISTORY_MAX 1024u /* items in a generated history: rows are made on the stack */
#define DATA_STAT_VALUES_MAX                                                                       \
    (1u << 20)              /* distinct values of a feature that data stat tells apart */
#define DATA_REPORTS_MAX 5u /* broken records described one by one; the rest is counted */

/* Net. A frame is a fixed header, a small meta part and a body of bulk bytes. The meta part holds what
 * describes the body; the body of the largest pull (see STORE_KEYS_MAX) is 1 GiB. */
#define NET_META_BYTES_MAX (1u << 20)
#define NET_BODY_BYTES_MAX ((uint64_t)4 << 30)
/* All that one who has not been accepted yet may send at once: the longest hello has half of it. */
#define NET_HELLO_BYTES_MAX 1024u
/* Bytes that wait to be sent to one peer before it counts as full; one frame may be longer. */
#define NET_QUEUE_BYTES_MAX ((uint64_t)64 << 20)
/* Parts of one body: as many as one pull has tables and shards, with room to spare. */
#define NET_PARTS_MAX (1u << 20)
/* Tasks that one task knows, and bytes of a task's name ("worker/17"). */
#define NET_PEERS_MAX 4096u
#define NET_NAME_MAX 64u
/* Connections that have not said who they are, in all and from one address. Those who are honest
 * say so within a round trip, so these are hardly ever used; beyond them the most silent is closed. */
#define NET_STRANGERS_MAX 128u
#define NET_STRANGERS_PER_ADDRESS_MAX 96u
/* Tools (`shoal ctl`, `shoal top`) connected to one task at a time. */
#define NET_GUESTS_MAX 64u
/* Shared memory of one direction: stays in the second-level cache, and lasts longer than a wake-up. */
#define NET_RING_BYTES_DEFAULT ((uint64_t)1 << 20)
#define NET_RING_BYTES_MIN ((uint64_t)4 << 10)
#define NET_RING_BYTES_MAX ((uint64_t)1 << 30)
/* The longest that a loop looks for work before it sleeps, and only where cores are not short. */
#define NET_SPIN_NS_MAX 20000u

/* Cluster. Leases in progress: one a worker and those of the dead. Waits that a task can name. Journal
 * records: the longest holds the progress of every lease. */
#define CHIEF_LEASES_MAX 8192u
#define CHIEF_RECORD_WORDS_MAX (3u * CHIEF_LEASES_MAX + 64u)
/* Blocks of one message: a table each. */
#define MSG_BLOCKS_MAX STORE_TABLES_MAX
/* Staleness of a push is counted by value up to this; beyond it, together. */
#define PS_STALENESS_MAX 32u

#endif
