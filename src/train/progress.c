#include "train/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#define REDRAW_NS 100000000u /* 10 times a second */
#define WIDTH_DEFAULT 80u
#define WIDTH_MAX 1024u

struct progress {
    int fd; /* set at create, then read only, as is is_terminal */
    bool is_terminal;
    bool has_start;
    uint64_t start_ns; /* the first state: what time left goes by */
    double start_share;
    uint64_t drawn_ns;

    pthread_mutex_t
        lock;        /* guards the rest; taken inside the log's own lock, so never log under it */
    struct str line; /* what the live line says */
    bool is_drawn;   /* the line is on the screen */
    uint32_t aside;  /* lines being written beside it */
};

static void write_out(int fd, const char *text, size_t count)
{
    while (count > 0) {
        const ssize_t wrote = write(fd, text, count);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return; /* a screen that is gone is no reason to stop training */
        text += wrote;
        count -= (size_t)wrote;
    }
}

static uint32_t terminal_width(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return WIDTH_DEFAULT;
    return size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
}

/* Under the lock. */
static void erase(struct progress *progress)
{
    static const char clear_line[] = "\r\033[K";
    if (progress->is_drawn) write_out(progress->fd, clear_line, sizeof clear_line - 1);
    progress->is_drawn = false;
}

/* Under the lock. The line is ASCII; one column is left free, so that no terminal wraps it. */
static void draw(struct progress *progress)
{
    if (progress->aside > 0 || progress->line.bytes == 0) return;
    const size_t room = terminal_width(progress->fd) - 1;
    const size_t shown = progress->line.bytes < room ? progress->line.bytes : room;
    char out[WIDTH_MAX + 8] = "\r";
    memcpy(out + 1, progress->line.text, shown);
    memcpy(out + 1 + shown, "\033[K", 3);
    write_out(progress->fd, out, shown + 4);
    progress->is_drawn = true;
}

static void before_log(void *ctx)
{
    struct progress *progress = ctx;
    pthread_mutex_lock(&progress->lock);
    erase(progress);
    progress->aside++;
    pthread_mutex_unlock(&progress->lock);
}

static void after_log(void *ctx)
{
    struct progress *progress = ctx;
    pthread_mutex_lock(&progress->lock);
    ASSERT(progress->aside > 0);
    progress->aside--;
    draw(progress);
    pthread_mutex_unlock(&progress->lock);
}

int progress_create(int fd, struct progress **progress_out, struct err *err)
{
    struct progress *progress = mem_alloc(MEM_TRAIN, sizeof *progress);
    if (progress == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for the progress line");
    progress->fd = fd;
    const char *kind = getenv("TERM");
    progress->is_terminal = isatty(fd) == 1 && (kind == NULL || strcmp(kind, "dumb") != 0);
    pthread_mutex_init(&progress->lock, NULL);
    if (progress->is_terminal) log_set_hooks(before_log, after_log, progress);
    *progress_out = progress;
    return 0;
}

/* "01:40" or "2:05:09". */
static void add_duration(struct str *line, double secs)
{
    const uint64_t whole = (uint64_t)(secs + 0.5);
    if (whole >= 3600) str_printf(line, "%" PRIu64 ":", whole / 3600);
    str_printf(line, "%02" PRIu64 ":%02" PRIu64, whole / 60 % 60, whole % 60);
}

void progress_format(const struct progress_state *state, double left_secs, struct str *line)
{
    char count[32];
    str_printf(line, "step %" PRIu64, state->step);
    if (state->steps_max > 0) str_printf(line, "/%" PRIu64, state->steps_max);
    if (state->epoch > 0) str_printf(line, "  epoch %" PRIu64, state->epoch);
    str_printf(line, "  loss %.5g  lr %.4g", state->loss, state->learning_rate);
    if (state->examples_per_second >= 0 && state->examples_per_second < 1e15) {
        str_printf(line, "  %s examples/s",
                   str_count((uint64_t)(state->examples_per_second + 0.5), count));
    }
    if (left_secs >= 0 && left_secs < 1e9) {
        str_add(line, "  ");
        add_duration(line, left_secs);
        str_add(line, " left");
    }
}

static double share_of(const struct progress_state *state)
{
    const double by_steps =
        state->steps_max > 0 ? (double)state->step / (double)state->steps_max : 0;
    return fmin(fmax(by_steps, state->share_done), 1);
}

/* Whichever limit comes first ends the run, so the larger share counts. -1: not known yet. */
static double time_left(struct progress *progress, const struct progress_state *state,
                        uint64_t now_ns)
{
    const double share = share_of(state);
    if (!progress->has_start) {
        progress->has_start = true;
        progress->start_ns = now_ns;
        progress->start_share = share;
        return -1;
    }
    const double done = share - progress->start_share;
    const double secs = (double)(now_ns - progress->start_ns) * 1e-9;
    return done > 0 ? secs / done * (1 - share) : -1;
}

static void redraw(struct progress *progress, const struct progress_state *state, double left_secs,
                   uint64_t now_ns)
{
    progress->drawn_ns = now_ns;
    pthread_mutex_lock(&progress->lock);
    str_clear(&progress->line);
    progress_format(state, left_secs, &progress->line);
    draw(progress);
    pthread_mutex_unlock(&progress->lock);
}

void progress_update(struct progress *progress, const struct progress_state *state, uint64_t now_ns)
{
    const double left_secs = time_left(progress, state, now_ns);
    if (!progress->is_terminal) return;
    if (progress->drawn_ns != 0 && now_ns - progress->drawn_ns < REDRAW_NS) return;
    redraw(progress, state, left_secs, now_ns);
}

void progress_log(struct progress *progress, const struct progress_state *state, uint64_t now_ns)
{
    const double left_secs = time_left(progress, state, now_ns);
    if (progress->is_terminal) {
        redraw(progress, state, left_secs, now_ns);
        return;
    }
    struct str line = {0};
    progress_format(state, left_secs, &line);
    if (!line.failed) progress_note(progress, line.text);
    str_fini(&line);
}

void progress_note(struct progress *progress, const char *line)
{
    struct str whole = {0};
    str_printf(&whole, "%s\n", line);
    before_log(progress);
    if (!whole.failed) write_out(progress->fd, whole.text, whole.bytes);
    after_log(progress);
    str_fini(&whole);
}

void progress_clear(struct progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    erase(progress);
    str_clear(&progress->line);
    pthread_mutex_unlock(&progress->lock);
    progress->drawn_ns = 0;
}

void progress_destroy(struct progress *progress)
{
    if (progress == NULL) return;
    if (progress->is_terminal) log_set_hooks(NULL, NULL, NULL);
    progress_clear(progress);
    pthread_mutex_destroy(&progress->lock);
    str_fini(&progress->line);
    mem_free(progress);
}
