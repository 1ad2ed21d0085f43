#include "net/net_refusal.h"

static const struct {
    const char *key;
    const char *words;
} refusals[NET_REFUSAL_COUNT] = {
#define X(name, value, key, words) [value] = {key, words},
    NET_REFUSAL_LIST(X)
#undef X
};

const char *net_refusal_key(unsigned refusal)
{
    return refusal < NET_REFUSAL_COUNT ? refusals[refusal].key : "unknown";
}

const char *net_refusal_words(unsigned refusal)
{
    return refusal < NET_REFUSAL_COUNT ? refusals[refusal].words : "a reason that we do not know";
}
