#include "net/net_timer.h"

#include <stddef.h>

#include "base/assert.h"

static struct net_timer *meld(struct net_timer *a, struct net_timer *b)
{
    if (a == NULL) return b;
    if (b == NULL) return a;
    if (b->due_ns < a->due_ns) {
        struct net_timer *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    if (a->child != NULL) a->child->prev = b;
    b->prev = a;
    a->child = b;
    return a;
}

/* One heap out of a list of siblings: pairs from the left, then the pairs into one. No recursion:
 * the pairs are chained through `next` on the way. */
static struct net_timer *meld_siblings(struct net_timer *first)
{
    struct net_timer *pairs = NULL;
    while (first != NULL) {
        struct net_timer *a = first;
        struct net_timer *b = a->next;
        first = b == NULL ? NULL : b->next;
        a->next = a->prev = NULL;
        if (b != NULL) b->next = b->prev = NULL;
        struct net_timer *pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    struct net_timer *root = NULL;
    while (pairs != NULL) {
        struct net_timer *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        root = meld(root, pair);
    }
    return root;
}

static void unlink_from_parent(struct net_timer *timer)
{
    if (timer->prev->child == timer) {
        timer->prev->child = timer->next;
    } else {
        timer->prev->next = timer->next;
    }
    if (timer->next != NULL) timer->next->prev = timer->prev;
    timer->next = timer->prev = NULL;
}

void net_timer_clear(struct net_timers *timers, struct net_timer *timer)
{
    if (!timer->is_set) return;
    struct net_timer *rest = meld_siblings(timer->child);
    timer->child = NULL;
    timer->is_set = false;
    if (timers->root == timer) {
        timers->root = rest;
    } else {
        unlink_from_parent(timer);
        timers->root = meld(timers->root, rest);
    }
}

void net_timer_set(struct net_timers *timers, struct net_timer *timer, uint64_t due_ns)
{
    ASSERT(timer->run != NULL);
    net_timer_clear(timers, timer);
    timer->due_ns = due_ns;
    timer->is_set = true;
    timers->root = meld(timers->root, timer);
}

uint64_t net_timers_next_ns(const struct net_timers *timers)
{
    return timers->root == NULL ? UINT64_MAX : timers->root->due_ns;
}

struct net_timer *net_timers_pop(struct net_timers *timers, uint64_t now_ns)
{
    struct net_timer *timer = timers->root;
    if (timer == NULL || timer->due_ns > now_ns) return NULL;
    net_timer_clear(timers, timer);
    return timer;
}

/* Walks the heap without recursion: down to the first child, else to the next sibling, else up. */
bool net_timers_ok(const struct net_timers *timers)
{
    const struct net_timer *timer = timers->root;
    if (timer == NULL) return true;
    if (timer->prev != NULL || timer->next != NULL) return false;
    for (;;) {
        if (!timer->is_set) return false;
        const struct net_timer *down = timer->child;
        if (down != NULL) {
            if (down->prev != timer) return false;
            for (const struct net_timer *each = down; each != NULL; each = each->next) {
                if (each->due_ns < timer->due_ns) return false;
            }
            timer = down;
            continue;
        }
        while (timer->next == NULL) {
            while (timer->prev != NULL && timer->prev->child != timer) timer = timer->prev;
            if (timer->prev == NULL) return true;
            timer = timer->prev;
        }
        const struct net_timer *next = timer->next;
        if (next->prev != timer) return false;
        timer = next;
    }
}
