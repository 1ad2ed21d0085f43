#include "base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "../tests/test.h"

/* Lines go to a file in the test's folder, which is standard error for the time of the test. */
static char text[1 << 20];

static void capture_start(void)
{
    const int fd = open("log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0666);
    CHECK(fd >= 0);
    CHECK(dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
}

static const char *captured(const char *name)
{
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* A line is time, level, module, message. */
TEST(line_has_its_parts)
{
    capture_start();
    log_line(LOG_WARN, "train", "checkpoint: kept step=%d", 1000);
    const char *line = captured("log");
    CHECK_INT(strlen(line), strlen("12:00:03.120 warn train: checkpoint: kept step=1000\n"));
    for (int i = 0; i < 12; i++) {
        const char want = "00:00:00.000"[i];
        CHECK(want == '0' ? isdigit((unsigned char)line[i]) : line[i] == want);
    }
    CHECK_STR(line + 12, " warn train: checkpoint: kept step=1000\n");
}

/* Levels below the one that is set are not written. */
TEST(levels_are_filtered)
{
    capture_start();
    CHECK(log_wants(LOG_INFO) && !log_wants(LOG_DEBUG));
    log_line(LOG_DEBUG, "m", "hidden");
    log_set_level(LOG_ERROR);
    log_line(LOG_WARN, "m", "hidden");
    log_line(LOG_ERROR, "m", "shown");
    log_set_level(LOG_DEBUG);
    log_line(LOG_DEBUG, "m", "debugged");
    CHECK(strstr(captured("log"), "hidden") == NULL);
    CHECK_HAS(text, "error m: shown\n");
    CHECK_HAS(text, "debug m: debugged\n");
}

/* The environment sets the level; a word that is none changes nothing. */
TEST(environment_sets_the_level)
{
    setenv("SHOAL_LOG", "debug", 1);
    CHECK(log_wants(LOG_DEBUG));
}

TEST(unknown_level_in_the_environment_is_info)
{
    setenv("SHOAL_LOG", "loud", 1);
    CHECK(log_wants(LOG_INFO) && !log_wants(LOG_DEBUG));
}

/* A second file gets the same lines until it is taken away. */
TEST(second_file_gets_the_lines)
{
    capture_start();
    const int fd = open("second", O_WRONLY | O_CREAT | O_APPEND, 0666);
    CHECK(fd >= 0);
    log_set_file(fd);
    log_line(LOG_INFO, "m", "both");
    log_set_file(-1);
    log_line(LOG_INFO, "m", "one");
    close(fd);
    CHECK_HAS(captured("second"), "both");
    CHECK(strstr(text, "one") == NULL);
    CHECK_HAS(captured("log"), "one");
}

/* An overlong line is cut, and still ends. */
TEST(long_line_is_cut)
{
    capture_start();
    static char words[10000];
    memset(words, 'x', sizeof words - 1);
    log_line(LOG_INFO, "m", "%s", words);
    const size_t count = strlen(captured("log"));
    CHECK(count < 2050 && count > 1900);
    CHECK(text[count - 1] == '\n');
}

static void count_call(void *ctx)
{
    ++*(int *)ctx;
}

/* Hooks run only for a terminal: a file has no progress line to step aside for. */
TEST(hooks_are_for_terminals)
{
    capture_start();
    int calls = 0;
    log_set_hooks(count_call, count_call, &calls);
    log_line(LOG_INFO, "m", "to a file");
    CHECK_INT(calls, 0);
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return;
    const int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(side >= 0 && dup2(side, STDERR_FILENO) >= 0);
    log_line(LOG_INFO, "m", "to a terminal");
    CHECK_INT(calls, 2);
    log_set_hooks(NULL, NULL, NULL);
    log_line(LOG_INFO, "m", "again");
    CHECK_INT(calls, 2);
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 500; i++) log_line(LOG_INFO, "m", "thread=%s line=%d end", (char *)arg, i);
    return NULL;
}

/* Lines of several threads are whole. */
TEST(lines_are_whole)
{
    capture_start();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, log_many, (char *[]){"a", "b", "c"}[i]) == 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    int lines = 0;
    captured("log");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        CHECK_HAS(line + 12, " info m: thread=");
        CHECK_STR(line + strlen(line) - 4, " end");
    }
    CHECK_INT(lines, 1500);
}
