/* err is the one error convention: a function that can fail returns 0 or a negative code from the
 * list below and describes what happened in a caller-owned struct err, which may be NULL.
 * Codes say what is now unusable; messages say what was attempted, with which values. No threads,
 * no allocation. */
#ifndef SHOAL_BASE_ERR_H
#define SHOAL_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

/* code, value, text. Values are part of include/shoal.h's contract: append, never renumber. */
#define ERR_LIST(X)                                                                                \
    X(SHOAL_EINVAL, -1, "invalid argument")                                                        \
    X(SHOAL_ENOMEM, -2, "out of memory")                                                           \
    X(SHOAL_EIO, -3, "input/output error")                                                         \
    X(SHOAL_ENOENT, -4, "not found")                                                               \
    X(SHOAL_EACCES, -5, "permission denied")                                                       \
    X(SHOAL_EEXIST, -6, "already exists")                                                          \
    X(SHOAL_ELIMIT, -7, "limit reached")                                                           \
    X(SHOAL_ECORRUPT, -8, "damaged data")                                                          \
    X(SHOAL_ECONFIG, -9, "wrong setting")                                                          \
    X(SHOAL_EBUSY, -10, "in use")                                                                  \
    X(SHOAL_ESPACE, -11, "no space left")                                                          \
    X(SHOAL_ENAN, -12, "not a finite number")                                                      \
    X(SHOAL_EMISMATCH, -13, "does not fit")                                                        \
    X(SHOAL_EINTR, -14, "interrupted")                                                             \
    X(SHOAL_ETIME, -15, "deadline passed")                                                         \
    X(SHOAL_EPEER, -16, "peer lost")                                                               \
    X(SHOAL_EPROTO, -17, "protocol violation")                                                     \
    X(SHOAL_ESTALE, -18, "out of date")                                                            \
    X(SHOAL_END, -19, "end of data")

enum err_code {
    SHOAL_OK = 0,
#define X(code, value, text) code = (value),
    ERR_LIST(X)
#undef X
};

#define ERR_TEXT_MAX 512

struct err {
    int code;
    char text[ERR_TEXT_MAX];
};

/* Records code and message (replacing what was there) and returns code. err may be NULL. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Like err_set, appending strerror and choosing the code from errno_value. */
int err_set_errno(struct err *err, int errno_value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the message that is there and returns its code; where err may be NULL the
 * caller returns its own rc instead. */
int err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The general text of a code: "damaged data". Never NULL. */
const char *err_code_text(int code);

#endif
