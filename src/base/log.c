#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

#define LINE_MAX_BYTES 2048 /* longer lines are cut */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static _Atomic int level_now = -1; /* -1: not asked the environment yet; relaxed, a plain setting */

/* Guards what follows and the writing of a line; the hooks run under it and must not log. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file_fd = -1;
static void (*hook_before)(void *ctx);
static void (*hook_after)(void *ctx);
static void *hook_ctx;

void log_set_level(enum log_level level)
{
    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

void log_set_file(int fd)
{
    pthread_mutex_lock(&lock);
    file_fd = fd;
    pthread_mutex_unlock(&lock);
}

void log_set_hooks(void (*before)(void *ctx), void (*after)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&lock);
    hook_before = before;
    hook_after = after;
    hook_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

bool log_wants(enum log_level level)
{
    int now = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (now < 0) {
        now = LOG_INFO;
        const char *wanted = getenv("SHOAL_LOG");
        for (int i = 0; wanted != NULL && i <= LOG_DEBUG; i++) {
            if (strcmp(wanted, level_names[i]) == 0) now = i;
        }
        atomic_store_explicit(&level_now, now, memory_order_relaxed);
    }
    return (int)level <= now;
}

/* A log that cannot be written has nowhere to say so: errors are dropped. */
static void write_all(int fd, const char *text, size_t count)
{
    while (count > 0) {
        const ssize_t wrote = write(fd, text, count);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return;
        text += wrote;
        count -= (size_t)wrote;
    }
}

void log_line(enum log_level level, const char *module, const char *format, ...)
{
    ASSERT(level >= LOG_ERROR && level <= LOG_DEBUG);
    if (!log_wants(level)) return;
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t used = strftime(line, sizeof line, "%H:%M:%S", &local);
    used +=
        (size_t)snprintf(line + used, sizeof line - used,
                         ".%03ld %s %.64s: ", now.tv_nsec / 1000000, level_names[level], module);
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(line + used, sizeof line - used, format, args);
    va_end(args);
    const size_t room = sizeof line - used - 1;
    used += wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1;
    line[used++] = '\n';

    pthread_mutex_lock(&lock);
    const bool terminal = (hook_before != NULL || hook_after != NULL) && isatty(STDERR_FILENO);
    if (terminal && hook_before != NULL) hook_before(hook_ctx);
    write_all(STDERR_FILENO, line, used);
    if (terminal && hook_after != NULL) hook_after(hook_ctx);
    if (file_fd >= 0) write_all(file_fd, line, used);
    pthread_mutex_unlock(&lock);
}
