/* progress shows how training goes. On a terminal it is one line, redrawn at most 10 times a second
 * and cut to the terminal's width; it steps aside for log lines (base/log.h's hooks). Elsewhere it is
 * plain lines, one per call of progress_log:
 *
 *     step 1200/10000  epoch 2  loss 0.43121  lr 0.0987  812,345 examples/s  01:40 left
 *
 * Time left goes by the share of the work done since the start of this run. At most one per process
 * (the log has one pair of hooks). Calls come from one thread; log lines from any. */
#ifndef SHOAL_TRAIN_PROGRESS_H
#define SHOAL_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct progress;

struct progress_state {
    uint64_t step;
    uint64_t steps_max; /* 0: no limit */
    uint64_t epoch;     /* from 1; 0: not shown */
    double loss;
    double learning_rate;
    double examples_per_second;
    double share_done; /* of all the work, 0 to 1, where steps_max does not tell; 0: not known */
};

/* fd is where it goes (2: standard error), a terminal or not. */
int progress_create(int fd, struct progress **progress_out, struct err *err);

/* After every step: redraws the line if it is time to. Not on a terminal: does nothing. */
void progress_update(struct progress *progress, const struct progress_state *state,
                     uint64_t now_ns);

/* Every so many steps: a plain line. On a terminal: as progress_update, without waiting. */
void progress_log(struct progress *progress, const struct progress_state *state, uint64_t now_ns);

/* A line that stays, on a terminal or not (an epoch, an evaluation). No newline in it. */
void progress_note(struct progress *progress, const char *line);

/* Removes the live line; the next update draws it again. */
void progress_clear(struct progress *progress);

void progress_destroy(struct progress *progress); /* clears; NULL is a no-op */

/* The line itself, for one who prints it elsewhere. left_secs < 0: not known, not shown. */
void progress_format(const struct progress_state *state, double left_secs, struct str *line);

#endif
