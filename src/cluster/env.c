#include "cluster/env.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

void env_logf(const struct env *env, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    env->log(env->ctx, text);
}

static const struct {
    const char *word;
    const char *text;
} rules[] = {
#define X(name, word, text) {word, text},
    ENV_RULE_LIST(X)
#undef X
};

const char *env_rule_word(enum env_rule rule)
{
    ASSERT(rule < ENV_RULES_COUNT);
    return rules[rule].word;
}

const char *env_rule_text(enum env_rule rule)
{
    ASSERT(rule < ENV_RULES_COUNT);
    return rules[rule].text;
}
