/* checkpoint saves the state of training under a model directory and finds it again:
 *
 *     model_dir/ckpt-1000/manifest.json             what, step, config, data position, tables, files
 *                         part-0-0.safetensors      shards, as many to a file as fit 256 MiB
 *                         part-0-1.safetensors      part-WRITER-NUMBER
 *     model_dir/.tmp-...                            being written or removed; never read
 *
 * Tensor names are <table> (user_id/embedding, hidden/0/weight), <table>/<slot> for slots and the
 * moving average, and for a dynamic table named X/embedding the keys X/keys (I64, ascending as
 * signed), with X/embedding/steps and X/embedding/counts (U32) where the store keeps them. Of a table
 * with S > 1 shards, shard s has the tensors NAME.s-of-S: dense a range of elements, fixed the rows
 * s, s + S, ..., dynamic its own keys. The bytes are the same for the same training state: no times,
 * no host names.
 *
 * (1) A folder named ckpt-N is whole: files are written to .tmp-ckpt-N, fsynced, and the folder is
 *     renamed when all is there. What went wrong on the way leaves what was saved before untouched.
 * (2) Every byte counts: the manifest has size and CRC32C of each file and ends in its own. A load
 *     checks them all first; damage is SHOAL_ECORRUPT, names the file, and the newest older
 *     checkpoint that is whole is offered.
 * (3) Saving is two steps, so that several processes can save one model: each writes the files of
 *     the shards it owns and hands over a description (`part`), one commits all parts as a manifest.
 *
 * Paths go through io/file.h. One thread at a time; the folder is guarded by the caller's io_lock. */
#ifndef SHOAL_TRAIN_CHECKPOINT_H
#define SHOAL_TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "store/store.h"

/* ---- Saving ------------------------------------------------------------------------------------ */

struct checkpoint_save {
    const char *model_dir; /* made if it is not there */
    uint64_t step;
    const char *config;   /* the job as JSON; NULL: {} */
    const char *position; /* of the data, as JSON; NULL: {} */
    uint32_t keep;        /* of the checkpoints there, the last so many; 0: all */
};

/* Saves the whole store as it is now: all of the steps below. On any error (SHOAL_ESPACE: the disk is
 * full; SHOAL_EACCES) the temporary folder is gone again and older checkpoints are as they were. A
 * checkpoint of the same step is replaced. */
int checkpoint_save(const struct checkpoint_save *save, struct store *store, struct err *err);

/* By several processes: one begins, each writes, one commits (or aborts). */
int checkpoint_begin(const char *model_dir, uint64_t step, struct err *err);
void checkpoint_abort(const char *model_dir, uint64_t step);

struct checkpoint_writer;

struct checkpoint_writer_opts {
    const char *model_dir;
    uint64_t step;
    uint32_t writer; /* number of this process among the writers: part of the file names */
    struct store *store;
    bool (*owns)(void *ctx, uint32_t table, uint32_t shard); /* NULL: all shards */
    void *ctx;
};

/* Marks a cut of the store (store_cut_begin); training may go on while it is written. */
int checkpoint_writer_open(const struct checkpoint_writer_opts *opts,
                           struct checkpoint_writer **writer_out, struct err *err);

/* Writes about bytes_max bytes more. *done_out: all is written. */
int checkpoint_writer_step(struct checkpoint_writer *writer, uint64_t bytes_max, bool *done_out,
                           struct err *err);

/* After done: adds the part, a JSON object that describes files and shards. */
int checkpoint_writer_finish(struct checkpoint_writer *writer, struct str *part, struct err *err);
void checkpoint_writer_destroy(struct checkpoint_writer *writer); /* NULL is a no-op. */

/* Checks that the parts together have every shard of every table once, writes the manifest, makes
 * the checkpoint visible and removes those beyond `keep`. */
int checkpoint_commit(const struct checkpoint_save *save, const char *const *parts,
                      uint32_t parts_count, struct err *err);

/* ---- Finding ----------------------------------------------------------------------------------- */

/* At the start, before anything is read: removes what a killed process left half written, and puts
 * back a checkpoint that was being replaced. */
int checkpoint_clean(const char *model_dir, struct err *err);

struct checkpoint_list {
    uint64_t *steps; /* ascending */
    size_t count;
};

/* By name only: none of them is opened. A model_dir that does not exist has none. */
int checkpoint_list(const char *model_dir, struct checkpoint_list *list_out, struct err *err);
void checkpoint_list_fini(struct checkpoint_list *list);

/* The folder of a step. Caller owns *path_out (mem_free). */
int checkpoint_path(const char *model_dir, uint64_t step, char **path_out, struct err *err);

/* PATH as a user gives it: a checkpoint folder, or a model_dir, whose newest checkpoint is meant.
 * SHOAL_ENOENT when there is none. Caller owns *path_out. */
int checkpoint_resolve(const char *path, char **path_out, struct err *err);

/* ---- Reading ----------------------------------------------------------------------------------- */

struct checkpoint_file {
    char *name;
    uint64_t bytes;
    uint32_t crc32c;
};

struct checkpoint_shard {
    struct store_shard state;
    uint32_t file; /* where its tensors are */
};

struct checkpoint_table {
    char *name;
    enum store_kind kind;
    uint64_t rows; /* dynamic: those made */
    uint32_t cols;
    uint32_t shards_count;
    uint32_t parts_count;
    char *parts[STORE_PARTS_MAX]; /* "" is the value, then slots */
    char *optimizer;
    double average_decay;
    bool has_steps;
    bool has_counts;
    struct checkpoint_shard *shards;
};

struct checkpoint { /* read only */
    char *folder;
    uint64_t step;
    char *config;   /* JSON as it was given */
    char *position; /* JSON as it was given */
    struct checkpoint_table *tables;
    uint32_t tables_count;
    struct checkpoint_file *files;
    uint32_t files_count;
    uint64_t bytes; /* of all files and the manifest */
};

/* Reads the manifest of a checkpoint folder and checks it whole; the files are not looked at. */
int checkpoint_open(const char *folder, struct checkpoint **checkpoint_out, struct err *err);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is a no-op. */

/* From the bytes of a manifest: for tests and fuzzing. folder is what messages say. */
int checkpoint_parse(const char *folder, const char *manifest, size_t bytes,
                     struct checkpoint **checkpoint_out, struct err *err);

/* Every byte of every file against the manifest. */
int checkpoint_verify(const struct checkpoint *checkpoint, struct err *err);

/* Do the tables of the store fit: names, kinds, shapes, optimizers with their slots? If not,
 * SHOAL_EMISMATCH, and `difference` (may be NULL) gets one line per difference; the message has the
 * first ones. */
int checkpoint_compare(const struct checkpoint *checkpoint, const struct store *store,
                       struct str *difference, struct err *err);

/* Opens, compares, verifies and loads a checkpoint into a store whose tables have been made. On
 * success the caller owns *checkpoint_out. After SHOAL_ECORRUPT the message offers the newest older
 * checkpoint that is whole, with the command to go on from it. */
int checkpoint_restore(const char *folder, struct store *store, struct checkpoint **checkpoint_out,
                       struct err *err);

/* train.init_from: sets what the file has: values, and slots where they are given too. PATH is a
 * safetensors file with whole tensors by the names above, or a checkpoint or model_dir. Tensors that
 * the model does not have are passed over and tensors that are not given keep their initial values;
 * both are listed in the report (may be NULL). A shape or type that does not fit, or no tensor that
 * fits at all: SHOAL_EMISMATCH. */
struct checkpoint_init_report {
    uint32_t loaded;    /* tensors */
    struct str unknown; /* names in the file that the model has not, ", " between */
    struct str missing; /* values of the model that the file has not */
};
void checkpoint_init_report_fini(struct checkpoint_init_report *report);
int checkpoint_init_from(const char *path, struct store *store,
                         struct checkpoint_init_report *report, struct err *err);

/* Writes a checkpoint as one file, every tensor whole under its name, however many shards it was
 * saved in. Verifies first. */
int checkpoint_export(const char *folder, const char *path, struct err *err);

#endif
