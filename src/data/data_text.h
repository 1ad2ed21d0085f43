/* data_text reads numbers from text and writes integers as text: exact, without locale, without
 * allocation. */
#ifndef SHOAL_DATA_TEXT_H
#define SHOAL_DATA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal text of an integer; returns how many bytes. Not NUL-terminated. */
size_t data_text_of_i64(int64_t integer, char out[24]);

/* The whole text is a number (spaces around it are allowed), correctly rounded. "nan" and "inf" are
 * numbers too. false: it is not one. */
bool data_text_to_f64(const void *text, size_t bytes, double *out);

/* The whole text is an integer that fits. "7.0" is not. */
bool data_text_to_i64(const void *text, size_t bytes, int64_t *out);

#endif
