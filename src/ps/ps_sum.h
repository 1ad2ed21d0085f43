/* ps_sum keeps the gradients of a synchronous step aside and adds up those that count: by table, row by
 * row in slot order (not in order of arrival: float addition is not associative and runs must repeat),
 * divided by the examples of all. Owns copies of what it was given. One thread. */
#ifndef SHOAL_PS_SUM_H
#define SHOAL_PS_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cluster/msg.h"
#include "store/store.h"

struct ps_sum;

int ps_sum_create(struct ps_sum **sum_out, struct err *err);
void ps_sum_destroy(struct ps_sum *sum); /* NULL is a no-op. */

/* Keeps a push of a slot; the first of a slot stays. */
int ps_sum_keep(struct ps_sum *sum, const struct msg *push, struct err *err);
bool ps_sum_has(const struct ps_sum *sum, uint64_t slot);
uint32_t ps_sum_count(const struct ps_sum *sum);
uint64_t ps_sum_slot(const struct ps_sum *sum, uint32_t index);
void ps_sum_clear(struct ps_sum *sum);

/* Applies the sum over `slots` (ascending, all kept) as one named push per table. */
int ps_sum_apply(struct ps_sum *sum, const uint64_t *slots, uint32_t slots_count, uint64_t step,
                 struct store *store, struct err *err);

#endif
