#include "../tests/test.h"

#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TESTS_MAX 512
#define DEADLINE_SECS_DEFAULT 60

static struct {
    const char *name;
    void (*run)(void);
} tests[TESTS_MAX];
static int tests_count;

void test_register(const char *name, void (*run)(void))
{
    if (tests_count == TESTS_MAX) abort();
    tests[tests_count].name = name;
    tests[tests_count++].run = run;
}

/* The golden files this test has asked for: a failure names them. */
#define GOLDEN_FILES_MAX 32
static char golden_files[GOLDEN_FILES_MAX][PATH_MAX];
static int golden_count;

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "  %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    for (int i = 0; i < golden_count; i++) fprintf(stderr, "  compared with %s\n", golden_files[i]);
    exit(1);
}

static void remember_golden(const char *path)
{
    for (int i = 0; i < golden_count; i++) {
        if (strcmp(golden_files[i], path) == 0) return;
    }
    if (golden_count == GOLDEN_FILES_MAX) return;
    snprintf(golden_files[golden_count++], PATH_MAX, "%s", path);
}

const char *test_path(const char *relative)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    const char *golden = getenv("GOLDEN");
    const char *root = getenv("SHOAL_TESTS");
    const bool is_golden = strncmp(relative, "golden/", 7) == 0;
    if (is_golden && golden != NULL) {
        snprintf(path, PATH_MAX, "%s/%s", golden, relative + 7);
    } else {
        snprintf(path, PATH_MAX, "%s/%s", root == NULL ? "tests" : root, relative);
    }
    if (is_golden) remember_golden(path);
    return path;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* 0 passed, else what to say. */
static const char *run_one(int index)
{
    static char why[64];
    char folder[] = "/tmp/shoal-test-XXXXXX";
    if (mkdtemp(folder) == NULL) return "no temporary folder";
    const char *deadline = getenv("TEST_DEADLINE");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (chdir(folder) != 0) _exit(1);
        alarm(deadline != NULL ? (unsigned)atoi(deadline) : DEADLINE_SECS_DEFAULT);
        tests[index].run();
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGALRM) return "deadline passed";
        snprintf(why, sizeof why, "signal %d", WTERMSIG(status));
        return why;
    }
    return WEXITSTATUS(status) == 0 ? NULL : "failed";
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strstr(name, argv[i]) != NULL) return true;
    }
    return argc <= 1;
}

int main(int argc, char **argv)
{
    int passed = 0;
    int failed = 0;
    for (int i = 0; i < tests_count; i++) {
        if (!wanted(tests[i].name, argc, argv)) continue;
        const char *why = run_one(i);
        if (why == NULL) {
            passed++;
        } else {
            failed++;
            fprintf(stderr, "FAIL %s: %s\n", tests[i].name, why);
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
