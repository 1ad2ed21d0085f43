/* The chief's journal and the parts of checkpoints. A crash takes what was not synced. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "sim/sim_own.h"

int sim_journal_append(void *ctx, const void *bytes, size_t count, bool sync, struct err *err)
{
    struct sim_task *task = ctx;
    struct sim_file *file = &task->sim->journal;
    if (mem_grow(MEM_SIM, (void **)&file->bytes, &file->capacity, file->count + count, 1) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for the journal");
    }
    memcpy(file->bytes + file->count, bytes, count);
    file->count += count;
    if (sync) file->synced = file->count;
    return 0;
}

int sim_journal_read(void *ctx, const uint8_t **bytes_out, size_t *count_out, struct err *err)
{
    (void)err;
    const struct sim_task *task = ctx;
    *bytes_out = task->sim->journal.bytes;
    *count_out = task->sim->journal.count;
    return 0;
}

int sim_journal_cut(void *ctx, size_t count, struct err *err)
{
    struct sim_file *file = &((struct sim_task *)ctx)->sim->journal;
    (void)err;
    ASSERT(count <= file->count);
    file->count = count;
    if (file->synced > count) file->synced = count;
    return 0;
}

/* Of what was not synced any beginning may have reached the disk, a torn record too. */
void sim_disk_crash(struct sim *sim, uint32_t node)
{
    struct sim_file *file = &sim->journal;
    if (node == sim->tasks[CLUSTER_CHIEF].node) {
        file->count = file->synced + sim_below(sim, file->count - file->synced + 1);
        file->synced = file->count;
    }
    for (size_t i = 0; i < sim->saved_count; i++) {
        struct sim_saved *saved = &sim->saved[i];
        if (sim->tasks[cluster_ps(saved->ps)].node == node && !saved->is_written) {
            saved->checkpoint = 0;
        }
    }
}

/* ---- Checkpoints ---- */

static void put(struct sim *sim, struct sim_words *words, uint64_t word)
{
    if (mem_grow(MEM_SIM, (void **)&words->words, &words->capacity, words->count + 1,
                 sizeof *words->words) != 0) {
        sim->failure = SHOAL_ENOMEM;
        return;
    }
    words->words[words->count++] = word;
}

static int save_shard(struct sim *sim, struct store_cut *cut, uint32_t table, uint32_t shard,
                      uint32_t cols, struct sim_words *words, struct err *err)
{
    struct store_shard state;
    int rc = store_cut_shard(cut, table, shard, &state, err);
    if (rc != 0) return rc;
    put(sim, words, state.version);
    put(sim, words, state.streams_count);
    for (uint32_t i = 0; i < state.streams_count; i++) {
        put(sim, words, state.streams[i].kind);
        put(sim, words, state.streams[i].stream);
        put(sim, words, state.streams[i].token);
        put(sim, words, state.streams[i].number);
    }
    put(sim, words, state.rows);
    for (uint64_t row = 0; rc == 0 && row < state.rows; row++) {
        uint64_t key = 0;
        float values[2] = {0};
        const struct store_cut_read read = {
            .first = row, .count = 1, .keys = &key, .parts = {values}};
        rc = store_cut_read(cut, &read, err);
        put(sim, words, key);
        for (uint32_t c = 0; c < cols; c++) put(sim, words, (uint64_t)(int64_t)values[c]);
    }
    return rc;
}

int sim_save(void *ctx, uint64_t checkpoint, struct store *store, const struct ps_state *state,
             struct err *err)
{
    struct sim_task *task = ctx;
    struct sim *sim = task->sim;
    struct store_cut *cut = NULL;
    if (mem_grow(MEM_SIM, (void **)&sim->saved, &sim->saved_capacity, sim->saved_count + 1,
                 sizeof *sim->saved) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for a checkpoint");
    }
    struct sim_saved *saved = &sim->saved[sim->saved_count++];
    *saved = (struct sim_saved){.checkpoint = checkpoint, .ps = task->task - cluster_ps(0)};
    put(sim, &saved->words, state->leases_below);
    put(sim, &saved->words, state->version);
    int rc = store_cut_begin(store, &cut, err);
    for (uint32_t table = 0; rc == 0 && table < store_tables_count(store); table++) {
        const struct store_table_info info = store_table_info(store, table);
        for (uint32_t shard = 0; rc == 0 && shard < info.shards; shard++) {
            rc = save_shard(sim, cut, table, shard, info.cols, &saved->words, err);
        }
    }
    store_cut_end(cut);
    sim_queue(sim, (struct sim_event){.at_ns = sim->now_ns + sim_between(sim, 1, 60) * SIM_MS,
                                      .kind = SIM_WRITTEN,
                                      .task = task->task,
                                      .generation = sim->nodes[task->node].generation,
                                      .number = checkpoint});
    return rc;
}

static const struct sim_saved *find(const struct sim *sim, uint32_t ps, uint64_t checkpoint)
{
    for (size_t i = sim->saved_count; i-- > 0;) {
        if (sim->saved[i].checkpoint == checkpoint && sim->saved[i].ps == ps) return &sim->saved[i];
    }
    return NULL;
}

void sim_written(struct sim *sim, uint32_t ps, uint64_t checkpoint)
{
    struct sim_saved *saved = (struct sim_saved *)find(sim, ps, checkpoint);
    ASSERT(saved != NULL);
    saved->is_written = true;
    ps_server_written(sim->tasks[cluster_ps(ps)].server, checkpoint);
}

static int load_shard(struct store *store, uint32_t table, uint32_t shard, uint32_t cols,
                      const uint64_t **at, struct err *err)
{
    struct store_work streams[SIM_LEASES_MAX];
    struct store_shard state = {.version = *(*at)++, .streams = streams};
    state.streams_count = (uint32_t) * (*at)++;
    ASSERT(state.streams_count <= SIM_LEASES_MAX);
    for (uint32_t i = 0; i < state.streams_count; i++, *at += 4) {
        streams[i] = (struct store_work){.kind = (enum store_work_kind)(*at)[0],
                                         .stream = (*at)[1],
                                         .token = (*at)[2],
                                         .number = (*at)[3]};
    }
    int rc = 0;
    const uint64_t rows = *(*at)++;
    for (uint64_t row = 0; rc == 0 && row < rows; row++) {
        const uint64_t key = *(*at)++;
        float values[2] = {0};
        for (uint32_t c = 0; c < cols; c++) values[c] = (float)(int64_t) * (*at)++;
        const struct store_rows one = {.table = table, .count = 1, .keys = &key, .parts = {values}};
        rc = store_assign_rows(store, &one, err);
    }
    if (rc == 0) rc = store_shard_restore(store, table, shard, &state, err);
    return rc;
}

int sim_load_of(struct sim *sim, uint32_t ps, uint64_t checkpoint, struct store **store_out,
                struct ps_state *state_out, struct err *err)
{
    struct store *store = NULL;
    int rc = store_create(&(struct store_opts){.seed = 1}, &store, err);
    for (uint32_t i = 0; rc == 0 && i < SIM_TABLES; i++) {
        uint32_t table = 0;
        rc = store_table_add(store, &sim->tables[i], &table, err);
    }
    if (rc == 0 && checkpoint != 0) {
        const struct sim_saved *saved = find(sim, ps, checkpoint);
        if (saved == NULL || !saved->is_written) {
            sim_fail(sim, "ps/%u has no part of checkpoint %llu", ps,
                     (unsigned long long)checkpoint);
            rc = err_set(err, SHOAL_ENOENT, "checkpoint %llu", (unsigned long long)checkpoint);
        } else {
            const uint64_t *at = saved->words.words;
            *state_out = (struct ps_state){.leases_below = at[0], .version = at[1]};
            at += 2;
            for (uint32_t table = 0; rc == 0 && table < SIM_TABLES; table++) {
                const struct store_table_info info = store_table_info(store, table);
                for (uint32_t shard = 0; rc == 0 && shard < info.shards; shard++) {
                    rc = load_shard(store, table, shard, info.cols, &at, err);
                }
            }
        }
    }
    if (rc == 0) {
        *store_out = store;
    } else {
        store_destroy(store);
    }
    return rc;
}

int sim_load(void *ctx, uint64_t checkpoint, struct store **store_out, struct ps_state *state_out,
             struct err *err)
{
    struct sim_task *task = ctx;
    return sim_load_of(task->sim, task->task - cluster_ps(0), checkpoint, store_out, state_out,
                       err);
}

void sim_disk_fini(struct sim *sim)
{
    for (size_t i = 0; i < sim->saved_count; i++) mem_free(sim->saved[i].words.words);
    mem_free(sim->saved);
    mem_free(sim->journal.bytes);
}
