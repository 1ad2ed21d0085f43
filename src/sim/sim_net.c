/* Events in order of time, and messages that may get lost, be late or come twice. */
#include "base/assert.h"
#include "base/mem.h"
#include "sim/sim_own.h"

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

void sim_queue(struct sim *sim, struct sim_event event)
{
    event.order = sim->order++;
    if (mem_grow(MEM_SIM, (void **)&sim->events, &sim->events_capacity, sim->events_count + 1,
                 sizeof *sim->events) != 0) {
        mem_free(event.bytes);
        sim->failure = SHOAL_ENOMEM;
        return;
    }
    size_t at = sim->events_count++;
    while (at > 0 && is_before(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
}

bool sim_next(struct sim *sim, struct sim_event *event_out)
{
    if (sim->events_count == 0) return false;
    *event_out = sim->events[0];
    const struct sim_event last = sim->events[--sim->events_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->events_count) break;
        if (child + 1 < sim->events_count &&
            is_before(&sim->events[child + 1], &sim->events[child])) {
            child++;
        }
        if (!is_before(&sim->events[child], &last)) break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    if (sim->events_count > 0) sim->events[at] = last;
    return true;
}

static uint64_t delay_ns(struct sim *sim)
{
    if (sim_chance(sim, sim->plan.late_permille)) return sim_between(sim, 5, 400) * SIM_MS;
    return sim_between(sim, 50, 3000) * 1000;
}

static void post(struct sim *sim, const struct msg *msg, uint64_t at_ns)
{
    const size_t count = msg_bytes(msg);
    uint8_t *bytes = mem_alloc(MEM_SIM, count);
    if (bytes == NULL) {
        sim->failure = SHOAL_ENOMEM;
        return;
    }
    msg_encode(msg, bytes);
    sim_queue(sim, (struct sim_event){.at_ns = at_ns,
                                      .kind = SIM_DELIVER,
                                      .task = msg->to,
                                      .bytes = bytes,
                                      .bytes_count = count});
}

void sim_send(struct sim *sim, const struct msg *msg)
{
    const uint32_t from = sim->tasks[msg->from].node;
    const uint32_t to = sim->tasks[msg->to].node;
    sim_check_sent(sim, msg);
    if (from == to) { /* within one process nothing gets lost */
        post(sim, msg, sim->now_ns + 1000);
        return;
    }
    const bool is_cut = sim->cut_ns[from][to] > sim->now_ns;
    if (is_cut || sim_chance(sim, sim->plan.drop_permille)) {
        sim->result.drops++;
        return;
    }
    post(sim, msg, sim->now_ns + delay_ns(sim));
    if (sim_chance(sim, sim->plan.duplicate_permille)) {
        sim->result.duplicates++;
        post(sim, msg, sim->now_ns + delay_ns(sim) + sim_below(sim, 200) * SIM_MS);
    }
}

void sim_deliver(struct sim *sim, const struct sim_event *event)
{
    struct msg_block blocks[SIM_TABLES];
    struct msg msg;
    struct err err = {0};
    if (!sim->nodes[sim->tasks[event->task].node].is_up) {
        sim->result.drops++;
        return;
    }
    if (msg_decode(event->bytes, event->bytes_count, blocks, SIM_TABLES, &msg, &err) != 0) {
        sim_fail(sim, "a message cannot be read: %s", err.text);
        return;
    }
    sim->result.messages++;
    sim->handling = &msg;
    sim_task_receive(&sim->tasks[event->task], &msg);
    sim->handling = NULL;
}
