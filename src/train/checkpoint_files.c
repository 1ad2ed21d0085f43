#include "train/checkpoint_files.h"

#include "base/assert.h"
#include "base/mem.h"

int checkpoint_files_init(struct checkpoint_files *files, const struct checkpoint *checkpoint,
                          struct err *err)
{
    *files = (struct checkpoint_files){.checkpoint = checkpoint};
    files->files = mem_alloc_array(MEM_TRAIN, checkpoint->files_count, sizeof *files->files);
    if (files->files == NULL) return err_set(err, SHOAL_ENOMEM, "no memory for a list of files");
    return 0;
}

void checkpoint_files_fini(struct checkpoint_files *files)
{
    for (uint32_t i = 0; files->files != NULL && i < files->checkpoint->files_count; i++) {
        safetensors_close(files->files[i]);
    }
    mem_free(files->files);
    str_fini(&files->path);
    *files = (struct checkpoint_files){0};
}

int checkpoint_files_get(struct checkpoint_files *files, uint32_t index,
                         const struct safetensors **file_out, struct err *err)
{
    ASSERT(index < files->checkpoint->files_count);
    str_clear(&files->path);
    str_printf(&files->path, "%s/%s", files->checkpoint->folder,
               files->checkpoint->files[index].name);
    if (files->path.failed) return err_set(err, SHOAL_ENOMEM, "no memory for a path");
    if (files->files[index] == NULL) {
        const int rc = safetensors_open(files->path.text, &files->files[index], err);
        if (rc != 0) return rc;
    }
    *file_out = files->files[index];
    return 0;
}
