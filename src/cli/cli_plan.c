/* shoal plan: what a job will take, before anything starts. */
#include "base/str.h"
#include "cli/cli.h"
#include "train/job.h"
#include "train/job_plan.h"

static int print_plan(void *ctx, const struct job *job, struct err *err)
{
    const bool json = *(const bool *)ctx;
    struct job_plan plan = {0};
    struct str text = {0};
    int rc = job_plan_make(job, &plan, err);
    if (rc != 0) return rc;
    if (json) {
        job_plan_json(&plan, &text);
    } else {
        job_plan_text(&plan, &text);
    }
    rc = text.failed ? err_set(err, SHOAL_ENOMEM, "no memory to print the plan")
                     : cli_print(text.text, err);
    str_fini(&text);
    job_plan_fini(&plan);
    return rc;
}

int cli_plan(int argc, char **argv)
{
    struct args_list sets = {0};
    bool json = false;
    const struct args_flag flags[] = {
        {"set", ARGS_LIST, &sets, "A.B=VALUE", "change a setting of the job file; may be repeated"},
        {"json", ARGS_BOOL, &json, NULL, "one JSON object"},
    };
    const struct args_command command = {
        .name = "plan",
        .usage = "JOB.yaml [flags]",
        .summary = "Says what a job will take: tables, memory, flops and bytes of a step.",
        .examples = "  shoal plan examples/din.yaml\n",
        .flags = flags,
        .flags_count = sizeof flags / sizeof flags[0],
        .positionals_min = 1,
        .positionals_max = 1,
    };
    return cli_with_job(&command, argc, argv, &sets, print_plan, &json);
}
