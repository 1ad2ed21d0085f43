#include "cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"

static const struct args_flag *find_flag(const struct args_command *command, const char *name,
                                         size_t bytes)
{
    for (size_t i = 0; i < command->flags_count; i++) {
        const char *known = command->flags[i].name;
        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0) return &command->flags[i];
    }
    return NULL;
}

static int unknown_flag(const struct args_command *command, const char *name, size_t bytes,
                        struct err *err)
{
    enum { NAMES_MAX = 64 };
    const char *names[NAMES_MAX];
    char word[64];
    size_t count = 0;
    for (; count < command->flags_count && count < NAMES_MAX; count++) {
        names[count] = command->flags[count].name;
    }
    snprintf(word, sizeof word, "%.*s", (int)(bytes < 60 ? bytes : 60), name);
    const char *nearest = str_nearest(word, names, count);
    if (nearest != NULL) {
        return err_set(err, SHOAL_EINVAL,
                       "%s: unknown flag --%s; did you mean --%s? `shoal %s --help` lists them",
                       command->name, word, nearest, command->name);
    }
    return err_set(err, SHOAL_EINVAL, "%s: unknown flag --%s; `shoal %s --help` lists them",
                   command->name, word, command->name);
}

static int take_u64(const struct args_command *command, const struct args_flag *flag,
                    const char *text, struct err *err)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        return err_set(err, SHOAL_EINVAL, "%s: --%s: found \"%s\"; a whole number is wanted",
                       command->name, flag->name, text);
    }
    *(uint64_t *)flag->out = value;
    return 0;
}

static int take_value(const struct args_command *command, const struct args_flag *flag,
                      const char *text, struct err *err)
{
    switch (flag->type) {
    case ARGS_STRING: *(const char **)flag->out = text; return 0;
    case ARGS_U64: return take_u64(command, flag, text, err);
    case ARGS_LIST: {
        struct args_list *list = flag->out;
        if (list->count == ARGS_LIST_MAX) {
            return err_set(err, SHOAL_ELIMIT, "%s: --%s is given more than %d times",
                           command->name, flag->name, ARGS_LIST_MAX);
        }
        list->items[list->count++] = text;
        return 0;
    }
    case ARGS_BOOL: break;
    }
    ASSERT(false);
    return 0;
}

/* Reads one flag at argv[*at]; moves *at past its value. */
static int take_flag(const struct args_command *command, int argc, char **argv, int *at,
                     struct err *err)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    const size_t bytes = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct args_flag *flag = find_flag(command, name, bytes);
    if (flag == NULL) return unknown_flag(command, name, bytes, err);
    if (flag->type == ARGS_BOOL) {
        if (equals != NULL) {
            return err_set(err, SHOAL_EINVAL, "%s: --%s takes no value", command->name, flag->name);
        }
        *(bool *)flag->out = true;
        return 0;
    }
    if (equals != NULL) return take_value(command, flag, equals + 1, err);
    if (*at + 1 >= argc) {
        return err_set(err, SHOAL_EINVAL, "%s: --%s wants a value: --%s %s", command->name,
                       flag->name, flag->name, flag->value);
    }
    return take_value(command, flag, argv[++*at], err);
}

static void print_help(const struct args_command *command)
{
    printf("%s\n\nusage: shoal %s %s\n", command->summary, command->name, command->usage);
    if (command->flags_count > 0) printf("\n");
    for (size_t i = 0; i < command->flags_count; i++) {
        const struct args_flag *flag = &command->flags[i];
        char left[40];
        snprintf(left, sizeof left, "--%s%s%s", flag->name, flag->value != NULL ? " " : "",
                 flag->value != NULL ? flag->value : "");
        printf("  %-22s %s\n", left, flag->help);
    }
    if (command->examples != NULL) printf("\nexamples:\n%s", command->examples);
}

int args_parse(const struct args_command *command, int argc, char **argv,
               const char **positionals_out, size_t *positionals_count_out, bool *help_out,
               struct err *err)
{
    size_t count = 0;
    bool flags_end = false;
    *help_out = false;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        if (!flags_end && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(command);
            *help_out = true;
            return 0;
        }
        if (!flags_end && strcmp(word, "--") == 0) {
            flags_end = true;
        } else if (!flags_end && word[0] == '-' && word[1] == '-') {
            const int rc = take_flag(command, argc, argv, &at, err);
            if (rc != 0) return rc;
        } else if (!flags_end && word[0] == '-' && word[1] != '\0') {
            return err_set(err, SHOAL_EINVAL,
                           "%s: unknown flag %s; flags are long: `shoal %s --help` lists them",
                           command->name, word, command->name);
        } else if (count == command->positionals_max) {
            return err_set(err, SHOAL_EINVAL, "%s: \"%s\" is one word too many; usage: shoal %s %s",
                           command->name, word, command->name, command->usage);
        } else {
            positionals_out[count++] = word;
        }
    }
    if (count < command->positionals_min) {
        return err_set(err, SHOAL_EINVAL, "%s: something is missing; usage: shoal %s %s",
                       command->name, command->name, command->usage);
    }
    *positionals_count_out = count;
    return 0;
}
