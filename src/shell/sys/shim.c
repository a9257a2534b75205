#define _GNU_SOURCE /* dladdr */
#include "shim.h"
#include <dlfcn.h>

#ifdef __APPLE__
#define WEAK __attribute__((weak_import))
#else
#define WEAK __attribute__((weak))
#endif

struct client;

/* Which arguments a function takes is promised by no header. So each call fills all registers in which arguments are passed:
 * a function with one more argument than is known gets zero there instead of whatever was left. `AFTER_n` declares and
 * passes those behind the n-th. */
#if defined(__x86_64__) && !defined(_WIN32)
#define AFTER_5(rest) , rest
#elif defined(__aarch64__)
#define AFTER_5(rest) , rest, rest, rest
#endif
#ifdef AFTER_5
#define AFTER_4(rest) , rest AFTER_5(rest)
#define AFTER_3(rest) , rest AFTER_4(rest)
#define AFTER_1(rest) , rest, rest AFTER_3(rest)
#define AFTER_0(rest) rest AFTER_1(rest)
#else
#define AFTER_5(rest)
#define AFTER_4(rest)
#define AFTER_3(rest)
#define AFTER_1(rest)
#define AFTER_0(rest)
#endif

/* Null if no connection has this id. Redis since 5.0, Valkey. */
extern struct client *lookupClientByID(uint64_t id AFTER_1(uintptr_t)) WEAK;

/* Four arguments since Redis 7.0. Writes the header of a push (RESP3) or of an array (RESP2) of
 * three elements, then `message_bulk` raw, `channel` as a bulk, and `msg` as a bulk unless null. */
extern void addReplyPubsubMessage(struct client *c, void *channel, void *msg,
                                  void *message_bulk AFTER_4(uintptr_t)) WEAK;

/* Redis since 1.0, Valkey. */
extern void addReplyProto(struct client *c, const char *bytes, size_t length AFTER_3(uintptr_t)) WEAK;

/* Redis since 1.0, Valkey. Nonzero if replies to this client are suppressed, e.g. by CLIENT REPLY OFF or SKIP. */
extern int prepareClientToWrite(struct client *c AFTER_1(uintptr_t)) WEAK;

/* Redis since 6.0. With OPTIN it tracks no key until the client asks for it. */
extern void enableTracking(struct client *c, uint64_t redirect_to, uint64_t options, void **prefix,
                           size_t numprefix AFTER_5(uintptr_t)) WEAK;

/* Redis since 6.0. */
extern void disableTracking(struct client *c AFTER_1(uintptr_t)) WEAK;

/* Called when a blocked client times out: the timeout callback writes the reply.
 * Redis since 7.2, Valkey. */
extern void unblockClientOnTimeout(struct client *c AFTER_1(uintptr_t)) WEAK;

/* The same in Redis 7.0, in two steps; later servers have functions of these names with other arguments. */
extern void replyToBlockedClientTimedOut(struct client *c AFTER_1(uintptr_t)) WEAK;
extern void unblockClient(struct client *c AFTER_1(uintptr_t)) WEAK;

/* The number of replicas that have acknowledged this offset. Redis since 3.0, Valkey. */
extern int replicationCountAcksByOffset(long long offset AFTER_1(uintptr_t)) WEAK;

/* Makes the server request acknowledgements from its replicas before it sleeps. Redis since 3.0; Valkey, by the second name
 * since 8.0. */
extern void replicationRequestAckFromSlaves(AFTER_0(uintptr_t)) WEAK;
extern void replicationRequestAckFromReplicas(AFTER_0(uintptr_t)) WEAK;

/* Appends a client's CLIENT LIST line to an sds. Redis since 2.0 with two arguments, Valkey since 8.0 with three; a function
 * with two ignores the third. */
extern char *catClientInfoString(char *sds, struct client *c, int hide_user_data AFTER_3(uintptr_t)) WEAK;

/* The server's strings, which are null-terminated. Redis since 2.0, Valkey. */
extern char *sdsempty(AFTER_0(uintptr_t)) WEAK;
extern void sdsfree(char *sds AFTER_1(uintptr_t)) WEAK;

/* The server's global state. Redis since 1.0, Valkey. */
extern void *server[] WEAK;

/* CLIENT_TRACKING_OPTIN from the server's headers. */
static const uint64_t tracking_optin = UINT64_C(1) << 34;

static int allowed = 0;

void tether_allow(int yes) { allowed = yes; }

static uintptr_t unused = 0;

void tether_fill_unused(uint64_t with) { unused = (uintptr_t)with; }

static struct client *find(uint64_t client_id) { return lookupClientByID(client_id AFTER_1(unused)); }

static int is_of(const void *program, const void *function) {
    Dl_info info;
    return function != NULL && dladdr(function, &info) != 0 && info.dli_fbase == program;
}

int tether_fits(const void *of_api, int two_steps) {
    Dl_info api;
    const void *needed[] = {
        (const void *)lookupClientByID, (const void *)addReplyPubsubMessage, (const void *)addReplyProto,
        (const void *)prepareClientToWrite, (const void *)enableTracking, (const void *)disableTracking,
        (const void *)replyToBlockedClientTimedOut, (const void *)unblockClient, (const void *)catClientInfoString,
        (const void *)sdsempty, (const void *)sdsfree, (const void *)server,
    };
    if (dladdr(of_api, &api) == 0) return 0;
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!is_of(api.dli_fbase, needed[i])) return 0;
    if (two_steps != (unblockClientOnTimeout == NULL)) return 0;
    if (!two_steps && !is_of(api.dli_fbase, (const void *)unblockClientOnTimeout)) return 0;
    return find(0) == NULL && find(UINT64_MAX) == NULL;
}

/* The client with this id; null if private functions may not be called. */
static struct client *client_of(uint64_t client_id) {
    return allowed && lookupClientByID != NULL ? find(client_id) : NULL;
}

int tether_can_push(void) {
    return allowed && lookupClientByID != NULL && addReplyPubsubMessage != NULL;
}

int tether_push(uint64_t client_id, void **heads, void **news, int count) {
    struct client *c;
    if (!tether_can_push() || (c = find(client_id)) == NULL) return 0;
    for (int i = 0; i < count; i++) addReplyPubsubMessage(c, news[i], NULL, heads[i] AFTER_4(unused));
    return 1;
}

int tether_write(uint64_t client_id, const char *bytes, size_t length) {
    struct client *c;
    if (addReplyProto == NULL || prepareClientToWrite == NULL) return 0;
    if ((c = client_of(client_id)) == NULL) return 0;
    if (prepareClientToWrite(c AFTER_1(unused)) != 0) return 0;
    addReplyProto(c, bytes, length AFTER_3(unused));
    return 1;
}

int tether_end_block(uint64_t client_id) {
    struct client *c = client_of(client_id);
    if (c == NULL) return 0;
    if (unblockClientOnTimeout != NULL) {
        unblockClientOnTimeout(c AFTER_1(unused));
        return 1;
    }
    if (replyToBlockedClientTimedOut == NULL || unblockClient == NULL) return 0;
    replyToBlockedClientTimedOut(c AFTER_1(unused));
    unblockClient(c AFTER_1(unused));
    return 1;
}

int tether_keep_in_main_thread(uint64_t client_id) {
    struct client *c;
    if (enableTracking == NULL || disableTracking == NULL) return 0;
    if ((c = client_of(client_id)) == NULL) return 0;
    enableTracking(c, 0, tracking_optin, NULL, 0 AFTER_5(unused));
    return 1;
}

void tether_let_go_of_main_thread(uint64_t client_id) {
    struct client *c;
    if (disableTracking == NULL) return;
    if ((c = client_of(client_id)) != NULL) disableTracking(c AFTER_1(unused));
}

char *tether_describe(uint64_t client_id) {
    struct client *c = client_of(client_id);
    return c == NULL ? NULL : catClientInfoString(sdsempty(AFTER_0(unused)), c, 0 AFTER_3(unused));
}

void tether_free_description(char *description) { sdsfree(description AFTER_1(unused)); }

/* In Redis 7.0 the global state (some thousand words) has the executing client among its first words. The exact position
 * depends on the build. */
enum { SERVER_WORDS = 512 };
static int executing_word = 0;

/* The index of the only word with this value; 0 if there is none, or several. */
static int only_word(void **words, int count, const void *said) {
    int found = 0;
    for (int word = 2; word < count; word++) {
        if (words[word] != said) continue;
        if (found != 0) return 0;
        found = word;
    }
    return found;
}

int tether_learn_executing(uint64_t client_id) {
    void **c;
    if (executing_word != 0) return 1;
    if ((c = (void **)client_of(client_id)) == NULL || *(uint64_t *)c != client_id) return 0;
    executing_word = only_word(server, SERVER_WORDS, c);
    return executing_word != 0;
}

int tether_executing(uint64_t *client_id) {
    void **c = allowed && executing_word != 0 ? server[executing_word] : NULL;
    *client_id = c == NULL ? 0 : *(uint64_t *)c;
    return allowed && executing_word != 0;
}

int tether_can_count_acks(void) {
    return allowed && replicationCountAcksByOffset != NULL &&
           (replicationRequestAckFromSlaves != NULL || replicationRequestAckFromReplicas != NULL);
}

int tether_count_acks(uint64_t offset) {
    return tether_can_count_acks() ? replicationCountAcksByOffset((long long)offset AFTER_1(unused)) : 0;
}

void tether_request_acks(void) {
    if (!tether_can_count_acks()) return;
    if (replicationRequestAckFromReplicas != NULL)
        replicationRequestAckFromReplicas(AFTER_0(unused));
    else
        replicationRequestAckFromSlaves(AFTER_0(unused));
}
