/* Runs a fuzz target over the files it is given, so that every seed and every crash once found is
 * part of the ordinary tests, without libFuzzer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* The whole file in a block of its exact size, so that a sanitizer sees a read beyond its end. */
static uint8_t *read_file(const char *path, size_t *count_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    const size_t count = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(count > 0 ? count : 1);
    if (bytes == NULL || fread(bytes, 1, count, file) != count) {
        perror(path);
        exit(1);
    }
    fclose(file);
    *count_out = count;
    return bytes;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t count = 0;
        uint8_t *bytes = read_file(argv[i], &count);
        fprintf(stderr, "%s\n", argv[i]);
        LLVMFuzzerTestOneInput(bytes, count);
        free(bytes);
    }
    return 0;
}
