#include "store/store_ledger.h"

#include <string.h>

#include "base/assert.h"
#include "base/bounds.h"
#include "base/mem.h"

void store_ledger_fini(struct store_ledger *ledger)
{
    mem_free(ledger->streams);
    *ledger = (struct store_ledger){0};
}

static bool is_same_stream(const struct store_work *a, const struct store_work *b)
{
    return a->kind == b->kind && a->stream == b->stream;
}

/* NULL when the stream is new. */
static struct store_work *find(struct store_ledger *ledger, const struct store_work *work)
{
    if (ledger->last < ledger->count && is_same_stream(&ledger->streams[ledger->last], work)) {
        return &ledger->streams[ledger->last];
    }
    for (uint32_t i = 0; i < ledger->count; i++) {
        if (!is_same_stream(&ledger->streams[i], work)) continue;
        ledger->last = i;
        return &ledger->streams[i];
    }
    return NULL;
}

int store_ledger_check(struct store_ledger *ledger, const struct store_work *work,
                       enum store_verdict *verdict_out, struct err *err)
{
    *verdict_out = STORE_APPLY;
    if (work->kind == STORE_WORK_NONE) return 0;
    const struct store_work *last = find(ledger, work);
    if (last != NULL && work->token < last->token) {
        return err_set(err, SHOAL_ESTALE, "lease %llu batch %llu: token %llu, %llu is in force",
                       (unsigned long long)work->stream, (unsigned long long)work->number,
                       (unsigned long long)work->token, (unsigned long long)last->token);
    }
    if (last != NULL) {
        if (work->number <= last->number) *verdict_out = STORE_REPEATED;
        return 0;
    }
    if (ledger->count == STORE_STREAMS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%u streams of work in progress", STORE_STREAMS_MAX);
    }
    if (mem_grow(MEM_STORE, (void **)&ledger->streams, &ledger->capacity, (size_t)ledger->count + 1,
                 sizeof *ledger->streams) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for what was applied");
    }
    return 0;
}

void store_ledger_record(struct store_ledger *ledger, const struct store_work *work)
{
    if (work->kind == STORE_WORK_NONE) return;
    struct store_work *last = find(ledger, work);
    if (last == NULL) {
        ASSERT(ledger->count < ledger->capacity);
        ledger->last = ledger->count++;
        ledger->streams[ledger->last] = *work;
        return;
    }
    /* A repeated piece from a new holder does not move the number, but its token fences. */
    ASSERT(work->token >= last->token);
    last->token = work->token;
    if (work->number > last->number) last->number = work->number;
}

void store_ledger_retire(struct store_ledger *ledger, uint64_t lease)
{
    const struct store_work work = {.kind = STORE_WORK_LEASE, .stream = lease};
    struct store_work *last = find(ledger, &work);
    if (last == NULL) return;
    const size_t behind = ledger->count - (size_t)(last - ledger->streams) - 1;
    memmove(last, last + 1, behind * sizeof *last);
    ledger->count--;
}

int store_ledger_restore(struct store_ledger *ledger, const struct store_work *streams,
                         uint32_t count, struct err *err)
{
    if (count > STORE_STREAMS_MAX) {
        return err_set(err, SHOAL_ELIMIT, "%u streams of work, at most %u", count,
                       STORE_STREAMS_MAX);
    }
    if (mem_grow(MEM_STORE, (void **)&ledger->streams, &ledger->capacity, count,
                 sizeof *ledger->streams) != 0) {
        return err_set(err, SHOAL_ENOMEM, "no memory for what was applied");
    }
    if (count > 0) memcpy(ledger->streams, streams, count * sizeof *streams);
    ledger->count = count;
    ledger->last = 0;
    return 0;
}

bool store_ledger_ok(const struct store_ledger *ledger)
{
    if (ledger->count > ledger->capacity || ledger->count > STORE_STREAMS_MAX) return false;
    for (uint32_t i = 0; i < ledger->count; i++) {
        if (ledger->streams[i].kind == STORE_WORK_NONE) return false;
    }
    return true;
}
