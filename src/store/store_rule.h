/* store_rule is an update rule: how a value moves for a gradient, with which slots. The formulas are
 * TensorFlow's (tensor/kern.h states each); the vector loops are tensor's kernels. A plain value: no
 * memory, no threads.
 *
 * A rule is applied in two stages: store_rule_step works out once what a step fixes for every
 * element (the learning rate from the schedule, Adam's bias correction with t = step + 1), then
 * store_rule_apply moves a run of elements, any number of them at a time, on any thread.
 * LAMB needs the norms of a whole block between the two halves of a move: store_rule_apply moves m
 * and v, and store_rule_finish, once they are all there, moves the values of the block.
 *
 *   slots, as named in checkpoints        initial value
 *   momentum, nesterov: momentum          0
 *   adagrad:            adagrad           initial_accumulator
 *   rmsprop:            rms, momentum     1, 0
 *   adam, adamw, lazy_adam, lamb: m, v    0, 0
 *   ftrl:               accum, linear     initial_accumulator, 0
 *
 * Sparse gradients touch their own rows only, with one exception: `adam` moves every row of a table
 * at every push (TensorFlow decays m and v of all rows), so a dynamic table refuses it and suggests
 * `lazy_adam`. LAMB's norms are taken over fixed blocks: a shard of a dense tensor (a tensor of up to
 * STORE_SHARD_BYTES is one), a row of an embedding.
 *
 * The gradient that a rule sees: g = grad, delay-compensated if asked (g + lambda g^2 (now - pulled)),
 * clipped to [-clip_value, clip_value], plus l2 w + l1 sign(w); ftrl's l1 and l2 are its own. */
#ifndef SHOAL_STORE_RULE_H
#define SHOAL_STORE_RULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "store/store_schedule.h"
#include "tensor/kern.h"

enum store_rule_type {
    STORE_SGD,
    STORE_MOMENTUM,
    STORE_NESTEROV,
    STORE_ADAGRAD,
    STORE_RMSPROP,
    STORE_ADAM,
    STORE_ADAMW,
    STORE_LAZY_ADAM,
    STORE_FTRL,
    STORE_LAMB,
    STORE_RULE_COUNT
};

#define STORE_SLOTS_MAX 2u

struct store_rule {
    enum store_rule_type type;
    struct store_schedule schedule;
    float momentum; /* momentum, nesterov, rmsprop */
    float rho;      /* rmsprop: decay of the mean square */
    float beta1;    /* adam and kin */
    float beta2;
    float epsilon;             /* rmsprop, adam and kin */
    float initial_accumulator; /* adagrad, ftrl */
    float power;               /* ftrl: learning_rate_power */
    float weight_decay;        /* adamw (times the learning rate), lamb */
    float l1;
    float l2;
    float clip_value;   /* 0: none */
    float delay_lambda; /* 0: no delay compensation */
};

/* TensorFlow's defaults of a rule: adam 0.9, 0.999, 1e-8; adagrad 0.1; rmsprop 0.9, 0, 1e-10;
 * ftrl 0.1, -0.5; momentum 0.9; adamw weight_decay 0.01; lamb epsilon 1e-6, weight_decay 0.
 * The schedule is a constant learning_rate. */
struct store_rule store_rule_default(enum store_rule_type type, double learning_rate);

/* Reads an `optimizer:` map: type, learning_rate, the settings above by these names
 * (`learning_rate_power` for power; rmsprop's rho may be written `decay: 0.9`), and `decay:` a
 * schedule. A setting that the type does not have is an error. */
int store_rule_parse(const struct config_node *optimizer, struct store_rule *rule_out,
                     struct err *err);

const char *store_rule_name(enum store_rule_type type); /* "lazy_adam" */
uint32_t store_rule_slots(const struct store_rule *rule);
const char *store_rule_slot_name(const struct store_rule *rule, uint32_t slot);
float store_rule_slot_initial(const struct store_rule *rule, uint32_t slot);

/* What one step fixes for every element. */
struct store_rule_step {
    const struct kern *kern;
    struct kern_update update;
    float learning_rate; /* the schedule's */
    float delay_lambda;
    bool needs_finish; /* lamb */
    float m_scale;
    float v_scale;
};

void store_rule_step(const struct store_rule *rule, uint64_t step,
                     struct store_rule_step *step_out);

/* Moves `count` elements; pulled (NULL: none) is the value the gradient was computed from. Slots that
 * the rule has not may be NULL. */
void store_rule_apply(const struct store_rule_step *step, size_t count, float *value, float *slot0,
                      float *slot1, const float *gradient, const float *pulled);

/* needs_finish: the second half for a block whose m and v have moved. */
void store_rule_finish(const struct store_rule_step *step, size_t count, float *value,
                       const float *m, const float *v);

#endif
