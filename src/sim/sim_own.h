/* sim_own is what the files of the simulator share. */
#ifndef SHOAL_SIM_OWN_H
#define SHOAL_SIM_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/chief.h"
#include "ps/ps_route.h"
#include "ps/ps_server.h"
#include "ps/ps_worker.h"
#include "sim/sim.h"

#define SIM_MS 1000000ull
#define SIM_TABLES 2u
#define SIM_PS_MAX 3u
#define SIM_WORKERS_MAX 4u
#define SIM_TASKS_MAX (1u + SIM_PS_MAX + SIM_WORKERS_MAX)
#define SIM_EXAMPLES_MAX 128u
#define SIM_PASSES_MAX 256u
#define SIM_BATCH_MAX 4u
#define SIM_USERS 16u
#define SIM_SHARDS_MAX 32u
#define SIM_LEASES_MAX 512u
#define SIM_STEPS_MAX 4096u
#define SIM_TOKENS_MAX 65536u

/* What the seed makes of a run. */
struct sim_plan {
    struct cluster cluster;
    enum chief_discipline discipline;
    uint64_t staleness;
    uint32_t replicas; /* sync */
    uint32_t batch_size;
    uint64_t examples; /* of a pass */
    uint64_t passes;
    uint64_t lease_examples;
    uint64_t steps_max;
    uint64_t checkpoint_steps;
    uint32_t drop_permille;
    uint32_t duplicate_permille;
    uint32_t late_permille;
    uint64_t fault_ns; /* between two faults, on average; 0: none */
    uint64_t faults_end_ns;
};

enum sim_event_kind { SIM_DELIVER, SIM_WAKE, SIM_COMPUTED, SIM_WRITTEN, SIM_RESTART, SIM_FAULT };

struct sim_event {
    uint64_t at_ns;
    uint64_t order; /* of those at the same time */
    enum sim_event_kind kind;
    uint32_t task;       /* node, of SIM_RESTART */
    uint64_t generation; /* of the node: events of a dead process do not happen */
    uint64_t number;     /* request, checkpoint */
    uint8_t *bytes;      /* message */
    size_t bytes_count;
};

/* A file that grows: what is synced survives a crash. */
struct sim_words {
    uint64_t *words;
    size_t count;
    size_t capacity;
};

struct sim_file {
    uint8_t *bytes;
    size_t count;
    size_t capacity;
    size_t synced;
};

struct sim_saved { /* a ps's part of a checkpoint */
    uint64_t checkpoint;
    uint32_t ps;
    bool is_written;
    struct sim_words words;
};

struct sim;

struct sim_toy { /* a worker's batch */
    struct msg_work work;
    struct ps_batch_table tables[SIM_TABLES];
    uint64_t items[SIM_BATCH_MAX];
    uint64_t users[SIM_BATCH_MAX];
    float item_rows[SIM_BATCH_MAX * 2];
    float item_gradients[SIM_BATCH_MAX * 2];
    float user_rows[SIM_BATCH_MAX];
    float user_gradients[SIM_BATCH_MAX];
};

struct sim_task {
    struct sim *sim;
    uint32_t task;
    uint32_t node;
    struct chief *chief; /* one of the three, while it lives */
    struct ps_server *server;
    struct ps_worker *worker;
    uint64_t wake_ns;
    struct sim_toy toy;
};

struct sim_node { /* a process */
    bool is_up;
    bool has_ended;
    uint64_t generation;
    uint64_t paused_ns; /* until */
};

/* What the checkers know. */
struct sim_check {
    bool acked[SIM_PASSES_MAX][SIM_EXAMPLES_MAX];
    uint64_t tokens_seen[SIM_LEASES_MAX][SIM_SHARDS_MAX];
    struct {
        uint64_t lease;
        uint64_t incarnation;
    } holders[SIM_TOKENS_MAX];
    struct {
        uint64_t epoch;
        uint32_t count;
        uint64_t slots[SIM_TASKS_MAX];
    } sets[SIM_STEPS_MAX];
    uint64_t epoch;
    uint64_t leases_below; /* told by the chief in this epoch: their names may be forgotten */
    bool is_failed;
    char failure[256];
};

struct sim {
    struct sim_opts opts;
    struct sim_plan plan;
    uint64_t now_ns;
    uint64_t draws; /* random numbers so far */
    uint64_t order;
    struct sim_event *events; /* a heap: the earliest first */
    size_t events_count;
    size_t events_capacity;
    struct sim_task tasks[SIM_TASKS_MAX];
    struct sim_node nodes[SIM_TASKS_MAX];
    uint64_t cut_ns[SIM_TASKS_MAX][SIM_TASKS_MAX]; /* by node: the link is cut until */
    struct store_table_opts tables[SIM_TABLES];
    struct ps_route *route;
    struct sim_file journal;
    struct sim_saved *saved;
    size_t saved_count;
    size_t saved_capacity;
    const struct msg *handling; /* what the task that sends now was given */
    struct sim_check check;
    struct sim_result result;
    int failure; /* of ours: memory */
};

/* ---- sim.c ---- */
uint64_t sim_random(struct sim *sim);
uint64_t sim_below(struct sim *sim, uint64_t bound);
uint64_t sim_between(struct sim *sim, uint64_t first, uint64_t last);
bool sim_chance(struct sim *sim, uint32_t permille);

/* ---- sim_net.c ---- */
void sim_queue(struct sim *sim, struct sim_event event); /* takes event.bytes */
bool sim_next(struct sim *sim, struct sim_event *event_out);
void sim_send(struct sim *sim, const struct msg *msg);
void sim_deliver(struct sim *sim, const struct sim_event *event);

/* ---- sim_disk.c ---- */
int sim_journal_append(void *ctx, const void *bytes, size_t count, bool sync, struct err *err);
int sim_journal_read(void *ctx, const uint8_t **bytes_out, size_t *count_out, struct err *err);
int sim_journal_cut(void *ctx, size_t count, struct err *err);
void sim_disk_crash(struct sim *sim, uint32_t node);
int sim_save(void *ctx, uint64_t checkpoint, struct store *store, const struct ps_state *state,
             struct err *err);
int sim_load(void *ctx, uint64_t checkpoint, struct store **store_out, struct ps_state *state_out,
             struct err *err);
int sim_load_of(struct sim *sim, uint32_t ps, uint64_t checkpoint, struct store **store_out,
                struct ps_state *state_out, struct err *err);
void sim_written(struct sim *sim, uint32_t ps, uint64_t checkpoint);
void sim_disk_fini(struct sim *sim);

/* ---- sim_task.c ---- */
void sim_node_start(struct sim *sim, uint32_t node);
void sim_node_crash(struct sim *sim, uint32_t node);
void sim_task_receive(struct sim_task *task, const struct msg *msg);
void sim_task_tick(struct sim_task *task);
void sim_node_look(struct sim *sim, uint32_t node); /* has it ended? */
bool sim_lease(void *ctx, uint64_t lease, struct chief_span *span_out);
struct chief_span sim_batch(void *ctx, uint64_t step, uint32_t slot);
uint32_t sim_slots(const struct sim_plan *plan);
float sim_unit(const struct sim_plan *plan);

/* ---- sim_check.c ---- */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_check_sent(struct sim *sim, const struct msg *msg);
void sim_check_rows(struct sim *sim); /* all of them */
void sim_check_end(struct sim *sim);
void sim_check_hang(struct sim *sim);

#endif
