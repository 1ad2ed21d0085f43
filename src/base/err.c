#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

int err_set(struct err *err, int code, const char *format, ...)
{
    ASSERT(code < 0);
    if (err == NULL) return code;
    va_list args;
    va_start(args, format);
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}

static int code_of_errno(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR: return SHOAL_ENOENT;
    case EACCES:
    case EPERM:
    case EROFS: return SHOAL_EACCES;
    case EEXIST: return SHOAL_EEXIST;
    case ENOMEM: return SHOAL_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return SHOAL_ESPACE;
    case EINTR: return SHOAL_EINTR;
    case EBUSY: return SHOAL_EBUSY;
    default: return SHOAL_EIO;
    }
}

int err_set_errno(struct err *err, int errno_value, const char *format, ...)
{
    const int code = code_of_errno(errno_value);
    if (err == NULL) return code;
    va_list args;
    va_start(args, format);
    err->code = code;
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof err->text) {
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s", strerror(errno_value));
    }
    return code;
}

int err_wrap(struct err *err, const char *format, ...)
{
    if (err == NULL) return SHOAL_EIO;
    ASSERT(err->code < 0);
    char inner[ERR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof err->text) {
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s", inner);
    }
    return err->code;
}

const char *err_code_text(int code)
{
    switch (code) {
    case SHOAL_OK: return "ok";
#define X(name, value, text)                                                                       \
    case name: return text;
        ERR_LIST(X)
#undef X
    default: return "unknown error";
    }
}
