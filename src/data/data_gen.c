#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/mem.h"
#include "data/data_gen_kinds.h"
#include "io/file.h"

/* Rows are made in chunks of CHUNK_ROWS, a round of chunks at a time by the team, and written in
 * order. A compressed chunk is a gzip member or a zstd frame of its own, so that the bytes do not
 * depend on who made them. */
enum { CHUNK_ROWS = 2048, ROUND_CHUNKS = 64 };

struct chunk {
    struct data_gen_buffer plain;
    struct data_gen_buffer packed;
    uint64_t row_first;
    uint32_t rows;
    bool failed;
};

struct generator {
    struct data_gen_opts opts;
    const struct data_gen_kind_ops *kind;
    void *rows; /* the kind's generator */
    struct chunk *chunks;
    bool eval;                    /* the part being written */
    struct data_gen_truth *truth; /* of the eval rows */
    uint64_t bytes;
};

static const struct data_gen_kind_ops *const kinds[DATA_GEN_KIND_COUNT] = {
    [DATA_GEN_DIN] = &data_gen_din_ops,
    [DATA_GEN_SLICES] = &data_gen_slices_ops,
    [DATA_GEN_CRITEO] = &data_gen_criteo_ops,
    [DATA_GEN_LINEAR] = &data_gen_linear_ops,
};

const char *data_gen_kind_name(enum data_gen_kind kind)
{
    ASSERT((unsigned)kind < DATA_GEN_KIND_COUNT);
    return kinds[kind]->name;
}

uint8_t *data_gen_room(struct data_gen_buffer *buffer, size_t count)
{
    if (mem_grow(MEM_DATA, (void **)&buffer->bytes, &buffer->capacity, buffer->used + count, 1) !=
        0) {
        buffer->failed = true;
        return NULL;
    }
    uint8_t *at = buffer->bytes + buffer->used;
    buffer->used += count;
    return at;
}

static bool pack_gzip(struct chunk *chunk)
{
    struct isal_zstream stream;
    struct data_gen_buffer level = {0};
    const size_t bound = chunk->plain.used + chunk->plain.used / 1000 + 4096;
    chunk->packed.used = 0;
    uint8_t *out = data_gen_room(&chunk->packed, bound);
    uint8_t *level_bytes = data_gen_room(&level, ISAL_DEF_LVL1_DEFAULT);
    bool ok = out != NULL && level_bytes != NULL;
    if (ok) {
        isal_deflate_stateless_init(&stream);
        stream.next_in = chunk->plain.bytes;
        stream.avail_in = (uint32_t)chunk->plain.used;
        stream.next_out = out;
        stream.avail_out = (uint32_t)bound;
        stream.end_of_stream = 1;
        stream.flush = NO_FLUSH;
        stream.gzip_flag = IGZIP_GZIP;
        stream.level = 1;
        stream.level_buf = level_bytes;
        stream.level_buf_size = ISAL_DEF_LVL1_DEFAULT;
        ok = isal_deflate_stateless(&stream) == COMP_OK && stream.avail_in == 0;
        chunk->packed.used = ok ? stream.total_out : 0;
    }
    mem_free(level.bytes);
    return ok;
}

static bool pack_zstd(struct chunk *chunk)
{
    const size_t bound = ZSTD_compressBound(chunk->plain.used);
    chunk->packed.used = 0;
    uint8_t *out = data_gen_room(&chunk->packed, bound);
    if (out == NULL) return false;
    const size_t got = ZSTD_compress(out, bound, chunk->plain.bytes, chunk->plain.used, 3);
    if (ZSTD_isError(got)) return false;
    chunk->packed.used = got;
    return true;
}

static void make_chunk(void *ctx, uint32_t index, uint32_t thread)
{
    (void)thread;
    struct generator *g = ctx;
    struct chunk *chunk = &g->chunks[index];
    struct data_gen_truth truth;
    chunk->plain.used = 0;
    for (uint32_t i = 0; i < chunk->rows; i++) {
        const uint64_t row = chunk->row_first + i;
        g->kind->row(g->rows, g->eval, row, &chunk->plain, &truth);
        if (g->eval) g->truth[row] = truth;
    }
    chunk->failed = chunk->plain.failed;
    if (!chunk->failed && g->opts.compress == DATA_GZIP) chunk->failed = !pack_gzip(chunk);
    if (!chunk->failed && g->opts.compress == DATA_ZSTD) chunk->failed = !pack_zstd(chunk);
}

static int write_round(struct generator *g, struct io_writer *writer, uint32_t chunks_count,
                       struct err *err)
{
    for (uint32_t i = 0; i < chunks_count; i++) {
        const struct chunk *chunk = &g->chunks[i];
        const struct data_gen_buffer *buffer =
            g->opts.compress == DATA_PLAIN ? &chunk->plain : &chunk->packed;
        if (chunk->failed) return err_set(err, SHOAL_ENOMEM, "no memory for generated rows");
        const int rc = io_writer_write(writer, buffer->bytes, buffer->used, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- files ---- */

static void file_name(const struct generator *g, uint32_t index, uint32_t count,
                      char out[IO_PATH_MAX])
{
    static const char *const packed[] = {"", ".gz", ".zst"};
    snprintf(out, IO_PATH_MAX, "%s/%s-%05u-of-%05u.%s%s", g->opts.out, g->eval ? "eval" : "train",
             index, count, g->kind->suffix, packed[g->opts.compress]);
}

static int write_file(struct generator *g, struct team *team, const char *path, uint64_t row_first,
                      uint64_t row_last, struct err *err)
{
    struct io_writer *writer = NULL;
    int rc = io_writer_open(path, &writer, err);
    if (rc != 0) return rc;
    for (uint64_t row = row_first; rc == 0 && row < row_last;) {
        uint32_t count = 0;
        for (; count < ROUND_CHUNKS && row < row_last; count++) {
            const uint64_t left = row_last - row;
            struct chunk *chunk = &g->chunks[count];
            chunk->row_first = row;
            chunk->rows = left < CHUNK_ROWS ? (uint32_t)left : CHUNK_ROWS;
            row += chunk->rows;
        }
        team_run(team, count, make_chunk, g);
        rc = write_round(g, writer, count, err);
    }
    g->bytes += io_writer_bytes(writer);
    if (rc != 0) {
        io_writer_abandon(writer);
        return rc;
    }
    return io_writer_close(writer, err);
}

static int write_part(struct generator *g, struct team *team, bool eval, uint64_t rows,
                      uint32_t files, struct err *err)
{
    char path[IO_PATH_MAX];
    g->eval = eval;
    for (uint32_t i = 0; i < files; i++) {
        file_name(g, i, files, path);
        const int rc = write_file(g, team, path, rows * i / files, rows * (i + 1) / files, err);
        if (rc != 0) return rc;
    }
    return 0;
}

/* True for names as file_name makes them: train-00000-of-00008.tfrecord.gz */
static bool is_ours(const char *name)
{
    unsigned index = 0, count = 0;
    int end = 0;
    const char *rest = name;
    if (strncmp(name, "train-", 6) == 0) rest = name + 6;
    if (strncmp(name, "eval-", 5) == 0) rest = name + 5;
    if (rest == name || sscanf(rest, "%5u-of-%5u%n", &index, &count, &end) != 2 || end != 14) {
        return false;
    }
    for (int i = 0; i < DATA_GEN_KIND_COUNT; i++) {
        const size_t bytes = strlen(kinds[i]->suffix);
        if (rest[end] == '.' && strncmp(rest + end + 1, kinds[i]->suffix, bytes) == 0) return true;
    }
    return false;
}

/* Files of an earlier run with other counts would be matched by the same globs. */
static int remove_old(const struct generator *g, struct err *err)
{
    struct io_list names = {0};
    char path[IO_PATH_MAX];
    int rc = io_list_dir(g->opts.out, &names, err);
    for (size_t i = 0; rc == 0 && i < names.count; i++) {
        const char *base = strrchr(names.paths[i], '/');
        base = base != NULL ? base + 1 : names.paths[i];
        if (!is_ours(base)) continue;
        snprintf(path, sizeof path, "%s/%s", g->opts.out, base);
        rc = io_remove_tree(path, err);
    }
    io_list_fini(&names);
    return rc;
}

/* ---- the best that a model can do ---- */

static int by_score(const void *a, const void *b)
{
    const float x = ((const struct data_gen_truth *)a)->score;
    const float y = ((const struct data_gen_truth *)b)->score;
    return (x > y) - (x < y);
}

/* The AUC of the scores: the share of (clicked, not clicked) pairs in the right order, equal scores
 * counting half. Sorts. */
static double auc_of(struct data_gen_truth *truth, uint64_t count)
{
    double positives = 0, negatives = 0, right = 0;
    qsort(truth, count, sizeof *truth, by_score);
    for (uint64_t i = 0; i < count;) {
        double ties[2] = {0, 0};
        const float score = truth[i].score;
        for (; i < count && truth[i].score == score; i++) ties[truth[i].label > 0.5f]++;
        right += ties[1] * (negatives + 0.5 * ties[0]);
        positives += ties[1];
        negatives += ties[0];
    }
    return positives > 0 && negatives > 0 ? right / (positives * negatives) : 0.5;
}

static double mean_of(const struct data_gen_truth *truth, uint64_t count, bool score)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += (double)(score ? truth[i].score : truth[i].label);
    return count > 0 ? sum / (double)count : 0;
}

/* ---- all of it ---- */

static void set_defaults(const struct data_gen_kind_ops *kind, struct data_gen_opts *o)
{
    if (o->rows == 0) o->rows = kind->rows;
    if (o->eval_rows == 0) o->eval_rows = kind->eval_rows;
    if (o->users == 0) o->users = 10000;
    if (o->items == 0) o->items = 90;
    if (o->history_max == 0) o->history_max = 20;
    if (o->files == 0) o->files = kind->files;
}

static int check(const struct data_gen_opts *o, struct err *err)
{
    if (o->out == NULL || o->out[0] == '\0') {
        return err_set(err, SHOAL_EINVAL, "data gen: say where to write (--out DIR)");
    }
    if (o->history_max > DATA_GEN_HISTORY_MAX || o->history_min > o->history_max) {
        return err_set(err, SHOAL_EINVAL, "histories of %u to %u items; allowed are 0 to %u",
                       o->history_min, o->history_max, DATA_GEN_HISTORY_MAX);
    }
    if (o->files > 99999 || o->rows >> 48 != 0 || o->eval_rows > METRICS_EXACT_MAX ||
        o->users >> 48 != 0 || o->items >> 48 != 0) {
        return err_set(err, SHOAL_EINVAL,
                       "data gen: at most 99999 files, 2^48 rows, users and items, and %u rows to "
                       "evaluate on",
                       METRICS_EXACT_MAX);
    }
    return 0;
}

static int generate(struct generator *g, struct team *team, struct data_gen_result *result,
                    struct err *err)
{
    const struct data_gen_opts *o = &g->opts;
    const uint32_t eval_files = o->files / 4 > 0 ? o->files / 4 : 1;
    g->chunks = mem_alloc_array(MEM_DATA, ROUND_CHUNKS, sizeof *g->chunks);
    g->truth = mem_alloc_array(MEM_DATA, o->eval_rows, sizeof *g->truth);
    if (g->chunks == NULL || g->truth == NULL) {
        return err_set(err, SHOAL_ENOMEM, "no memory for the generator");
    }
    int rc = g->kind->create(o, &g->rows, err);
    if (rc == 0) rc = io_make_dirs(o->out, err);
    if (rc == 0) rc = remove_old(g, err);
    if (rc == 0) rc = write_part(g, team, false, o->rows, o->files, err);
    if (rc == 0) rc = write_part(g, team, true, o->eval_rows, eval_files, err);
    if (rc != 0) return rc;
    *result = (struct data_gen_result){.rows = o->rows,
                                       .eval_rows = o->eval_rows,
                                       .files = o->files,
                                       .eval_files = eval_files,
                                       .bytes = g->bytes};
    result->click_rate = mean_of(g->truth, o->eval_rows, false);
    result->best = g->kind->best == DATA_GEN_AUC ? auc_of(g->truth, o->eval_rows)
                                                 : mean_of(g->truth, o->eval_rows, true);
    return 0;
}

int data_gen(const struct data_gen_opts *opts, struct team *team,
             struct data_gen_result *result_out, struct err *err)
{
    const uint64_t start = clock_now_ns();
    ASSERT((unsigned)opts->kind < DATA_GEN_KIND_COUNT);
    struct generator g = {.opts = *opts, .kind = kinds[opts->kind]};
    set_defaults(g.kind, &g.opts);
    int rc = check(&g.opts, err);
    if (rc == 0) rc = generate(&g, team, result_out, err);
    if (rc == 0) result_out->seconds = (double)(clock_now_ns() - start) * 1e-9;
    for (uint32_t i = 0; g.chunks != NULL && i < ROUND_CHUNKS; i++) {
        mem_free(g.chunks[i].plain.bytes);
        mem_free(g.chunks[i].packed.bytes);
    }
    mem_free(g.chunks);
    mem_free(g.truth);
    if (g.rows != NULL) g.kind->destroy(g.rows);
    return rc;
}

void data_gen_report(const struct data_gen_opts *opts, const struct data_gen_result *result,
                     bool json, struct str *out)
{
    static const char *const keys[] = {"best_auc", "best_accuracy", "best_loss"};
    static const char *const words[] = {"AUC", "accuracy", "mean squared error"};
    const enum data_gen_best best = kinds[opts->kind]->best;
    char rows[32], eval_rows[32], bytes[32];
    if (json) {
        str_json_open(out, '{');
        str_json_key(out, "out");
        str_json_string(out, opts->out, strlen(opts->out));
        str_json_key(out, "rows");
        str_json_u64(out, result->rows);
        str_json_key(out, "eval_rows");
        str_json_u64(out, result->eval_rows);
        str_json_key(out, "files");
        str_json_u64(out, result->files);
        str_json_key(out, "eval_files");
        str_json_u64(out, result->eval_files);
        str_json_key(out, "bytes");
        str_json_u64(out, result->bytes);
        str_json_key(out, keys[best]);
        str_json_f64(out, result->best);
        str_json_key(out, best == DATA_GEN_AUC ? "click_rate" : "label_mean");
        str_json_f64(out, result->click_rate);
        str_json_key(out, "seconds");
        str_json_f64(out, result->seconds);
        str_json_close(out, '}');
        str_add(out, "\n");
        return;
    }
    str_printf(out, "%s rows in %u files, %s to evaluate on in %u files: %s, %.2f s\n",
               str_count(result->rows, rows), result->files,
               str_count(result->eval_rows, eval_rows), result->eval_files,
               str_bytes(result->bytes, bytes), result->seconds);
    if (best == DATA_GEN_AUC) str_printf(out, "%.1f %% clicks; ", 100 * result->click_rate);
    str_printf(out, "the best %s that any model can reach: %.4f\n", words[best], result->best);
}
