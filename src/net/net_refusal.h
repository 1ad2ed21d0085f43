/* net_refusal lists why a connection or a frame is refused. The names are part of what we promise:
 * they are the keys of the object `refused` in the report of a run, and the numbers go over the wire
 * in a refusal, so they are appended to, never renumbered. */
#ifndef SHOAL_NET_REFUSAL_H
#define SHOAL_NET_REFUSAL_H

/* name, value, key in reports, words for people */
#define NET_REFUSAL_LIST(X)                                                                        \
    X(NET_OK, 0, "ok", "not refused")                                                              \
    X(NET_REFUSED_MAGIC, 1, "magic", "what arrived is not our protocol")                           \
    X(NET_REFUSED_VERSION, 2, "version", "another version of the protocol")                        \
    X(NET_REFUSED_CHECKSUM, 3, "checksum", "a checksum does not fit")                              \
    X(NET_REFUSED_LENGTH, 4, "length", "a length beyond what is allowed")                          \
    X(NET_REFUSED_HELLO, 5, "hello", "a greeting that is malformed or out of turn")                \
    X(NET_REFUSED_CLUSTER, 6, "cluster", "another cluster")                                        \
    X(NET_REFUSED_TASK, 7, "task", "a task that is not in this cluster")                           \
    X(NET_REFUSED_SECRET, 8, "secret", "a wrong cluster secret, or none")                          \
    X(NET_REFUSED_CERTIFICATE, 9, "certificate", "a certificate that is not of this cluster")      \
    X(NET_REFUSED_TLS, 10, "tls", "no TLS where TLS is needed")                                    \
    X(NET_REFUSED_REPLAY, 11, "replay", "a greeting made for another connection")                  \
    X(NET_REFUSED_STALE, 12, "stale", "an older incarnation of a task that has come back")         \
    X(NET_REFUSED_CROSSED, 13, "crossed", "a task that is to be called, and does not call")        \
    X(NET_REFUSED_SILENT, 14, "silent", "said nothing, or not all, within the time for greetings") \
    X(NET_REFUSED_HALF_FRAME, 15, "half_frame", "stopped in the middle of a frame")                \
    X(NET_REFUSED_TOO_MANY, 16, "too_many",                                                        \
      "too many connections that have not said who they are")                                      \
    X(NET_REFUSED_FRAME, 17, "frame", "a frame that is malformed or out of turn")                  \
    X(NET_REFUSED_SENDER, 18, "sender", "a frame in the name of another task")                     \
    X(NET_REFUSED_MEMORY, 19, "memory", "no memory, or no descriptor, for it")                     \
    X(NET_REFUSED_CREDENTIALS, 20, "credentials", "a process of another user")

enum net_refusal {
#define X(name, value, key, words) name = (value),
    NET_REFUSAL_LIST(X)
#undef X
        NET_REFUSAL_COUNT
};

/* "half_frame"; "unknown" for a number we do not know. */
const char *net_refusal_key(unsigned refusal);
/* "stopped in the middle of a frame" */
const char *net_refusal_words(unsigned refusal);

#endif
