#include "train/progress.h"

#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include "../tests/test.h"
#include "base/log.h"
#include "base/mem.h"

#define SECOND ((uint64_t)1000000000)

static struct err err;

/* A terminal of our own: what is written to `slave` comes out of `master` without waiting. */
static int master = -1;
static int slave = -1;

static void open_terminal(uint16_t columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    setenv("TERM", "xterm", 1);
    if (openpty(&master, &slave, NULL, NULL, &size) != 0) {
        fprintf(stderr, "no terminals here (is /dev/pts mounted?): not tested\n");
        exit(0);
    }
    CHECK(fcntl(master, F_SETFL, O_NONBLOCK) == 0);
}

/* What was written since the last call. */
static const char *shown(void)
{
    static char text[65536];
    size_t used = 0;
    for (ssize_t got = 0; (got = read(master, text + used, sizeof text - 1 - used)) > 0;) {
        used += (size_t)got;
    }
    text[used] = '\0';
    return text;
}

static struct progress *made(int fd)
{
    struct progress *progress = NULL;
    CHECK_OK(progress_create(fd, &progress, &err));
    return progress;
}

static const struct progress_state half = {.step = 500,
                                           .steps_max = 1000,
                                           .epoch = 2,
                                           .loss = 0.431234,
                                           .learning_rate = 0.0987654,
                                           .examples_per_second = 812345.2};

TEST(a_line_has_the_fields_that_are_known)
{
    static const struct {
        const char *name;
        struct progress_state state;
        double left_secs;
        const char *want;
    } cases[] = {
        {"all",
         {500, 1000, 2, 0.431234, 0.0987654, 812345.2, 0},
         100,
         "step 500/1000  epoch 2  loss 0.43123  lr 0.09877  812,345 examples/s  01:40 left"},
        {"no limit, no epoch, no end",
         {7, 0, 0, 1, 1e-4, 0, 0},
         -1,
         "step 7  loss 1  lr 0.0001  0 examples/s"},
        {"hours",
         {7, 0, 1, 1, 1, 10, 0},
         7509,
         "step 7  epoch 1  loss 1  lr 1  10 examples/s  2:05:09 left"},
        {"rate not known", {7, 0, 1, 1, 1, NAN, 0}, 0, "step 7  epoch 1  loss 1  lr 1  00:00 left"},
        {"infinite loss", {7, 0, 1, INFINITY, 1, -1, 0}, NAN, "step 7  epoch 1  loss inf  lr 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str line = {0};
        progress_format(&cases[i].state, cases[i].left_secs, &line);
        if (strcmp(line.text, cases[i].want) != 0) {
            test_fail(__FILE__, __LINE__, "%s: got \"%s\"", cases[i].name, line.text);
        }
        str_fini(&line);
    }
}

TEST(elsewhere_it_is_plain_lines)
{
    const int fd = open("out", O_RDWR | O_CREAT, 0600);
    struct progress *progress = made(fd);
    struct progress_state state = half;
    state.step = 0;
    progress_update(progress, &state, SECOND);
    progress_log(progress, &half, 11 * SECOND);
    progress_note(progress, "epoch 1 done");
    progress_clear(progress);
    progress_destroy(progress);
    char text[512] = "";
    CHECK(pread(fd, text, sizeof text - 1, 0) > 0);
    CHECK_STR(text, "step 500/1000  epoch 2  loss 0.43123  lr 0.09877  812,345 examples/s  00:10 "
                    "left\nepoch 1 done\n");
    close(fd);
}

/* A terminal that cannot erase a line (a shell within an editor) gets plain lines. */
TEST(a_dumb_terminal_gets_plain_lines)
{
    open_terminal(80);
    setenv("TERM", "dumb", 1);
    struct progress *progress = made(slave);
    progress_update(progress, &half, SECOND);
    CHECK_STR(shown(), "");
    progress_log(progress, &half, SECOND);
    CHECK(strncmp(shown(), "step 500/1000", 13) == 0);
    progress_destroy(progress);
}

TEST(a_terminal_is_redrawn_at_most_ten_times_a_second)
{
    open_terminal(120);
    struct progress *progress = made(slave);
    int drawn = 0;
    for (uint64_t now = SECOND; now < 2 * SECOND; now += SECOND / 1000) {
        progress_update(progress, &half, now);
        if (shown()[0] != '\0') drawn++;
    }
    CHECK_INT(drawn, 10);
    progress_log(progress, &half, 2 * SECOND + 1); /* a line that was asked for is not held back */
    CHECK(shown()[0] == '\r');
    progress_destroy(progress);
    CHECK_STR(shown(), "\r\033[K");
}

/* The line fits the terminal with a column to spare, whatever its width. */
TEST(a_line_is_cut_to_the_width)
{
    static const uint16_t widths[] = {1, 2, 20, 80, 81, 82, 300, 5000};
    const size_t whole =
        strlen("step 500/1000  epoch 2  loss 0.43123  lr 0.09877  812,345 examples/s");
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        open_terminal(widths[i]);
        struct progress *progress = made(slave);
        progress_update(progress, &half, SECOND);
        const size_t wide = strlen(shown()) - 4; /* without "\r" and the clearing of the rest */
        CHECK_INT(wide, whole < widths[i] ? whole : (size_t)widths[i] - 1);
        progress_destroy(progress);
        close(master);
        close(slave);
    }
    open_terminal(0); /* a terminal that does not say */
    struct progress *progress = made(slave);
    struct progress_state state = half;
    state.steps_max = UINT64_MAX;
    progress_update(progress, &state, SECOND);
    CHECK_INT(strlen(shown()) - 4, 79);
    progress_destroy(progress);
}

TEST(time_left_goes_by_what_this_run_has_done)
{
    open_terminal(200);
    struct progress *progress = made(slave);
    struct progress_state state = half; /* resumed at 500 of 1000 */
    progress_update(progress, &state, SECOND);
    CHECK(strstr(shown(), "left") == NULL);
    state.step = 750;
    progress_update(progress, &state, 61 * SECOND);
    CHECK_HAS(shown(), "01:00 left");
    state.share_done = 0.9; /* the data ends before the steps do */
    progress_update(progress, &state, 81 * SECOND);
    CHECK_HAS(shown(), "00:20 left");
    progress_destroy(progress);
}

/* A log line is written on a line of its own, and the live line comes back below it. */
TEST(it_steps_aside_for_log_lines)
{
    open_terminal(120);
    CHECK(dup2(slave, STDERR_FILENO) == STDERR_FILENO);
    struct progress *progress = made(STDERR_FILENO);
    log_line(LOG_INFO, "test", "nothing drawn yet");
    CHECK(strstr(shown(), "step") == NULL);
    progress_update(progress, &half, SECOND);
    shown();
    log_line(LOG_INFO, "test", "hello");
    const char *text = shown();
    CHECK(strncmp(text, "\r\033[K", 4) == 0);
    const char *hello = strstr(text, "hello\r\n");
    CHECK(hello != NULL);
    CHECK(strncmp(hello + 7, "\rstep 500", 9) == 0);
    progress_note(progress, "epoch 1 done");
    CHECK(strncmp(shown(), "\r\033[Kepoch 1 done\r\n\rstep 500", 27) == 0);
    progress_clear(progress);
    shown();
    log_line(LOG_INFO, "test", "cleared");
    CHECK(strstr(shown(), "step") == NULL);
    progress_destroy(progress);
    log_line(LOG_INFO, "test", "after");
    CHECK_HAS(shown(), "after");
}

static void *log_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++) log_line(LOG_INFO, "test", "line %d end", i);
    return NULL;
}

static void *show_many(void *arg)
{
    for (int i = 0; i < 3000; i++) progress_log(arg, &half, SECOND + (uint64_t)i);
    return NULL;
}

/* Log lines from other threads never share a line with the live one. This thread reads what both
 * write: a terminal that nobody reads from makes its writers wait. */
TEST(other_threads_may_log_meanwhile)
{
    open_terminal(120);
    CHECK(dup2(slave, STDERR_FILENO) == STDERR_FILENO);
    struct progress *progress = made(STDERR_FILENO);
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, log_many, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, show_many, progress) == 0);
    struct str all = {0};
    for (int done = 0; done < 2;) {
        if (pthread_tryjoin_np(threads[done], NULL) == 0) done++;
        str_add(&all, shown());
    }
    CHECK(!all.failed);
    for (char *line = strtok(all.text, "\r\n"); line != NULL; line = strtok(NULL, "\r\n")) {
        if (strncmp(line, "\033[K", 3) == 0) line += 3;
        CHECK(strstr(line, " end") == NULL || strstr(line, "step") == NULL);
    }
    str_fini(&all);
    progress_destroy(progress);
}

TEST(a_failed_allocation_is_an_error)
{
    struct progress *progress = NULL;
    mem_fail_nth(1);
    CHECK_INT(progress_create(1, &progress, &err), SHOAL_ENOMEM);
    CHECK(mem_fail_nth(0));
    progress_destroy(NULL);
}
