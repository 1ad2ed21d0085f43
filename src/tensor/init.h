/* init says how a variable's first values are drawn: a kind and a number, already worked out from
 * the shape, so that a graph carries it without knowing what Glorot or He meant. The drawing itself
 * is the store's, keyed by (seed, name, element): the same on any machine. */
#ifndef SHOAL_TENSOR_INIT_H
#define SHOAL_TENSOR_INIT_H

#include <math.h>

enum init_kind {
    INIT_CONSTANT,         /* value */
    INIT_UNIFORM,          /* in [-value, value) */
    INIT_NORMAL,           /* mean 0, standard deviation value */
    INIT_TRUNCATED_NORMAL, /* the same, redrawn beyond two standard deviations */
    INIT_KIND_COUNT
};

struct init {
    enum init_kind kind;
    float value;
};

static inline struct init init_constant(float value)
{
    return (struct init){.kind = INIT_CONSTANT, .value = value};
}

static inline struct init init_truncated_normal(double deviation)
{
    return (struct init){.kind = INIT_TRUNCATED_NORMAL, .value = (float)deviation};
}

static inline struct init init_normal(double deviation)
{
    return (struct init){.kind = INIT_NORMAL, .value = (float)deviation};
}

/* Glorot and Bengio, AISTATS '10. Keras takes the two dimensions of a matrix, an embedding table's
 * too. */
static inline struct init init_glorot_uniform(double inputs, double outputs)
{
    return (struct init){.kind = INIT_UNIFORM, .value = (float)sqrt(6.0 / (inputs + outputs))};
}

/* He et al., ICCV '15. */
static inline struct init init_he_uniform(double inputs)
{
    return (struct init){.kind = INIT_UNIFORM, .value = (float)sqrt(6.0 / inputs)};
}

#endif
