#include "base/err.h"

#include <errno.h>

#include "../tests/test.h"

TEST(set_records_code_and_message_and_returns_the_code)
{
    struct err err = {0};
    CHECK_INT(err_set(&err, SHOAL_ELIMIT, "%u rows, limit %u", 9u, 8u), SHOAL_ELIMIT);
    CHECK_INT(err.code, SHOAL_ELIMIT);
    CHECK_STR(err.text, "9 rows, limit 8");
    CHECK_INT(err_set(NULL, SHOAL_EIO, "nobody listens"), SHOAL_EIO);
}

TEST(errno_chooses_the_code_and_is_said_in_words)
{
    static const struct {
        int errno_value;
        int want;
    } rows[] = {
        {ENOENT, SHOAL_ENOENT}, {ENOTDIR, SHOAL_ENOENT}, {EACCES, SHOAL_EACCES},
        {EROFS, SHOAL_EACCES},  {EEXIST, SHOAL_EEXIST},  {ENOSPC, SHOAL_ESPACE},
        {EDQUOT, SHOAL_ESPACE}, {ENOMEM, SHOAL_ENOMEM},  {EBUSY, SHOAL_EBUSY},
        {EINTR, SHOAL_EINTR},   {EIO, SHOAL_EIO},        {EPIPE, SHOAL_EIO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        CHECK_INT(err_set_errno(&err, rows[i].errno_value, "open %s", "x"), rows[i].want);
        CHECK_HAS(err.text, "open x: ");
        CHECK_HAS(err.text, strerror(rows[i].errno_value));
    }
    CHECK_INT(err_set_errno(NULL, ENOENT, "open"), SHOAL_ENOENT);
}

TEST(wrap_puts_context_before_and_keeps_the_code)
{
    struct err err = {0};
    err_set(&err, SHOAL_ECORRUPT, "length 9");
    CHECK_INT(err_wrap(&err, "record %d", 3), SHOAL_ECORRUPT);
    CHECK_INT(err_wrap(&err, "file %s", "a"), SHOAL_ECORRUPT);
    CHECK_STR(err.text, "file a: record 3: length 9");
}

/* What does not fit is cut, and the text still ends. */
TEST(long_messages_are_cut)
{
    char word[ERR_TEXT_MAX * 2];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    struct err err = {0};
    err_set(&err, SHOAL_EIO, "%s", word);
    CHECK_INT(strlen(err.text), ERR_TEXT_MAX - 1);
    err_wrap(&err, "outer");
    CHECK_HAS(err.text, "outer: xxx");
    CHECK_INT(strlen(err.text), ERR_TEXT_MAX - 1);
    err_set_errno(&err, ENOENT, "%s", word);
    CHECK_INT(strlen(err.text), ERR_TEXT_MAX - 1);
}

TEST(every_code_has_a_text)
{
    CHECK_STR(err_code_text(SHOAL_OK), "ok");
    CHECK_STR(err_code_text(SHOAL_ECORRUPT), "damaged data");
    CHECK_STR(err_code_text(SHOAL_END), "end of data");
    CHECK_STR(err_code_text(-1000), "unknown error");
}
