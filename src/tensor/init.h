/* init says how a variable's first values are drawn: a kind and two numbers, already worked out
 * from the shape, so that store and graph need not know what Glorot or He meant. The drawing itself
 * is the store's, keyed by (seed, name, element): the same on any machine. */
#ifndef SHOAL_TENSOR_INIT_H
#define SHOAL_TENSOR_INIT_H

#include <math.h>

enum init_kind {
    INIT_CONSTANT,         /* a */
    INIT_UNIFORM,          /* in [a, b) */
    INIT_NORMAL,           /* mean a, standard deviation b */
    INIT_TRUNCATED_NORMAL, /* the same, redrawn beyond two standard deviations */
    INIT_KIND_COUNT
};

struct init {
    enum init_kind kind;
    float a;
    float b;
};

static inline struct init init_constant(float value)
{
    return (struct init){.kind = INIT_CONSTANT, .a = value};
}

static inline struct init init_uniform(float low, float high)
{
    return (struct init){.kind = INIT_UNIFORM, .a = low, .b = high};
}

static inline struct init init_truncated_normal(float mean, float deviation)
{
    return (struct init){.kind = INIT_TRUNCATED_NORMAL, .a = mean, .b = deviation};
}

/* Glorot and Bengio, AISTATS '10: in +-sqrt(6 / (inputs + outputs)). Keras takes the two
 * dimensions of a matrix, an embedding table's too. */
static inline struct init init_glorot_uniform(double inputs, double outputs)
{
    const float limit = (float)sqrt(6.0 / (inputs + outputs));
    return init_uniform(-limit, limit);
}

/* He et al., ICCV '15: in +-sqrt(6 / inputs). */
static inline struct init init_he_uniform(double inputs)
{
    const float limit = (float)sqrt(6.0 / inputs);
    return init_uniform(-limit, limit);
}

#endif
