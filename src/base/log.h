/* log writes one line per event to stderr (and to a second file when set):
 *     12:00:03.120 warn train checkpoint: kept the previous one step=1000 bytes=123
 * Volume by level: error = someone must act; warn = odd but going on; info = once per state
 * change; debug = once per object. Thread safe; a line is written whole. */
#ifndef SHOAL_BASE_LOG_H
#define SHOAL_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_INFO; SHOAL_LOG=debug in the environment */

/* Also append lines to this file descriptor (-1: no more). The caller keeps it. */
void log_set_file(int fd);

/* Called before and after a line is written to a terminal, so that a progress line can step aside.
 * They run on the logging thread, one at a time, and must not log. */
void log_set_hooks(void (*before)(void *ctx), void (*after)(void *ctx), void *ctx);

/* Whether lines of this level are written: to skip the work of making one. */
bool log_wants(enum log_level level);

void log_line(enum log_level level, const char *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
