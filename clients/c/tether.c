/* tether.c: see tether.h. The first and larger part is the core: calls, frames and the time in; commands, events and
 * orders out. It calls no function of hiredis but its allocator, and has no socket and no clock, so the protocol's
 * vectors run it as it is (tests/vectors.c). The shell at the end has the connection. P-... are rules of the protocol.
 *
 * SPDX-License-Identifier: MIT
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* program_invocation_short_name */
#endif

#include "tether.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef TETHER_VALKEY
#include <valkey/alloc.h>
#include <valkey/async.h>
#define redisAsyncContext valkeyAsyncContext
#define redisReply valkeyReply
#define redisAsyncFree valkeyAsyncFree
#define redisAsyncCommandArgv valkeyAsyncCommandArgv
#define redisAsyncSetConnectCallback valkeyAsyncSetConnectCallback
#define redisAsyncSetPushCallback valkeyAsyncSetPushCallback
#define hi_calloc vk_calloc
#define hi_free vk_free
#define hi_realloc vk_realloc
#define REDIS_ERR_EOF VALKEY_ERR_EOF
#define REDIS_OK VALKEY_OK
#define REDIS_CONN_UNIX VALKEY_CONN_UNIX
#define REDIS_REPLY_ARRAY VALKEY_REPLY_ARRAY
#define REDIS_REPLY_ERROR VALKEY_REPLY_ERROR
#define REDIS_REPLY_INTEGER VALKEY_REPLY_INTEGER
#define REDIS_REPLY_MAP VALKEY_REPLY_MAP
#define REDIS_REPLY_NIL VALKEY_REPLY_NIL
#define REDIS_REPLY_PUSH VALKEY_REPLY_PUSH
#else
#include <hiredis/hiredis.h>
#if HIREDIS_MAJOR < 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR < 1)
#error "tether.c needs hiredis 1.1 or later"
#endif
#include <hiredis/alloc.h>
#include <hiredis/async.h>
#endif

#define CONNECT_WITHIN 5000.0 /* P-CONN-9 */
#define MARGIN 1000.0         /* P-FENCE-1 */
#define SHORTEST_FENCE 100.0
#define FENCE_ON_UNIX 5000.0
#define SERVERS_WORD 100.0   /* P-ACQ-5 */
#define SOUND 1000.0         /* P-RETRY-2 */
#define LONGEST_DELAY 1000.0 /* P-RETRY-1 */
#define HOPS 2               /* P-CONN-5 */
#define BUCKETS 1024
#define WORD 48 /* for codes and reasons, which are cut there */

/* ---- lists, bytes ---- */

struct link {
    struct link *next, *prev;
};

#define AT(type, member, link) ((type *)((char *)(link)-offsetof(type, member)))
/* The item of this turn may be taken off. */
#define EACH(at, list)                                                                                                 \
    for (struct link *at = (list)->next, *after = at->next; at != (list); at = after, after = at->next)

static void list_init(struct link *list) { list->next = list->prev = list; }
static bool is_empty(const struct link *list) { return list->next == list; }

static void append(struct link *list, struct link *item) {
    item->next = list;
    item->prev = list->prev;
    list->prev->next = item;
    list->prev = item;
}

static void take_off(struct link *item) {
    item->next->prev = item->prev;
    item->prev->next = item->next;
    list_init(item);
}

static void *grown(void *memory, size_t size) {
    memory = hi_realloc(memory, size);
    if (memory == NULL)
        abort();
    return memory;
}

static void *zeroed(size_t size) { return memset(grown(NULL, size), 0, size); }

/* What tether_bytes point to is somebody else's, unless `copied` made them. */
static tether_bytes copied(tether_bytes bytes) {
    if (bytes.ptr == NULL)
        return bytes;
    char *ptr = grown(NULL, bytes.len + 1);
    memcpy(ptr, bytes.ptr, bytes.len);
    ptr[bytes.len] = 0;
    return (tether_bytes){ptr, bytes.len};
}

static void discard(tether_bytes bytes) { hi_free((void *)(uintptr_t)bytes.ptr); }

static bool same(tether_bytes a, tether_bytes b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static bool is(tether_bytes bytes, const char *text) { return same(bytes, tether_text(text)); }

static int order_of(tether_bytes a, tether_bytes b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.ptr, b.ptr, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* The bytes before the first space, taken off `rest` with it. */
static tether_bytes word_of(tether_bytes *rest) {
    const char *space = rest->len ? memchr(rest->ptr, ' ', rest->len) : NULL;
    tether_bytes word = {rest->ptr, space ? (size_t)(space - rest->ptr) : rest->len};
    size_t taken = word.len + (space != NULL);
    *rest = (tether_bytes){space ? rest->ptr + taken : NULL, rest->len - taken};
    return word;
}

static void set_word(char to[WORD], tether_bytes word) {
    size_t len = word.len < WORD ? word.len : WORD - 1;
    if (len)
        memcpy(to, word.ptr, len);
    to[len] = 0;
}

/* A token in digits; 0: it is none. */
static long long number_of(tether_bytes digits) {
    long long number = 0;
    for (size_t at = 0; at < digits.len; at++) {
        if (digits.ptr[at] < '0' || digits.ptr[at] > '9' || number > (INT64_MAX - 9) / 10)
            return 0;
        number = 10 * number + (digits.ptr[at] - '0');
    }
    return number;
}

/* ---- replies ---- */

static tether_bytes text_of(const redisReply *reply) {
    if (reply == NULL || reply->str == NULL || reply->type == REDIS_REPLY_NIL)
        return (tether_bytes){NULL, 0};
    return (tether_bytes){reply->str, reply->len};
}

static bool is_error(const redisReply *reply) { return reply->type == REDIS_REPLY_ERROR; }
static bool is_integer(const redisReply *reply) { return reply && reply->type == REDIS_REPLY_INTEGER; }

/* Of an error the first word, else nothing. */
static tether_bytes code_of(const redisReply *reply) {
    tether_bytes rest = is_error(reply) ? text_of(reply) : (tether_bytes){NULL, 0};
    return word_of(&rest);
}

static const redisReply *field(const redisReply *map, const char *name) {
    for (size_t at = 0; map->type == REDIS_REPLY_MAP && at + 1 < map->elements; at += 2)
        if (is(text_of(map->element[at]), name))
            return map->element[at + 1];
    return NULL;
}

enum refusal { FINAL, MOMENTARY, UNWRITABLE, NOT_HERE };

/* P-ERR-2 */
static enum refusal kind_of(tether_bytes code) {
    static const struct {
        const char *code;
        enum refusal kind;
    } known[] = {{"BUSY", MOMENTARY},     {"LOADING", MOMENTARY},     {"CLUSTERDOWN", MOMENTARY},
                 {"TRYAGAIN", MOMENTARY}, {"NOREPLICAS", UNWRITABLE}, {"MISCONF", UNWRITABLE},
                 {"OOM", UNWRITABLE},     {"READONLY", NOT_HERE},     {"MASTERDOWN", NOT_HERE}};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (is(code, known[at].code))
            return known[at].kind;
    return FINAL;
}

/* ---- what there is ---- */

struct stamp {
    double mono, boot;
};

/* Of a request that is RELEASING the server may have something, and the user is told of no grant any more. */
enum phase { QUEUED, ASKED, WAITING, HELD, RELEASING, ENDED };

/* One key of a request. */
struct place {
    struct link bucket; /* of t->places: places of one name stand there in the order in which they were asked for */
    struct request *request;
    tether_bytes key;
    bool is_left;                  /* the request has nothing there any more */
    bool is_lost;                  /* one of those for which it is lost */
    bool is_found;                 /* LOCK.MINE names it */
    bool is_explained;             /* a push said that it is lost (P-REL-7) */
    bool is_unsettled, is_on_wire; /* a release is due; and is sent */
};

/* What was asked for, and what of it the server may have. It outlives its handles until the server has nothing. */
struct request {
    struct link link;
    struct link locks; /* its handles: several where it was re-entered */
    tether *t;
    int references; /* t->requests, and commands without an answer */
    enum phase phase;
    bool is_temporary, is_named, is_given_up, was_granted, has_waited;
    tether_terms terms;
    tether_bytes label, value, task;
    struct stamp began, lease_from;
    double lease; /* 0: none */
    long long token;
    char refusal[WORD], said[WORD]; /* of the last attempt; of which RELEASING was told */
    char early[WORD];               /* the reason of a loss before the grant (P-LOSS-5) */
    /* It is lost for this reason, if LOCK.MINE does not list it; and likewise the LOCK.MINE after that. */
    char looked_for[WORD], looked_for_next[WORD];
    struct link errands; /* in the order of the calls */
    bool has_name;       /* else SEQ is to name it: it has no place yet */
    size_t count;
    struct place places[];
};

enum state { S_WAITING, S_HELD, S_REFUSED, S_RELEASED, S_LOST };

/* What a handle asked the server about its hold: an answer for each key is to come. */
struct errand {
    struct link link;
    tether_lock *lock; /* NULL: it was answered already. An extension may have been carried out all the same */
    int number;
    size_t left; /* keys */
    bool is_check;
    double lease;
    struct stamp sent;
};

struct tether_lock {
    struct link link;  /* of t->locks */
    struct link other; /* of request->locks */
    tether *t;
    struct request *request; /* NULL after the last event */
    enum state state;
    char reason[WORD];
    long long token;
    tether_lock_fn *fn;
    void *user;
    bool *is_gone; /* tether_acquire wants to know */
};

/* A key that is watched. At most one of WATCHEX and UNWATCHEX is without answer (P-WATCH-1). */
struct watched {
    struct link link, bucket, watches;
    tether_bytes key;
    enum { W_ASKED, W_KNOWN, W_LEAVING } phase;
    bool is_on_wire; /* the command, also after a push has answered it */
    bool is_there;
};

struct member {
    tether_bytes key, value;
    long long token;
};

struct members {
    struct member *at; /* in the order of the keys */
    size_t count, room;
};

struct prefix {
    struct link link, watches;
    tether_bytes prefix;
    int references; /* t->prefixes, and commands without an answer */
    int round;      /* answers to an earlier one are not taken */
    bool is_live;   /* `members` are whole, else `next` is on its way */
    bool is_refused;
    bool has_page; /* of `next`: what is pushed before the first one is of a former watch */
    struct members members, next;
};

struct tether_watch {
    struct link link;  /* of t->watches */
    struct link other; /* of the key's or prefix' watches */
    tether *t;
    struct watched *watched; /* one of these two, or neither when it is over */
    struct prefix *prefix;
    bool has_told, told;
    bool is_late; /* it joined its prefix while a snapshot was taken */
    tether_watch_fn *fn;
    void *user;
    bool *is_gone;
};

/* A command without an answer. */
struct command {
    struct link link;
    struct stamp sent;
    void (*then)(struct command *, const redisReply *); /* NULL: whatever the answer is */
    tether *t;
    struct request *request;
    struct place *place;
    struct watched *watched;
    struct prefix *prefix;
    int number;
};

struct event {
    struct link link;
    tether_lock *lock;
    tether_watch *watch;
    tether_event said;
};

/* What LOCK.MINE lists (P-LOSS-4, P-REL-7). */
struct found {
    tether_bytes key, label;
    bool is_temporary;
    long long token;
    struct request *by; /* whose it is */
};

enum order { CONNECT, LEAVE };

struct tether {
    tether_options options;
    /* The shell, or a test in its place. `order`: LEAVE after so long, without reading or writing meanwhile. */
    void (*clocks)(tether *, struct stamp *);
    void (*send)(tether *, int argc, const char **argv, const size_t *argvlen);
    void (*order)(tether *, enum order, double after);
    void (*carry_out)(tether *); /* what was ordered */
    bool has_boot_clock, has_warned, is_unix, is_closed, is_freed;
    double random; /* P-RETRY-1; less than 0: drawn each time */
    unsigned seed;
    int depth; /* of calls into this file, callbacks between them */
    pid_t pid;

    struct stamp now, link_since;
    enum { NO_LINK, OPENING, GREETING, UP } link;
    double fence; /* D; 0: nothing vouches */
    struct stamp vouched, pinged, answered;
    bool is_connect_due, is_retry_due;
    bool is_unsound; /* nobody wanted back a connection that ended soon (P-RETRY-2) */
    struct stamp connect_from, retry_from;
    double connect_after, retry_after;
    int failed, refused; /* attempts to connect; commands in a row that were refused */
    unsigned long long labels;
    int errands; /* so many were sent */
    bool is_looking, is_to_look;
    struct found *found;
    size_t found_count;

    struct link commands, requests, locks, watches, events, dead, watched, prefixes;
    struct link places[BUCKETS], keys[BUCKETS];

    struct wire *wire; /* that of `link` */
    struct link wires;
    bool is_to_connect, is_to_leave;
    double leave_after;
    int hops;
};

/* P-FENCE-3 */
static double elapsed(const tether *t, struct stamp since) {
    double mono = t->now.mono - since.mono, boot = t->now.boot - since.boot;
    return t->has_boot_clock && boot > mono ? boot : mono;
}

static struct link *bucket_of(struct link *buckets, tether_bytes key, tether_bytes label) {
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t at = 0; at < key.len + label.len; at++)
        hash = (hash ^ (unsigned char)(at < key.len ? key.ptr[at] : label.ptr[at - key.len])) * 16777619U;
    return &buckets[hash % BUCKETS];
}

/* ---- events ---- */

/* The callback runs when the core has done all that belongs to this moment. */
static void tell(tether *t, tether_lock *lock, tether_watch *watch, tether_event said) {
    if (said.code == NULL)
        said.code = "";
    if (said.text == NULL)
        said.text = "";
    tether_bytes *parts[] = {&said.key, &said.value, NULL, NULL};
    tether_bytes code = tether_text(said.code), text = tether_text(said.text);
    parts[2] = &code;
    parts[3] = &text;
    size_t size = sizeof(struct event);
    for (int at = 0; at < 4; at++)
        size += parts[at]->len + 1;
    struct event *event = zeroed(size);
    char *to = (char *)(event + 1);
    for (int at = 0; at < 4; at++) {
        if (parts[at]->ptr == NULL)
            continue;
        if (parts[at]->len)
            memcpy(to, parts[at]->ptr, parts[at]->len);
        parts[at]->ptr = to;
        to += parts[at]->len + 1;
    }
    said.code = code.ptr;
    said.text = text.ptr;
    event->lock = lock;
    event->watch = watch;
    event->said = said;
    append(&t->events, &event->link);
}

static void forget_events(tether *t, const tether_lock *lock, const tether_watch *watch) {
    EACH(at, &t->events) {
        struct event *event = AT(struct event, link, at);
        if (event->lock == lock && event->watch == watch) {
            take_off(at);
            hi_free(event);
        }
    }
}

/* It was told its last event: what becomes of the request is no affair of this handle any more. */
static void finish(tether_lock *lock, enum state state, const char *reason) {
    lock->state = state;
    set_word(lock->reason, tether_text(reason));
    take_off(&lock->other);
    lock->request = NULL;
}

static void tell_all(struct request *request, tether_event said) {
    EACH(at, &request->locks) tell(request->t, AT(tether_lock, other, at), NULL, said);
}

/* Tells all handles of a request their last event. */
static void tell_last(struct request *request, enum state state, tether_event said) {
    EACH(at, &request->locks) {
        tether_lock *lock = AT(tether_lock, other, at);
        tell(request->t, lock, NULL, said);
        finish(lock, state, said.code ? said.code : "");
    }
}

static void free_errand(struct errand *errand) {
    take_off(&errand->link);
    hi_free(errand);
}

static void forget_errands(struct request *request) {
    EACH(at, &request->errands) free_errand(AT(struct errand, link, at));
}

static void free_request(struct request *request) {
    forget_errands(request);
    for (size_t at = 0; at < request->count; at++)
        discard(request->places[at].key);
    discard(request->label);
    discard(request->value);
    discard(request->task);
    hi_free(request);
}

static void clear(struct members *members) {
    for (size_t at = 0; at < members->count; at++) {
        discard(members->at[at].key);
        discard(members->at[at].value);
    }
    hi_free(members->at);
    *members = (struct members){NULL, 0, 0};
}

static void free_prefix(struct prefix *prefix) {
    clear(&prefix->members);
    clear(&prefix->next);
    discard(prefix->prefix);
    hi_free(prefix);
}

static void let_go_of_prefix(struct prefix *prefix) {
    if (prefix && --prefix->references == 0)
        free_prefix(prefix);
}

/* Its memory is freed at the end of the call into this file: who comes upon it until then sees that it ended. */
static void let_go(struct request *request) {
    if (request && --request->references == 0)
        append(&request->t->dead, &request->link);
}

static void destroy(tether *t);

static void become_child(tether *t);

static void enter(tether *t) {
    t->depth++;
    t->clocks(t, &t->now);
    if (t->pid != getpid())
        become_child(t);
}

/* Holders hear of a loss before the connection is closed, which frees their locks at the server. False: a callback
 * freed `t`. */
static bool leave(tether *t) {
    while (t->depth == 1 && !t->is_freed) {
        EACH(at, &t->dead) {
            take_off(at);
            free_request(AT(struct request, link, at));
        }
        if (is_empty(&t->events)) {
            t->carry_out(t);
            if (is_empty(&t->events))
                break;
        }
        struct event *event = AT(struct event, link, t->events.next);
        take_off(&event->link);
        if (event->lock)
            event->lock->fn(event->lock, &event->said, event->lock->user);
        else
            event->watch->fn(event->watch, &event->said, event->watch->user);
        hi_free(event);
    }
    bool is_over = --t->depth == 0 && t->is_freed;
    if (is_over)
        destroy(t);
    return !is_over;
}

/* ---- commands ---- */

struct words {
    size_t count, room;
    const char **ptr;
    size_t *len;
    char digits[8][24];
    int digits_count;
};

static void add(struct words *words, tether_bytes word) {
    if (words->count == words->room) {
        words->room = words->room ? 2 * words->room : 16;
        words->ptr = grown(words->ptr, words->room * sizeof *words->ptr);
        words->len = grown(words->len, words->room * sizeof *words->len);
    }
    words->ptr[words->count] = word.ptr ? word.ptr : "";
    words->len[words->count++] = word.len;
}

static void add_text(struct words *words, const char *word) { add(words, tether_text(word)); }

static void add_number(struct words *words, long long number) {
    char *digits = words->digits[words->digits_count++];
    snprintf(digits, sizeof words->digits[0], "%lld", number);
    add_text(words, digits);
}

/* P-ACQ-2: 0 would be for ever. */
static void add_time(struct words *words, double ms) {
    double most = 9007199254740991.0;
    double whole = ceil(ms);
    add_number(words, (long long)(whole < 1 ? 1 : whole > most ? most : whole));
}

static void add_owner(struct words *words, const struct request *request) {
    if (request->is_temporary)
        return;
    add_text(words, "OWNER");
    add(words, request->label);
}

/* Sends and frees the words; an answer vouches from now (P-FENCE-2). */
static struct command *send_words(tether *t, struct words *words, void (*then)(struct command *, const redisReply *)) {
    struct command *command = zeroed(sizeof *command);
    command->t = t;
    command->sent = t->now;
    command->then = then;
    append(&t->commands, &command->link);
    t->send(t, (int)words->count, words->ptr, words->len);
    hi_free(words->ptr);
    hi_free(words->len);
    return command;
}

static struct command *send_word(tether *t, const char *verb, tether_bytes word,
                                 void (*then)(struct command *, const redisReply *)) {
    struct words words = {0};
    add_text(&words, verb);
    if (word.ptr)
        add(&words, word);
    return send_words(t, &words, then);
}

static void about(struct command *command, struct request *request, struct place *place) {
    request->references++;
    command->request = request;
    command->place = place;
}

static void free_command(struct command *command) {
    take_off(&command->link);
    let_go(command->request);
    let_go_of_prefix(command->prefix);
    hi_free(command);
}

/* ---- the connection ---- */

static double delay(tether *t, int failed) {
    double random = t->random >= 0 ? t->random : (double)rand_r(&t->seed) / RAND_MAX;
    return fmin(LONGEST_DELAY, ldexp(20, failed < 16 ? failed : 16)) * (1 + random) / 2;
}

/* P-RETRY-3: what was refused is found by its state when the timer fires. */
static void try_again(tether *t) {
    if (t->is_retry_due)
        return;
    t->is_retry_due = true;
    t->retry_from = t->now;
    t->retry_after = delay(t, t->refused++);
}

static bool is_wanted(const tether *t) {
    return !t->is_closed && !(is_empty(&t->requests) && is_empty(&t->watched) && is_empty(&t->prefixes));
}

static void connect_now(tether *t) {
    t->is_connect_due = t->is_unsound = false;
    t->link = OPENING;
    t->order(t, CONNECT, 0);
}

static void need_link(tether *t) {
    if (t->link != NO_LINK || t->is_connect_due || t->is_closed)
        return;
    if (t->is_unsound && elapsed(t, t->connect_from) < t->connect_after)
        t->is_connect_due = true;
    else
        connect_now(t);
}

static void set_next_attempt(tether *t) {
    t->connect_from = t->now;
    t->connect_after = delay(t, t->failed++);
}

static void reconnect(tether *t) {
    if (!is_wanted(t) || t->link != NO_LINK || t->is_connect_due)
        return;
    t->is_connect_due = true;
    set_next_attempt(t);
}

/* P-RETRY-2 */
static void go_on(tether *t) {
    if (elapsed(t, t->link_since) >= SOUND) {
        t->failed = 0;
        if (is_wanted(t))
            connect_now(t);
    } else if (is_wanted(t)) {
        reconnect(t);
    } else {
        t->is_unsound = true;
        set_next_attempt(t);
    }
}

static void forget_found(tether *t) {
    for (size_t at = 0; at < t->found_count; at++) {
        discard(t->found[at].key);
        discard(t->found[at].label);
    }
    hi_free(t->found);
    t->found = NULL;
    t->found_count = 0;
}

static void cut(tether *t) {
    t->link = NO_LINK;
    t->fence = 0;
    while (!is_empty(&t->commands))
        free_command(AT(struct command, link, t->commands.next));
    EACH(at, &t->watched) AT(struct watched, link, at)->is_on_wire = false;
    t->is_looking = t->is_to_look = t->is_retry_due = false;
    t->refused = 0;
    forget_found(t);
}

static void fail(struct request *request, const char *loss, tether_event said);

static tether_event refusal(const char *error, const char *code, const char *text) {
    return (tether_event){.kind = TETHER_REFUSED, .error = error, .code = code, .text = text};
}

static void end_watches(tether *t, tether_event said);

/* P-CONN-10 */
static void attempt_failed(tether *t, tether_event said) {
    bool is_final = strcmp(said.error, "unreachable") != 0;
    cut(t);
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        if (request->phase == QUEUED && (request->terms.wait == 0 || is_final))
            fail(request, NULL, said);
    }
    if (is_final)
        end_watches(t, said);
    reconnect(t);
}

static void attempt_left(tether *t, tether_event said) {
    t->order(t, LEAVE, 0);
    attempt_failed(t, said);
}

/* The connection ended, and without a session all that was held on it. `is_elsewhere`: requests go on at another
 * server, also those that do not wait (P-ACQ-8). */
static void lose_all(tether *t, const char *why, bool is_elsewhere) {
    cut(t);
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        bool is_over = request->phase == ASKED && request->terms.wait == 0 && !is_elsewhere;
        if (request->phase == HELD || request->phase == RELEASING || is_over) {
            fail(request, why, refusal("unreachable", "UNREACHABLE", "the connection broke"));
            continue;
        }
        request->has_waited |= request->phase == WAITING;
        request->phase = QUEUED;
        request->early[0] = 0;
        for (size_t each = 0; each < request->count; each++)
            request->places[each].is_lost = request->places[each].is_explained = false;
    }
}

static void break_off(tether *t, const char *why, double after) {
    bool was_up = t->link != NO_LINK;
    lose_all(t, why, strcmp(why, "demoted") == 0);
    if (was_up) {
        t->order(t, LEAVE, after);
        go_on(t);
    }
}

static void unreached(tether *t) { attempt_failed(t, refusal("unreachable", "UNREACHABLE", "no connection")); }

static void broke(tether *t) {
    if (t->link == NO_LINK)
        return;
    if (t->link == GREETING) {
        unreached(t);
        return;
    }
    lose_all(t, "connection", false);
    go_on(t);
}

static void send_if_first(struct request *request);
static void send_watch(tether *t, struct watched *watched);
static void send_prefix(tether *t, struct prefix *prefix);
static void watch_anew(tether *t);

/* P-FENCE-1; 0: unfit. */
static double fence_of(const tether *t, double peer_timeout) {
    double most = fmin(peer_timeout / 2, peer_timeout - t->options.stop_within - MARGIN);
    if (t->is_unix)
        most = FENCE_ON_UNIX;
    double fence = t->options.fence > 0 ? t->options.fence : most;
    return fence >= SHORTEST_FENCE && fence <= most ? fence : 0;
}

static void greeted(struct command *command, const redisReply *reply) {
    tether *t = command->t;
    char code[WORD];
    set_word(code, code_of(reply));
    if (is_error(reply)) {
        enum refusal kind = kind_of(code_of(reply));
        if (strstr(reply->str, "unknown command"))
            attempt_left(t, refusal("nomodule", "NOMODULE", "the server has not loaded the module tether"));
        else
            attempt_left(t,
                         refusal(kind == MOMENTARY || kind == NOT_HERE ? "unreachable" : "refused", code, reply->str));
        return;
    }
    const redisReply *pushes = field(reply, "pushes"), *timeout = field(reply, "peer-timeout-ms");
    double fence = fence_of(t, is_integer(timeout) ? (double)timeout->integer : 0);
    if (!is(text_of(field(reply, "role")), "master")) {
        attempt_left(t, refusal("unreachable", "REPLICA", "the server is a replica, and no master was reached"));
    } else if (!is_integer(pushes) || pushes->integer != 1) {
        attempt_left(t, refusal("nopush", "NOPUSH", "the server sends no pushes; there, run `tether qualify`"));
    } else if (fence <= 0) {
        attempt_left(t, refusal("unfit", "UNFIT", "stop_within and fence do not fit the server's tether.peer-timeout"));
    } else {
        if (!t->has_boot_clock && !t->has_warned && t->options.warn)
            t->options.warn(t->options.user, "no-boot-clock");
        t->has_warned = true;
        t->fence = fence;
        t->vouched = command->sent;
        t->pinged = t->now;
        t->link = UP;
        EACH(at, &t->requests) send_if_first(AT(struct request, link, at));
        watch_anew(t);
    }
}

static void connected(tether *t) {
    t->link_since = t->now;
    t->link = GREETING;
    send_word(t, "LOCK.SERVER", (tether_bytes){NULL, 0}, greeted);
}

/* ---- requests ---- */

static bool is_at(const struct place *place, bool is_temporary, tether_bytes key, tether_bytes label) {
    const struct request *request = place->request;
    return request->is_temporary == is_temporary && same(place->key, key) && same(request->label, label);
}

/* The oldest request for this place that is not over. */
static struct place *first_at(tether *t, bool is_temporary, tether_bytes key, tether_bytes label) {
    EACH(at, bucket_of(t->places, key, label)) {
        struct place *place = AT(struct place, bucket, at);
        if (is_at(place, is_temporary, key, label))
            return place;
    }
    return NULL;
}

static struct place *newest_at(tether *t, bool is_temporary, tether_bytes key, tether_bytes label) {
    struct place *newest = NULL;
    EACH(at, bucket_of(t->places, key, label)) {
        struct place *place = AT(struct place, bucket, at);
        if (is_at(place, is_temporary, key, label))
            newest = place;
    }
    return newest;
}

static bool is_first(const struct place *place) {
    const struct request *request = place->request;
    return first_at(request->t, request->is_temporary, place->key, request->label) == place;
}

static void leave_place(struct place *place) {
    struct request *request = place->request;
    if (place->is_left)
        return;
    place->is_left = true;
    take_off(&place->bucket);
    struct place *next = first_at(request->t, request->is_temporary, place->key, request->label);
    if (next)
        send_if_first(next->request);
}

/* P-OWNER-4: its release was refused, so the server has it still. */
static bool is_left(const struct request *request) { return request->phase == RELEASING && request->refusal[0]; }

static void end(struct request *request) {
    bool was_left = is_left(request);
    request->phase = ENDED;
    take_off(&request->link);
    for (size_t at = 0; at < request->count; at++)
        leave_place(&request->places[at]);
    if (was_left) /* its task goes on */
        EACH(at, &request->t->requests) send_if_first(AT(struct request, link, at));
    let_go(request);
}

static void say_not_held(tether_lock *lock, bool is_check) {
    tether_kind kind = is_check ? TETHER_NOT_CHECKED : TETHER_NOT_EXTENDED;
    tell(lock->t, lock, NULL, (tether_event){.kind = kind, .error = "lost", .code = "LOST"});
}

/* Each call has its answer (P-LEASE-1), though that of the server comes too late. */
static void end_errands(tether_lock *lock) {
    EACH(at, &lock->request->errands) {
        struct errand *errand = AT(struct errand, link, at);
        if (errand->lock != lock)
            continue;
        say_not_held(lock, errand->is_check);
        errand->lock = NULL;
    }
}

static void say_lost(struct request *request, const char *reason) {
    EACH(at, &request->locks) {
        tether_lock *lock = AT(tether_lock, other, at);
        tell(request->t, lock, NULL, (tether_event){.kind = TETHER_LOST, .token = request->token, .code = reason});
        end_errands(lock);
        finish(lock, S_LOST, reason);
    }
    forget_errands(request);
}

/* The server has nothing left of it. */
static void settle(struct request *request) {
    tell_last(request, S_RELEASED, (tether_event){.kind = request->is_given_up ? TETHER_OVER : TETHER_RELEASED});
    end(request);
}

/* It ends: if it was held, it is lost for this reason; else it is refused. */
static void fail(struct request *request, const char *loss, tether_event said) {
    if (request->phase == RELEASING) {
        settle(request);
        return;
    }
    if (request->phase == HELD)
        say_lost(request, loss);
    else
        tell_last(request, S_REFUSED, said);
    end(request);
}

static void released(struct command *command, const redisReply *reply);

static void send_unsettled(struct request *request) {
    tether *t = request->t;
    for (size_t at = 0; t->link == UP && at < request->count; at++) {
        struct place *place = &request->places[at];
        if (!place->is_unsettled || place->is_on_wire)
            continue;
        place->is_on_wire = true;
        struct words words = {0};
        add_text(&words, request->is_temporary ? "DELTP" : "LOCK.RELEASE");
        add(&words, place->key);
        add_owner(&words, request);
        if (!request->is_temporary)
            add_text(&words, "ALL");
        about(send_words(t, &words, released), request, place);
    }
}

/* P-REL-1, P-REL-2: the release of all its keys is sent until the server accepts it. */
static void send_releases(struct request *request) {
    request->phase = RELEASING;
    for (size_t at = 0; at < request->count; at++)
        request->places[at].is_unsettled = !request->places[at].is_left;
    send_unsettled(request);
}

static void give_up(struct request *request) {
    if (request->phase == QUEUED) { /* P-REL-3 */
        request->is_given_up = true;
        settle(request);
    } else if (request->phase == ASKED || request->phase == WAITING) {
        request->is_given_up = true;
        request->refusal[0] = 0;
        request->phase = RELEASING;
        if (request->has_name) /* else the answer says what to release */
            send_releases(request);
    }
}

/* P-LOSS-3: places that are marked are gone, so all of it is lost; the others are given back. */
static void lose(struct request *request, const char *reason) {
    bool is_over = true;
    say_lost(request, reason);
    for (size_t at = 0; at < request->count; at++) {
        if (request->places[at].is_lost)
            leave_place(&request->places[at]);
        is_over &= request->places[at].is_left;
    }
    request->is_given_up = true;
    if (is_over)
        end(request);
    else
        send_releases(request);
}

static void lose_place(struct place *place, const char *reason) {
    place->is_lost = true;
    lose(place->request, reason);
}

static void grant(struct request *request, long long token, struct stamp lease_from) {
    request->phase = HELD;
    request->token = token;
    request->was_granted = true;
    request->refusal[0] = 0;
    request->lease = request->terms.lease;
    request->lease_from = lease_from;
    request->t->refused = 0;
    tether_bytes name = request->terms.seq ? request->places[0].key : (tether_bytes){NULL, 0};
    EACH(at, &request->locks) {
        tether_lock *lock = AT(tether_lock, other, at);
        lock->state = S_HELD;
        lock->token = token;
        tell(request->t, lock, NULL, (tether_event){.kind = TETHER_GRANTED, .token = token, .key = name});
    }
    if (request->early[0]) /* P-LOSS-5 */
        lose(request, request->early);
}

/* P-OWNER-4: to the server, the task still has one of these keys, and would wait for itself. */
static bool is_task_in_the_way(const struct request *request) {
    EACH(at, &request->t->requests) {
        const struct request *other = AT(struct request, link, at);
        if (!is_left(other) || !request->task.ptr || !other->task.ptr || !same(other->task, request->task))
            continue;
        for (size_t key = 0; key < request->count; key++)
            for (size_t its = 0; its < other->count; its++)
                if (same(request->places[key].key, other->places[its].key))
                    return true;
    }
    return false;
}

static void refused_request(struct request *request, tether_bytes error) {
    char code[WORD], *text = (char *)(uintptr_t)copied(error).ptr;
    tether_bytes rest = error;
    set_word(code, word_of(&rest));
    enum refusal kind = kind_of(tether_text(code));
    if (request->terms.wait != 0 && (kind == MOMENTARY || (kind == UNWRITABLE && request->has_waited))) {
        request->phase = QUEUED; /* P-ACQ-6, P-ACQ-7 */
        strcpy(request->refusal, code);
        try_again(request->t);
    } else if (strcmp(code, "DEADLOCK") == 0 && request->terms.wait != 0 && is_task_in_the_way(request)) {
        request->phase = QUEUED; /* it overtook a release that was refused */
    } else if (strcmp(code, "DEADLOCK") == 0) {
        fail(request, NULL, refusal("deadlock", code, text));
    } else {
        fail(request, NULL, refusal(strcmp(code, "QUARANTINE") == 0 ? "taken" : "refused", code, text));
    }
    hi_free(text);
}

/* P-TEMP-3 */
static void name_place(struct place *place, tether_bytes key) {
    place->request->has_name = true;
    discard(place->key);
    place->key = copied(key);
    take_off(&place->bucket); /* it may have had another name */
    append(bucket_of(place->request->t->places, place->key, place->request->label), &place->bucket);
}

static void answered(struct command *command, const redisReply *reply) {
    struct request *request = command->request;
    bool is_pair = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;
    request->was_granted |= is_integer(reply) && reply->integer > 1;
    is_pair = is_pair && text_of(reply->element[0]).ptr && is_integer(reply->element[1]);
    if (request->phase == RELEASING && !request->has_name) {
        if (is_pair) {
            name_place(&request->places[0], text_of(reply->element[0]));
            send_releases(request);
        } else {
            settle(request);
        }
        return;
    }
    if (request->phase != ASKED)
        return;
    if (is_error(reply)) {
        refused_request(request, text_of(reply));
    } else if (is_pair) {
        name_place(&request->places[0], text_of(reply->element[0]));
        grant(request, reply->element[1]->integer, command->sent);
    } else if (is_integer(reply) && reply->integer > 0) {
        grant(request, reply->integer, command->sent);
    } else if (request->terms.wait != 0) { /* null, and 0 of a temporary key */
        request->phase = WAITING;
        request->has_waited = true;
        request->refusal[0] = 0;
    } else {
        fail(request, NULL, refusal("taken", "TAKEN", "another owner has it"));
    }
}

/* P-ACQ-1, P-TEMP-1 */
static void ask(struct request *request) {
    tether *t = request->t;
    const tether_terms *terms = &request->terms;
    struct words words = {0};
    add_text(&words, request->is_temporary ? "SETTP" : request->count > 1 ? "LOCK.MACQUIRE" : "LOCK.ACQUIRE");
    if (request->count > 1)
        add_number(&words, (long long)request->count);
    for (size_t at = 0; at < request->count; at++)
        add(&words, request->places[at].key);
    if (request->is_temporary) {
        add(&words, request->value);
        add_text(&words, terms->seq ? "SEQ" : "TOKEN");
    }
    if (terms->shared)
        add_text(&words, "SHARED");
    if (terms->permits) {
        add_text(&words, "PERMITS");
        add_number(&words, terms->permits);
        add_text(&words, "OF");
        add_number(&words, terms->of);
    }
    add_owner(&words, request);
    if (request->task.ptr) {
        add_text(&words, "TASK");
        add(&words, request->task);
    }
    add_text(&words, "NOTIFY");
    if (terms->lease > 0) {
        add_text(&words, "LEASE");
        add_time(&words, terms->lease);
    }
    if (terms->wait != 0) {
        add_text(&words, "WAIT");
        if (terms->wait < 0)
            add_number(&words, 0);
        else
            add_time(&words, terms->wait - elapsed(t, request->began));
        add_text(&words, "PUSH");
    }
    about(send_words(t, &words, answered), request, NULL);
}

/* P-OWNER-4: once nothing is left of former requests for its places. */
static void send_if_first(struct request *request) {
    if (request->t->link != UP || request->phase != QUEUED || is_task_in_the_way(request))
        return;
    for (size_t at = 0; request->has_name && at < request->count; at++)
        if (!is_first(&request->places[at]))
            return;
    request->phase = ASKED;
    ask(request);
}

static void look(tether *t);

static void released(struct command *command, const redisReply *reply) {
    struct request *request = command->request;
    struct place *place = command->place;
    tether_bytes code = code_of(reply);
    if (request->phase == ENDED)
        return;
    place->is_on_wire = false;
    if (!is_integer(reply) && !is(code, "NOTHELD") && !is(code, "MOVED")) { /* P-REL-5 */
        set_word(request->refusal, code);
        if (strcmp(request->said, request->refusal) != 0)
            tell_all(request, (tether_event){.kind = TETHER_RELEASING, .code = request->refusal, .text = reply->str});
        strcpy(request->said, request->refusal);
        struct place *other = newest_at(request->t, request->is_temporary, place->key, request->label);
        if (other && other->request->phase == QUEUED && other->request->terms.wait == 0) /* P-OWNER-4; one at most */
            fail(other->request, NULL, refusal("taken", "TAKEN", "the former release was refused"));
        try_again(request->t);
        return;
    }
    request->t->refused = 0;
    place->is_unsettled = false;
    bool was_gone = is(code, "NOTHELD") || (request->is_temporary && is_integer(reply) && reply->integer == 0);
    if (was_gone && request->was_granted && !place->is_explained) { /* P-REL-7 */
        if (!request->is_given_up)
            say_lost(request, "deleted");
        look(request->t);
    }
    for (size_t at = 0; at < request->count; at++)
        if (request->places[at].is_unsettled)
            return;
    settle(request);
}

/* ---- LOCK.MINE ---- */

/* Whose hold this is, whatever the key is called now (P-SESS-6). */
static struct request *claimant(tether *t, const struct found *found) {
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        if (request->is_temporary != found->is_temporary || !same(request->label, found->label))
            continue;
        if (request->phase == HELD && request->token == found->token)
            return request;
        for (size_t key = 0; request->has_name && key < request->count; key++)
            if (request->phase != HELD && request->phase != QUEUED && same(request->places[key].key, found->key))
                return request;
    }
    return NULL;
}

static struct request *new_request(tether *t, const tether_bytes *keys, size_t count, bool is_temporary,
                                   const tether_terms *terms, tether_bytes label);

static void stand(struct request *request, bool is_before_others) {
    append(&request->t->requests, &request->link);
    for (size_t at = 0; request->has_name && at < request->count; at++) {
        struct place *place = &request->places[at];
        struct link *bucket = bucket_of(request->t->places, place->key, request->label);
        append(is_before_others ? bucket->next : bucket, &place->bucket);
    }
}

/* A key that the user may not read has no name here. It ends with the connection. */
static void release_unclaimed(tether *t, const struct found *found) {
    if (found->key.ptr == NULL)
        return;
    struct request *request =
        new_request(t, &found->key, 1, found->is_temporary, &(tether_terms){0}, copied(found->label));
    request->is_given_up = true;
    stand(request, true);
    send_releases(request);
}

static void compare(tether *t) {
    for (size_t at = 0; at < t->found_count; at++) {
        struct request *request = claimant(t, &t->found[at]);
        t->found[at].by = request;
        for (size_t key = 0; request && key < request->count; key++)
            request->places[key].is_found |= same(request->places[key].key, t->found[at].key);
    }
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        size_t here = 0;
        for (size_t each = 0; each < t->found_count; each++)
            here += t->found[each].by == request;
        bool is_lost = request->looked_for[0] && request->phase == HELD && here < request->count;
        for (size_t key = 0; key < request->count; key++) {
            request->places[key].is_lost |= is_lost && !request->places[key].is_found;
            request->places[key].is_found = false;
        }
        if (is_lost)
            lose(request, request->looked_for);
        strcpy(request->looked_for, request->looked_for_next);
        request->looked_for_next[0] = 0;
    }
    for (size_t at = 0; at < t->found_count; at++) { /* A page may be of before what is at its places now (P-SESS-6). */
        const struct found *found = &t->found[at];
        if (found->by == NULL && first_at(t, found->is_temporary, found->key, found->label) == NULL)
            release_unclaimed(t, found);
    }
}

static void page_of_mine(struct command *command, const redisReply *reply);

static void look(tether *t) {
    if (t->is_looking) {
        t->is_to_look |= t->found != NULL; /* A page that is here already is of before. */
        return;
    }
    t->is_looking = true;
    send_word(t, "LOCK.MINE", (tether_bytes){NULL, 0}, page_of_mine);
}

static void mine_refused(tether *t, const redisReply *reply) {
    EACH(at, &t->requests) { /* The next LOCK.MINE is of after these losses, and there is none after a final error. */
        struct request *request = AT(struct request, link, at);
        if (request->looked_for[0] == 0)
            strcpy(request->looked_for, request->looked_for_next);
        request->looked_for_next[0] = 0;
    }
    if (kind_of(code_of(reply)) == MOMENTARY) {
        t->is_to_look = true;
        try_again(t);
        return;
    }
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        if (request->looked_for[0] && request->phase == HELD)
            lose(request, request->looked_for);
        request->looked_for[0] = 0;
    }
    t->is_to_look = false;
}

static void page_of_mine(struct command *command, const redisReply *reply) {
    tether *t = command->t;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        t->is_looking = false;
        forget_found(t);
        mine_refused(t, reply);
        return;
    }
    const redisReply *list = reply->element[1];
    t->found = grown(t->found, (t->found_count + list->elements + 1) * sizeof *t->found);
    for (size_t at = 0; at < list->elements; at++) {
        const redisReply *entry = list->element[at], *token = field(entry, "token");
        if (!is(text_of(field(entry, "state")), "held") || !is_integer(token))
            continue;
        t->found[t->found_count++] = (struct found){.key = copied(text_of(field(entry, "key"))),
                                                    .label = copied(text_of(field(entry, "label"))),
                                                    .is_temporary = is(text_of(field(entry, "kind")), "temporary"),
                                                    .token = token->integer};
    }
    if (!is(text_of(reply->element[0]), "0")) {
        struct words words = {0};
        add_text(&words, "LOCK.MINE");
        add_text(&words, "CURSOR");
        add(&words, text_of(reply->element[0]));
        send_words(t, &words, page_of_mine);
        return;
    }
    t->is_looking = false;
    compare(t);
    forget_found(t);
    if (t->is_to_look) {
        t->is_to_look = false;
        look(t);
    }
}

/* ---- watches of keys ---- */

static struct watched *watched_of(tether *t, tether_bytes key) {
    EACH(at, bucket_of(t->keys, key, (tether_bytes){NULL, 0})) {
        struct watched *watched = AT(struct watched, bucket, at);
        if (same(watched->key, key))
            return watched;
    }
    return NULL;
}

static void free_watched(struct watched *watched) {
    take_off(&watched->link);
    take_off(&watched->bucket);
    discard(watched->key);
    hi_free(watched);
}

static void end_watch(tether_watch *watch, tether_event said) {
    said.kind = TETHER_ENDED;
    tell(watch->t, NULL, watch, said);
    take_off(&watch->other);
    watch->watched = NULL;
    watch->prefix = NULL;
}

static void end_prefix(struct prefix *prefix) {
    take_off(&prefix->link);
    prefix->round++;
    let_go_of_prefix(prefix);
}

static void end_watches(tether *t, tether_event said) {
    EACH(at, &t->watches) {
        tether_watch *watch = AT(tether_watch, link, at);
        if (watch->watched || watch->prefix)
            end_watch(watch, said);
    }
    EACH(at, &t->watched) free_watched(AT(struct watched, link, at));
    EACH(at, &t->prefixes) end_prefix(AT(struct prefix, link, at));
}

static void tell_state(tether_watch *watch) {
    bool is_there = watch->watched->is_there;
    tether_event said = {.key = watch->watched->key};
    if (!watch->has_told)
        said.kind = is_there ? TETHER_EXISTS : TETHER_MISSING;
    else
        said.kind = is_there ? TETHER_ADDED : TETHER_DELETED;
    if (!watch->has_told || watch->told != is_there)
        tell(watch->t, NULL, watch, said);
    watch->has_told = true;
    watch->told = is_there;
}

static void unwatched(struct command *command, const redisReply *reply) {
    struct watched *watched = command->watched;
    (void)reply;
    watched->is_on_wire = false;
    if (is_empty(&watched->watches)) {
        free_watched(watched);
        return;
    }
    watched->phase = W_ASKED;
    send_watch(command->t, watched);
}

static void send_unwatch(tether *t, struct watched *watched) {
    if (watched->is_on_wire)
        return;
    watched->phase = W_LEAVING;
    watched->is_on_wire = true;
    send_word(t, "UNWATCHEX", watched->key, unwatched)->watched = watched;
}

static void state_known(tether *t, struct watched *watched, bool is_there) {
    watched->phase = W_KNOWN;
    watched->is_there = is_there;
    EACH(at, &watched->watches) tell_state(AT(tether_watch, other, at));
    if (is_empty(&watched->watches))
        send_unwatch(t, watched);
}

static void watch_answered(struct command *command, const redisReply *reply) {
    struct watched *watched = command->watched;
    char code[WORD];
    watched->is_on_wire = false;
    if (watched->phase == W_KNOWN) { /* A push said it before (P-WATCH-2). */
        if (is_empty(&watched->watches))
            send_unwatch(command->t, watched);
    } else if (!is_error(reply)) {
        state_known(command->t, watched, is(text_of(reply), "EXIST"));
    } else if (kind_of(code_of(reply)) == MOMENTARY && !is_empty(&watched->watches)) {
        try_again(command->t);
    } else { /* P-WATCH-4 */
        set_word(code, code_of(reply));
        EACH(at, &watched->watches) end_watch(AT(tether_watch, other, at), refusal("refused", code, reply->str));
        free_watched(watched);
    }
}

static void send_watch(tether *t, struct watched *watched) {
    if (t->link != UP || watched->is_on_wire)
        return;
    watched->is_on_wire = true;
    send_word(t, "WATCHEX", watched->key, watch_answered)->watched = watched;
}

static void key_changed(tether *t, tether_bytes key, tether_bytes change) {
    struct watched *watched = watched_of(t, key);
    if (watched == NULL || (!is(change, "ADD") && !is(change, "DEL")))
        return;
    bool is_there = is(change, "ADD");
    if (watched->phase == W_ASKED)
        state_known(t, watched, !is_there);
    watched->is_there = is_there;
    if (watched->phase == W_KNOWN)
        EACH(at, &watched->watches) tell_state(AT(tether_watch, other, at));
}

/* ---- presence ---- */

/* Where this key is, or would be. */
static size_t place_of(const struct members *members, tether_bytes key) {
    size_t low = 0, high = members->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order_of(members->at[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct member *member_of(const struct members *members, tether_bytes key) {
    size_t at = place_of(members, key);
    return at < members->count && same(members->at[at].key, key) ? &members->at[at] : NULL;
}

static void set_member(struct members *members, tether_bytes key, long long token, tether_bytes value) {
    struct member *member = member_of(members, key);
    if (member == NULL) {
        size_t at = place_of(members, key);
        if (members->count == members->room) {
            members->room = members->room ? 2 * members->room : 16;
            members->at = grown(members->at, members->room * sizeof *members->at);
        }
        member = &members->at[at];
        memmove(member + 1, member, (members->count++ - at) * sizeof *member);
        *member = (struct member){copied(key), {NULL, 0}, 0};
    }
    discard(member->value);
    member->value = copied(value);
    member->token = token;
}

static void remove_member(struct members *members, tether_bytes key) {
    struct member *member = member_of(members, key);
    if (member == NULL)
        return;
    discard(member->key);
    discard(member->value);
    members->count--;
    memmove(member, member + 1, (size_t)(members->at + members->count - member) * sizeof *member);
}

static void tell_member(struct link *watches, tether_kind kind, const struct member *member, const char *reason) {
    EACH(at, watches) {
        tether_watch *watch = AT(tether_watch, other, at);
        tell(watch->t, NULL, watch,
             (tether_event){.kind = kind,
                            .token = member->token,
                            .code = reason,
                            .key = member->key,
                            .value = kind == TETHER_LEFT ? (tether_bytes){NULL, 0} : member->value});
    }
}

static bool is_as_before(const struct member *a, const struct member *b) {
    return a->token == b->token && (a->value.ptr == NULL) == (b->value.ptr == NULL) && same(a->value, b->value);
}

/* P-PRES-3 */
static void tell_difference(struct link *watches, const struct members *old, const struct members *new) {
    size_t a = 0, b = 0;
    while (a < old->count || b < new->count) {
        int order = a == old->count ? 1 : b == new->count ? -1 : order_of(old->at[a].key, new->at[b].key);
        if (order < 0)
            tell_member(watches, TETHER_LEFT, &old->at[a], "unknown");
        else if (order > 0)
            tell_member(watches, TETHER_JOINED, &new->at[b], NULL);
        else if (!is_as_before(&old->at[a], &new->at[b]))
            tell_member(watches, TETHER_CHANGED, &new->at[b], NULL);
        a += order <= 0;
        b += order >= 0;
    }
}

static void prefix_answered(struct command *command, const redisReply *reply);

static void send_page(tether *t, struct prefix *prefix, tether_bytes after) {
    struct words words = {0};
    add_text(&words, "WATCHTP");
    add(&words, prefix->prefix);
    if (after.ptr) {
        add_text(&words, "AFTER");
        add(&words, after);
    }
    struct command *command = send_words(t, &words, prefix_answered);
    command->prefix = prefix;
    command->number = prefix->round;
    prefix->references++;
}

/* P-PRES-1: a fresh snapshot. */
static void send_prefix(tether *t, struct prefix *prefix) {
    if (t->link != UP)
        return;
    prefix->is_live = prefix->is_refused = prefix->has_page = false;
    prefix->round++;
    send_page(t, prefix, (tether_bytes){NULL, 0});
}

static void prefix_answered(struct command *command, const redisReply *reply) {
    struct prefix *prefix = command->prefix;
    char code[WORD];
    if (command->number != prefix->round)
        return;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        enum refusal kind = kind_of(code_of(reply));
        prefix->is_refused = kind == MOMENTARY || kind == UNWRITABLE;
        if (prefix->is_refused) {
            try_again(command->t);
            return;
        }
        set_word(code, code_of(reply));
        EACH(at, &prefix->watches) end_watch(AT(tether_watch, other, at), refusal("refused", code, reply->str));
        end_prefix(prefix);
        return;
    }
    if (!prefix->has_page)
        clear(&prefix->next);
    prefix->has_page = true;
    for (size_t at = 0; at < reply->element[1]->elements; at++) {
        const redisReply *entry = reply->element[1]->element[at];
        if (entry->elements >= 3 && text_of(entry->element[0]).ptr)
            set_member(&prefix->next, text_of(entry->element[0]), entry->element[1]->integer,
                       text_of(entry->element[2]));
    }
    if (text_of(reply->element[0]).len) {
        send_page(command->t, prefix, text_of(reply->element[0]));
        return;
    }
    struct members old = prefix->members;
    prefix->members = prefix->next;
    prefix->next = (struct members){NULL, 0, 0};
    prefix->is_live = true;
    struct link late;
    list_init(&late);
    EACH(at, &prefix->watches) {
        tether_watch *watch = AT(tether_watch, other, at);
        if (watch->is_late) {
            watch->is_late = false;
            take_off(at);
            append(&late, at);
        }
    }
    tell_difference(&prefix->watches, &old, &prefix->members);
    tell_difference(&late, &(struct members){NULL, 0, 0}, &prefix->members);
    EACH(at, &late) {
        take_off(at);
        append(&prefix->watches, at);
    }
    clear(&old);
}

static void prefix_changed(tether *t, tether_bytes name, bool is_flush) {
    EACH(at, &t->prefixes) {
        struct prefix *prefix = AT(struct prefix, link, at);
        if (!same(prefix->prefix, name))
            continue;
        if (!is_flush) { /* END */
            send_prefix(t, prefix);
            continue;
        }
        for (size_t each = 0; prefix->is_live && each < prefix->members.count; each++)
            tell_member(&prefix->watches, TETHER_LEFT, &prefix->members.at[each], "flushed");
        clear(prefix->is_live ? &prefix->members : &prefix->next);
    }
}

static void member_changed(tether *t, tether_bytes key, tether_bytes rest) {
    tether_bytes word = word_of(&rest);
    if (is(word, "FLUSHED") || is(word, "END")) {
        prefix_changed(t, key, is(word, "FLUSHED"));
        return;
    }
    bool is_gone = is(word, "DEL");
    if (!is_gone && !is(word, "ADD") && !is(word, "SET"))
        return;
    long long token = number_of(word_of(&rest));
    char reason[WORD];
    set_word(reason, rest);
    struct member member = {key, rest, token};
    EACH(at, &t->prefixes) {
        struct prefix *prefix = AT(struct prefix, link, at);
        if (key.len < prefix->prefix.len || !same((tether_bytes){key.ptr, prefix->prefix.len}, prefix->prefix))
            continue;
        struct members *members = prefix->is_live ? &prefix->members : &prefix->next;
        if (is_gone)
            remove_member(members, key);
        else
            set_member(members, key, token, rest);
        if (prefix->is_live)
            tell_member(&prefix->watches,
                        is_gone           ? TETHER_LEFT
                        : is(word, "ADD") ? TETHER_JOINED
                                          : TETHER_CHANGED,
                        &member, is_gone ? reason : NULL);
    }
}

static void watch_anew(tether *t) {
    EACH(at, &t->watched) { /* P-WATCH-3 */
        struct watched *watched = AT(struct watched, link, at);
        watched->phase = W_ASKED;
        if (is_empty(&watched->watches))
            free_watched(watched);
        else
            send_watch(t, watched);
    }
    EACH(at, &t->prefixes) send_prefix(t, AT(struct prefix, link, at));
}

/* ---- pushes ---- */

/* `place`: that of the push, if something is known of it. */
static void told_lost(tether *t, struct place *place, bool is_temporary, tether_bytes label, const char *reason) {
    if (strcmp(reason, "demoted") == 0) { /* P-SESS-8 */
        break_off(t, "demoted", 0);
        return;
    }
    if (place) {
        struct request *request = place->request;
        place->is_explained = true;
        if (request->phase == HELD) {
            lose_place(place, reason);
        } else if (request->phase == RELEASING && !request->is_given_up) { /* P-LOSS-6 */
            say_lost(request, reason);
        } else if (request->phase != RELEASING) {
            strcpy(request->early, reason);
            place->is_lost = true;
        }
        return;
    }
    bool is_to_look = false;
    EACH(at, &t->requests) { /* P-LOSS-4 */
        struct request *request = AT(struct request, link, at);
        if (request->phase != HELD || request->is_temporary != is_temporary || !same(request->label, label))
            continue;
        if (!is_temporary && !request->is_named) {
            request->places[0].is_lost = request->count == 1;
            lose(request, reason);
            return;
        }
        char *looked_for = t->found ? request->looked_for_next : request->looked_for;
        if (looked_for[0] == 0)
            strcpy(looked_for, reason);
        is_to_look = true;
    }
    if (is_to_look)
        look(t);
}

static void told_of_request(tether *t, bool is_temporary, tether_bytes key, tether_bytes rest) {
    tether_bytes word = word_of(&rest), said = rest;
    bool is_loss = is(word, "LOST"), is_failure = is(word, "FAILED");
    long long token = number_of(word);
    if (is_loss || is_failure) { /* Behind these words, of which some errors have several, is the label. */
        tether_bytes first = word_of(&rest);
        int more = is(first, "MOVED") || is(first, "ASK") ? 2 : is(first, "NOACKS") ? 3 : 0;
        while (more-- > 0)
            word_of(&rest);
        said.len -= rest.len + (rest.ptr != NULL);
    }
    struct place *place = first_at(t, is_temporary, key, rest);
    struct request *request = place ? place->request : NULL;
    if (is_loss) {
        char reason[WORD];
        set_word(reason, said);
        told_lost(t, place, is_temporary, rest, reason);
        return;
    }
    if (request == NULL)
        return;
    request->was_granted |= token > 0;
    if (request->phase != ASKED && request->phase != WAITING)
        return;
    if (is(word, "TIMEOUT"))
        fail(request, NULL, refusal("taken", "TAKEN", "another owner still has it"));
    else if (is_failure && is(said, "UNBLOCKED"))
        break_off(t, "demoted", 0);
    else if (is_failure)
        refused_request(request, said);
    else if (token > 0)
        grant(request, token, t->now);
}

static void pushed(tether *t, const redisReply *push) {
    if (push->elements < 3)
        return;
    tether_bytes kind = text_of(push->element[0]), key = text_of(push->element[1]), text = text_of(push->element[2]);
    if (is(kind, "watchex"))
        key_changed(t, key, text);
    else if (is(kind, "watchtp"))
        member_changed(t, key, text);
    else if (is(kind, "lock") || is(kind, "settp"))
        told_of_request(t, is(kind, "settp"), key, text);
}

/* ---- time ---- */

static bool is_silent(const tether *t) { return t->fence > 0 && elapsed(t, t->vouched) >= t->fence; }

/* P-FENCE-8, P-FENCE-9 */
static void silence(tether *t) { break_off(t, "silence", t->options.stop_within); }

/* P-ACQ-5 */
static void wait_is_over(struct request *request) {
    bool is_up = request->t->link == UP;
    if (request->phase == WAITING && is_up)
        tell_last(request, S_REFUSED, refusal("taken", "TAKEN", "another owner still has it"));
    else if (request->refusal[0])
        tell_last(request, S_REFUSED, refusal("refused", request->refusal, "the server refused to the end"));
    else if (request->phase == QUEUED && is_up)
        tell_last(request, S_REFUSED, refusal("taken", "TAKEN", "this owner's former request is not settled"));
    else
        tell_last(request, S_REFUSED, refusal("unreachable", "UNREACHABLE", "no answer within the time to wait"));
    give_up(request);
}

static void retry(tether *t) {
    t->is_retry_due = false;
    EACH(at, &t->requests) {
        send_if_first(AT(struct request, link, at));
        send_unsettled(AT(struct request, link, at));
    }
    EACH(at, &t->watched) {
        if (AT(struct watched, link, at)->phase == W_ASKED)
            send_watch(t, AT(struct watched, link, at));
    }
    EACH(at, &t->prefixes) {
        if (AT(struct prefix, link, at)->is_refused)
            send_prefix(t, AT(struct prefix, link, at));
    }
    if (t->is_to_look && !t->is_looking) {
        t->is_to_look = false;
        look(t);
    }
}

static double wait_left(const struct request *request) {
    bool is_waiting = request->phase == QUEUED || request->phase == ASKED || request->phase == WAITING;
    if (!is_waiting || request->terms.wait <= 0)
        return INFINITY;
    return request->terms.wait + SERVERS_WORD - elapsed(request->t, request->began);
}

static double lease_left(const struct request *request) {
    double left = INFINITY;
    if (request->phase != HELD)
        return left;
    if (request->lease > 0)
        left = request->lease - elapsed(request->t, request->lease_from);
    EACH(at, &request->errands) { /* P-LEASE-2: each extension may have been carried out */
        const struct errand *errand = AT(struct errand, link, at);
        if (!errand->is_check)
            left = fmin(left, errand->lease - elapsed(request->t, errand->sent));
    }
    return left;
}

/* The time until `tick` has something to do. */
static double time_left(const tether *t) {
    double left = t->fence > 0 ? t->fence - elapsed(t, t->vouched) : INFINITY;
    if (t->link == GREETING)
        left = fmin(left, CONNECT_WITHIN - elapsed(t, t->link_since));
    if (t->is_connect_due)
        left = fmin(left, t->connect_after - elapsed(t, t->connect_from));
    if (t->link == UP)
        left = fmin(left, t->fence / 4 - elapsed(t, t->pinged));
    if (t->is_retry_due)
        left = fmin(left, t->retry_after - elapsed(t, t->retry_from));
    EACH(at, &t->requests) {
        const struct request *request = AT(struct request, link, at);
        left = fmin(left, fmin(wait_left(request), lease_left(request)));
    }
    return left < 0 ? 0 : left;
}

static void tick(tether *t) {
    if (is_silent(t))
        silence(t);
    EACH(at, &t->requests) {
        if (wait_left(AT(struct request, link, at)) <= 0)
            wait_is_over(AT(struct request, link, at));
    }
    EACH(at, &t->requests) {
        struct request *request = AT(struct request, link, at);
        if (lease_left(request) <= 0) { /* P-LEASE-2; the release may find that the lease is over */
            for (size_t key = 0; key < request->count; key++)
                request->places[key].is_explained = true;
            lose(request, "lease");
        }
    }
    if (t->link == GREETING && elapsed(t, t->link_since) >= CONNECT_WITHIN)
        attempt_left(t, refusal("unreachable", "UNREACHABLE", "the server did not answer"));
    if (t->is_connect_due && elapsed(t, t->connect_from) >= t->connect_after)
        connect_now(t);
    if (t->is_retry_due && elapsed(t, t->retry_from) >= t->retry_after)
        retry(t);
    if (t->link == UP && elapsed(t, t->pinged) >= t->fence / 4) { /* P-FENCE-7 */
        t->pinged = t->now;
        send_word(t, "PING", (tether_bytes){NULL, 0}, NULL);
    }
}

static void receive(tether *t, const redisReply *reply) {
    if (is_silent(t))
        silence(t);
    if (t->link != GREETING && t->link != UP)
        return;
    if (reply->type == REDIS_REPLY_PUSH) { /* P-FRAME-1 */
        pushed(t, reply);
        return;
    }
    if (is_empty(&t->commands)) { /* P-FRAME-2 */
        break_off(t, "connection", 0);
        return;
    }
    struct command *command = AT(struct command, link, t->commands.next);
    take_off(&command->link);
    tether_bytes code = code_of(reply);
    bool is_not_here = kind_of(code) == NOT_HERE;
    if (t->link == UP && !is_not_here && !is(code, "LOADING") && elapsed(t, command->sent) < elapsed(t, t->vouched))
        t->vouched = command->sent; /* P-FENCE-6 */
    if (t->link == UP && is_not_here)
        break_off(t, "demoted", 0);
    else if (command->then)
        command->then(command, reply);
    free_command(command);
}

/* ---- what the user calls ---- */

/* What is due comes first: a hold that it ends is lost, and not released or entered again. */
static void enter_call(tether *t) {
    enter(t);
    tick(t);
}

static struct request *new_request(tether *t, const tether_bytes *keys, size_t count, bool is_temporary,
                                   const tether_terms *terms, tether_bytes label) {
    struct request *request = zeroed(sizeof *request + count * sizeof *request->places);
    list_init(&request->link);
    list_init(&request->locks);
    list_init(&request->errands);
    request->has_name = !terms->seq;
    request->t = t;
    request->references = 1;
    request->is_temporary = is_temporary;
    request->terms = *terms;
    request->terms.owner = request->terms.task = NULL;
    request->label = label;
    request->began = t->now;
    request->count = count;
    for (size_t at = 0; at < count; at++) {
        list_init(&request->places[at].bucket);
        request->places[at].request = request;
        request->places[at].key = copied(keys[at]);
    }
    return request;
}

static tether_bytes fresh_label(tether *t) {
    char label[24];
    snprintf(label, sizeof label, ".%llu", ++t->labels);
    return copied(tether_text(label));
}

/* P-OWNER-7: the hold that this request re-enters. */
static struct request *re_entered(struct request *request, struct place *other) {
    struct request *hold = other->request;
    const tether_terms *a = &hold->terms, *b = &request->terms;
    bool is_same = hold->phase == HELD && a->reentrant && b->reentrant && request->is_named &&
                   hold->count == request->count && a->shared == b->shared && a->permits == b->permits &&
                   a->of == b->of;
    for (size_t at = 0; is_same && at < hold->count; at++)
        is_same = same(hold->places[at].key, request->places[at].key);
    return is_same ? hold : NULL;
}

/* NULL, or why it is refused before anything is sent. */
static const char *fault_of(const tether_bytes *keys, size_t count, const tether_terms *terms) {
    if (terms->owner && terms->owner->len && terms->owner->ptr[0] == '.')
        return "OWNER"; /* P-OWNER-2 */
    for (size_t at = 0; at < count; at++)
        for (size_t other = 0; other < at; other++)
            if (same(keys[at], keys[other]))
                return "KEYS";
    return count ? NULL : "KEYS"; /* P-ACQ-9 */
}

static void refuse(tether_lock *lock, tether_event said) {
    tell(lock->t, lock, NULL, said);
    finish(lock, S_REFUSED, "");
}

static void handle(tether_lock *lock, struct request *request) {
    lock->request = request;
    append(&request->locks, &lock->other);
}

static tether_event is_closed(const tether *t) {
    return t->pid == getpid() ? refusal("closed", "CLOSED", "this client was closed")
                              : refusal("fork", "FORK", "this client is the parent process's");
}

static void acquire(tether *t, tether_lock *lock, const tether_bytes *keys, size_t count, tether_bytes value,
                    tether_terms terms) {
    const char *fault = fault_of(keys, count, &terms);
    bool is_temporary = value.ptr != NULL;
    if (t->is_closed) {
        refuse(lock, is_closed(t));
        return;
    }
    if (fault) {
        refuse(lock, refusal("refused", fault, "no key, a repeated key, or an owner's name that begins with a dot"));
        return;
    }
    bool is_named = terms.owner && !is_temporary;
    tether_bytes label = is_temporary ? (tether_bytes){NULL, 0} : is_named ? copied(*terms.owner) : fresh_label(t);
    tether_bytes task = terms.task     ? copied(*terms.task)
                        : is_temporary ? fresh_label(t) /* P-OWNER-6 */
                                       : (tether_bytes){NULL, 0};
    if (terms.seq)
        terms.wait = 0; /* P-TEMP-3 */
    struct request *request = new_request(t, keys, count, is_temporary, &terms, label);
    request->is_named = is_named;
    request->value = copied(value);
    request->task = task;
    bool is_unsettled = is_task_in_the_way(request);
    for (size_t at = 0; request->has_name && at < count; at++) { /* P-OWNER-3 */
        struct place *other = newest_at(t, is_temporary, keys[at], label);
        is_unsettled |= other && is_left(other->request);
        if (other == NULL || other->request->phase == RELEASING)
            continue;
        struct request *hold = re_entered(request, other);
        if (hold) {
            handle(lock, hold);
            lock->state = S_HELD;
            lock->token = hold->token;
            tell(t, lock, NULL, (tether_event){.kind = TETHER_GRANTED, .token = hold->token});
        } else if (terms.wait == 0) {
            refuse(lock, refusal("taken", "TAKEN", "this owner has it already, or asks for it"));
        } else {
            refuse(lock, refusal("deadlock", "DEADLOCK", "this owner has it already, or asks for it"));
        }
        let_go(request);
        return;
    }
    if (terms.wait == 0 && is_unsettled) { /* P-OWNER-4 */
        refuse(lock, refusal("taken", "TAKEN", "the former release was refused"));
        let_go(request);
        return;
    }
    handle(lock, request);
    stand(request, false);
    need_link(t);
    send_if_first(request);
}

static tether_lock *ask_for(tether *t, const tether_bytes *keys, size_t count, tether_bytes value,
                            const tether_terms *terms, tether_lock_fn *fn, void *user) {
    tether_lock *lock = zeroed(sizeof *lock);
    bool is_gone = false;
    enter_call(t);
    list_init(&lock->other);
    append(&t->locks, &lock->link);
    lock->t = t;
    lock->fn = fn;
    lock->user = user;
    lock->is_gone = &is_gone;
    acquire(t, lock, keys, count, value, terms ? *terms : (tether_terms){0});
    leave(t);
    if (is_gone)
        return NULL;
    lock->is_gone = NULL;
    return lock;
}

tether_lock *tether_acquire(tether *t, tether_bytes key, const tether_terms *terms, tether_lock_fn *fn, void *user) {
    return ask_for(t, &key, 1, (tether_bytes){NULL, 0}, terms, fn, user);
}

tether_lock *tether_acquire_all(tether *t, const tether_bytes *keys, size_t count, const tether_terms *terms,
                                tether_lock_fn *fn, void *user) {
    return ask_for(t, keys, count, (tether_bytes){NULL, 0}, terms, fn, user);
}

tether_lock *tether_settp(tether *t, tether_bytes key, tether_bytes value, const tether_terms *terms,
                          tether_lock_fn *fn, void *user) {
    return ask_for(t, &key, 1, value.ptr ? value : tether_text(""), terms, fn, user);
}

/* One handle less; the last one releases. */
static void release(tether_lock *lock, bool is_told) {
    struct request *request = lock->request;
    bool is_last = request && request->locks.next->next == &request->locks;
    if (request)
        end_errands(lock);
    if (request && request->phase == HELD && !is_last) {
        if (is_told)
            tell(lock->t, lock, NULL, (tether_event){.kind = TETHER_RELEASED});
        finish(lock, S_RELEASED, "");
    } else if (request) {
        lock->state = S_RELEASED; /* P-REL-9 */
        if (!is_told)
            finish(lock, S_RELEASED, "");
        forget_errands(request);
        if (request->phase == HELD)
            send_releases(request);
        else
            give_up(request);
    }
}

void tether_release(tether_lock *lock) {
    tether *t = lock->t;
    enter_call(t);
    release(lock, true);
    leave(t);
}

static void free_lock(tether_lock *lock) {
    take_off(&lock->other);
    take_off(&lock->link);
    if (lock->is_gone)
        *lock->is_gone = true;
    hi_free(lock);
}

void tether_forget(tether_lock *lock) {
    tether *t = lock->t;
    enter(t);
    release(lock, false);
    forget_events(t, lock, NULL);
    free_lock(lock);
    leave(t);
}

const char *tether_check(const tether_lock *lock) {
    static const char *const words[] = {"waiting", NULL, "refused", "released", NULL};
    tether *t = lock->t;
    if (lock->state == S_LOST)
        return lock->reason;
    if (lock->state != S_HELD)
        return words[lock->state];
    if (t->pid != getpid()) /* P-FORK-1 */
        return "fork";
    t->clocks(t, &t->now); /* P-FENCE-4 */
    return is_silent(t) ? "silence" : lease_left(lock->request) <= 0 ? "lease" : NULL;
}

long long tether_token(const tether_lock *lock) { return lock->token; }

static struct errand *errand_of(const struct command *command) {
    EACH(at, &command->request->errands) {
        struct errand *errand = AT(struct errand, link, at);
        if (errand->number == command->number)
            return errand;
    }
    return NULL;
}

static void answer(struct errand *errand, tether_event said) {
    if (errand->lock)
        tell(errand->lock->t, errand->lock, NULL, said);
    errand->lock = NULL;
}

static void errand_answered(struct command *command, const redisReply *reply) {
    struct request *request = command->request;
    struct errand *errand = errand_of(command);
    char code[WORD];
    if (errand == NULL)
        return;
    set_word(code, code_of(reply));
    bool is_check = errand->is_check;
    if (strcmp(code, is_check ? "STALE" : "NOTHELD") == 0) { /* Its key was renamed (P-LEASE-3). */
        lose_place(command->place, is_check ? "stale" : "deleted");
        look(command->t);
        return;
    }
    errand->left--;
    if (is_error(reply)) {
        tether_kind kind = is_check ? TETHER_NOT_CHECKED : TETHER_NOT_EXTENDED;
        answer(errand, (tether_event){.kind = kind, .error = "refused", .code = code, .text = reply->str});
    }
    if (errand->left > 0 && (is_check || !is_error(reply)))
        return;
    if (!is_check && !is_error(reply)) {
        request->lease = errand->lease;
        request->lease_from = command->sent;
    }
    answer(errand, (tether_event){.kind = is_check ? TETHER_CHECKED : TETHER_EXTENDED});
    free_errand(errand);
}

/* P-LEASE-1, P-GUARD-2: a command for each key. */
static void send_errand(tether_lock *lock, bool is_check, double lease) {
    struct request *request = lock->request;
    tether *t = lock->t;
    if (request == NULL || request->phase != HELD) {
        say_not_held(lock, is_check);
        return;
    }
    struct errand *errand = zeroed(sizeof *errand);
    append(&request->errands, &errand->link);
    errand->lock = lock;
    errand->number = ++t->errands;
    errand->left = request->count;
    errand->is_check = is_check;
    errand->lease = lease;
    errand->sent = t->now;
    for (size_t at = 0; at < request->count; at++) {
        struct words words = {0};
        add_text(&words, is_check ? "LOCK.CHECK" : "LOCK.EXTEND");
        add(&words, request->places[at].key);
        if (is_check) {
            add_number(&words, request->token);
        } else {
            add_time(&words, lease);
            add_owner(&words, request);
        }
        struct command *command = send_words(t, &words, errand_answered);
        about(command, request, &request->places[at]);
        command->number = errand->number;
    }
}

void tether_extend(tether_lock *lock, double lease) {
    tether *t = lock->t;
    enter_call(t);
    send_errand(lock, false, lease);
    leave(t);
}

void tether_check_server(tether_lock *lock) {
    tether *t = lock->t;
    enter_call(t);
    send_errand(lock, true, 0);
    leave(t);
}

static void watch_key(tether *t, tether_watch *watch, tether_bytes key) {
    struct watched *watched = watched_of(t, key);
    if (watched == NULL) {
        watched = zeroed(sizeof *watched);
        list_init(&watched->watches);
        watched->key = copied(key);
        append(&t->watched, &watched->link);
        append(bucket_of(t->keys, key, (tether_bytes){NULL, 0}), &watched->bucket);
        need_link(t);
        send_watch(t, watched);
    }
    watch->watched = watched;
    append(&watched->watches, &watch->other);
    if (watched->phase == W_KNOWN)
        tell_state(watch);
}

static void watch_prefix(tether *t, tether_watch *watch, tether_bytes name) {
    struct prefix *prefix = NULL;
    EACH(at, &t->prefixes) {
        if (same(AT(struct prefix, link, at)->prefix, name))
            prefix = AT(struct prefix, link, at);
    }
    watch->prefix = prefix;
    if (prefix && prefix->is_live) {
        struct link alone;
        list_init(&alone);
        append(&alone, &watch->other);
        tell_difference(&alone, &(struct members){NULL, 0, 0}, &prefix->members);
        take_off(&watch->other);
    } else if (prefix) {
        watch->is_late = true;
    } else {
        watch->prefix = prefix = zeroed(sizeof *prefix);
        list_init(&prefix->watches);
        prefix->prefix = copied(name);
        prefix->references = 1;
        append(&t->prefixes, &prefix->link);
        need_link(t);
        send_prefix(t, prefix);
    }
    append(&prefix->watches, &watch->other);
}

static tether_watch *watch_with(void (*begin)(tether *, tether_watch *, tether_bytes), tether *t, tether_bytes name,
                                tether_watch_fn *fn, void *user) {
    tether_watch *watch = zeroed(sizeof *watch);
    bool is_gone = false;
    enter(t);
    list_init(&watch->other);
    append(&t->watches, &watch->link);
    watch->t = t;
    watch->fn = fn;
    watch->user = user;
    watch->is_gone = &is_gone;
    if (t->is_closed)
        end_watch(watch, is_closed(t));
    else
        begin(t, watch, name);
    leave(t);
    if (is_gone)
        return NULL;
    watch->is_gone = NULL;
    return watch;
}

tether_watch *tether_watch_key(tether *t, tether_bytes key, tether_watch_fn *fn, void *user) {
    return watch_with(watch_key, t, key, fn, user);
}

tether_watch *tether_presence(tether *t, tether_bytes prefix, tether_watch_fn *fn, void *user) {
    return watch_with(watch_prefix, t, prefix, fn, user);
}

static void free_watch(tether_watch *watch) {
    take_off(&watch->other);
    take_off(&watch->link);
    if (watch->is_gone)
        *watch->is_gone = true;
    hi_free(watch);
}

void tether_unwatch(tether_watch *watch) {
    tether *t = watch->t;
    enter(t); /* in a forked child, this ends the watch and frees what it is of */
    struct watched *watched = watch->watched;
    struct prefix *prefix = watch->prefix;
    forget_events(t, NULL, watch);
    free_watch(watch);
    if (watched && is_empty(&watched->watches)) {
        if (watched->phase == W_KNOWN && t->link == UP)
            send_unwatch(t, watched);
        else if (!watched->is_on_wire)
            free_watched(watched);
    }
    if (prefix && is_empty(&prefix->watches)) {
        if (t->link == UP)
            send_word(t, "UNWATCHTP", prefix->prefix, NULL);
        end_prefix(prefix);
    }
    leave(t);
}

/* P-CLOSE-1, P-FORK-1 */
static void shut(tether *t, const char *why) {
    bool was_linked = t->link != NO_LINK;
    t->is_closed = true;
    t->is_connect_due = false;
    cut(t);
    EACH(at, &t->requests) fail(AT(struct request, link, at), why, is_closed(t));
    end_watches(t, is_closed(t));
    if (was_linked)
        t->order(t, LEAVE, 0);
}

void tether_close(tether *t) {
    enter(t);
    if (!t->is_closed)
        shut(t, "closed");
    leave(t);
}

void tether_free(tether *t) {
    t->depth++;
    t->is_freed = true;
    leave(t);
}

/* ---- the shell: hiredis, the clocks, processes ---- */

struct wire {
    struct link link; /* of t->wires */
    tether *t;        /* NULL: it was freed */
    redisAsyncContext *ac;
    struct stamp since;
    double stays; /* it was left, and is closed after this time */
};

enum greeting { HELLO, SETNAME, SELECT, ROLE };

static void read_clocks(tether *t, struct stamp *now) {
    struct timespec mono, boot;
#ifdef __APPLE__
    clock_gettime(CLOCK_UPTIME_RAW, &mono);
    clock_gettime(CLOCK_MONOTONIC, &boot); /* which runs on in suspend there */
#else
    clock_gettime(CLOCK_MONOTONIC, &mono);
#ifdef CLOCK_BOOTTIME
    clock_gettime(CLOCK_BOOTTIME, &boot);
#else
    t->has_boot_clock = false; /* P-FENCE-5 */
    boot = mono;
#endif
#endif
    (void)t;
    *now = (struct stamp){(double)mono.tv_sec * 1e3 + (double)mono.tv_nsec / 1e6,
                          (double)boot.tv_sec * 1e3 + (double)boot.tv_nsec / 1e6};
}

/* Calls wire_gone: at once, or after the callback that runs now. For that, hiredis looks at its mark only after a
 * reply; after a push, it is the reader's error by which it ends the connection. */
static void free_context(redisAsyncContext *ac) {
    ac->c.reader->err = REDIS_ERR_EOF;
    redisAsyncFree(ac);
}

static void close_wire(tether *t) {
    struct wire *wire = t->wire;
    t->wire = NULL;
    if (wire)
        free_context(wire->ac);
}

/* hiredis frees the context: the connection ended, could not be opened, or was closed here. */
static void wire_gone(void *data) {
    struct wire *wire = data;
    tether *t = wire->t;
    take_off(&wire->link);
    if (t && t->wire == wire) {
        t->wire = NULL;
        enter(t);
        if (t->link == OPENING)
            unreached(t);
        else
            broke(t);
        leave(t);
    }
    hi_free(wire);
}

static void on_reply(redisAsyncContext *ac, void *reply, void *user) {
    struct wire *wire = ac->data;
    tether *t = wire->t;
    (void)user;
    if (t == NULL || t->wire != wire || reply == NULL)
        return;
    enter(t);
    receive(t, reply);
    leave(t);
}

static void on_push(redisAsyncContext *ac, void *reply) { on_reply(ac, reply, NULL); }

static void send_on_wire(tether *t, int argc, const char **argv, const size_t *argvlen) {
    if (t->wire)
        redisAsyncCommandArgv(t->wire->ac, on_reply, NULL, argc, argv, argvlen);
}

static void order_later(tether *t, enum order order, double after) {
    t->is_to_connect = order == CONNECT;
    if (order == LEAVE) {
        t->is_to_leave = true;
        t->leave_after = after;
    }
    t->hops = 0;
}

static void open_wire(tether *t, const char *host, int port);

static void on_greeting(redisAsyncContext *ac, void *data, void *user) {
    struct wire *wire = ac->data;
    tether *t = wire->t;
    const redisReply *reply = data;
    enum greeting greeting = (enum greeting)(intptr_t)user;
    if (t == NULL || t->wire != wire || reply == NULL)
        return;
    enter(t);
    bool is_slave = greeting == ROLE && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 3 &&
                    is(text_of(reply->element[0]), "slave") && text_of(reply->element[1]).len;
    if (is_error(reply) && (greeting == HELLO || greeting == SELECT)) {
        char code[WORD];
        enum refusal kind = kind_of(code_of(reply));
        set_word(code, code_of(reply));
        attempt_left(t, refusal(kind == FINAL ? "refused" : "unreachable", code, reply->str));
    } else if (is_slave && t->hops < HOPS) { /* P-CONN-5 */
        t->hops++;
        close_wire(t);
        open_wire(t, reply->element[1]->str, (int)reply->element[2]->integer);
    } else if (greeting == ROLE) {
        connected(t);
    }
    leave(t);
}

/* P-CONN-3 */
static void name_of(const tether *t, char name[201]) {
    char host[65] = "";
    gethostname(host, sizeof host - 1);
#if defined(__GLIBC__)
    const char *program = program_invocation_short_name;
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__OpenBSD__) || defined(__NetBSD__)
    const char *program = getprogname();
#else
    const char *program = "c";
#endif
    if (t->options.name)
        snprintf(name, 201, "%s", t->options.name);
    else
        snprintf(name, 201, "tether:%s:%ld:%s", host, (long)t->pid, program);
    for (char *at = name; *at; at++)
        if (*at < '!' || *at > '~')
            *at = '_';
}

static void greet(tether *t, enum greeting greeting, const char *const *words) {
    const char *argv[6];
    int argc = 0;
    while (words[argc]) {
        argv[argc] = words[argc];
        argc++;
    }
    redisAsyncCommandArgv(t->wire->ac, on_greeting, (void *)(intptr_t)greeting, argc, argv, NULL);
}

/* P-CONN-2; what is sent waits until the connection is open. */
static void open_wire(tether *t, const char *host, int port) {
    const tether_options *options = &t->options;
    redisAsyncContext *ac = options->connect(options->user, host, port);
    if (ac == NULL || ac->err || ac->ev.addWrite == NULL) {
        if (ac)
            redisAsyncFree(ac);
        unreached(t);
        return;
    }
    struct wire *wire = t->wire = zeroed(sizeof *wire);
    append(&t->wires, &wire->link);
    wire->t = t;
    wire->ac = ac;
    wire->since = t->now;
    fcntl(ac->c.fd, F_SETFD, FD_CLOEXEC); /* P-FORK-2 */
    ac->data = wire;
    ac->dataCleanup = wire_gone;
    redisAsyncSetPushCallback(ac, on_push);
    t->is_unix = ac->c.connection_type == REDIS_CONN_UNIX;
    char name[201], database[16];
    name_of(t, name);
    snprintf(database, sizeof database, "%d", options->database);
    const char *user = options->username ? options->username : "default";
    greet(t, HELLO,
          options->password ? (const char *[]){"HELLO", "3", "AUTH", user, options->password, NULL}
                            : (const char *[]){"HELLO", "3", NULL});
    greet(t, SETNAME, (const char *[]){"CLIENT", "SETNAME", name, NULL});
    if (options->database)
        greet(t, SELECT, (const char *[]){"SELECT", database, NULL});
    greet(t, ROLE, (const char *[]){"ROLE", NULL});
}

static void carry_out(tether *t) {
    if (t->is_to_leave) {
        struct wire *wire = t->wire;
        t->is_to_leave = false;
        if (wire && t->leave_after > 0) { /* P-FENCE-9 */
            t->wire = NULL;
            wire->since = t->now;
            wire->stays = t->leave_after;
            wire->ac->ev.delRead(wire->ac->ev.data);
            wire->ac->ev.delWrite(wire->ac->ev.data);
        }
        close_wire(t);
    }
    if (t->is_to_connect) {
        t->is_to_connect = false;
        open_wire(t, NULL, 0);
    }
}

long tether_tick(tether *t) {
    enter(t);
    if (t->wire && t->link == OPENING && elapsed(t, t->wire->since) >= CONNECT_WITHIN) {
        close_wire(t);
        unreached(t);
    }
    tick(t);
    if (!leave(t))
        return -1;
    double left = time_left(t);
    EACH(at, &t->wires) {
        struct wire *wire = AT(struct wire, link, at);
        double stays = wire->stays > 0 ? wire->stays - elapsed(t, wire->since) : INFINITY;
        if (stays <= 0)
            free_context(wire->ac);
        else
            left = fmin(left, wire == t->wire && t->link == OPENING ? CONNECT_WITHIN - elapsed(t, wire->since) : stays);
    }
    return left == INFINITY ? -1 : (long)ceil(fmax(left, 0));
}

/* Async-signal-safe: it allocates nothing and calls nobody. */
void tether_forked(tether *t) {
    int dead = open("/dev/null", O_RDWR | O_CLOEXEC);
    EACH(at, &t->wires) {
        int fd = AT(struct wire, link, at)->ac->c.fd;
        if (fd >= 0 && dead >= 0) {
            dup2(dead, fd);
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
    if (dead >= 0)
        close(dead);
}

/* The contexts are left as they are: they belong to the parent's loop, whose descriptors the child shares. */
static void become_child(tether *t) {
    if (t->is_closed && is_empty(&t->wires))
        return;
    tether_forked(t);
    EACH(at, &t->wires) {
        struct wire *wire = AT(struct wire, link, at);
        take_off(at);
        wire->ac->dataCleanup = NULL;
        hi_free(wire);
    }
    t->wire = NULL;
    shut(t, "fork");
}

static tether *new_core(void) {
    tether *t = zeroed(sizeof *t);
    struct link *lists[] = {&t->commands, &t->requests, &t->locks,    &t->watches, &t->events,
                            &t->dead,     &t->watched,  &t->prefixes, &t->wires};
    for (size_t at = 0; at < sizeof lists / sizeof *lists; at++)
        list_init(lists[at]);
    for (size_t at = 0; at < BUCKETS; at++) {
        list_init(&t->places[at]);
        list_init(&t->keys[at]);
    }
    t->has_boot_clock = true;
    t->random = -1;
    t->pid = getpid();
    return t;
}

static const char *kept(const char *text) { return text ? copied(tether_text(text)).ptr : NULL; }

tether *tether_new(const tether_options *options) {
    tether *t = new_core();
    t->options = *options;
    t->options.username = kept(options->username);
    t->options.password = kept(options->password);
    t->options.name = kept(options->name);
    t->clocks = read_clocks;
    t->send = send_on_wire;
    t->order = order_later;
    t->carry_out = carry_out;
    t->clocks(t, &t->now);
    t->seed = (unsigned)t->pid ^ (unsigned)(uint64_t)(t->now.mono * 1e6);
    return t;
}

static void destroy(tether *t) {
    bool is_child = t->pid != getpid();
    if (is_child)
        tether_forked(t);
    EACH(at, &t->wires) {
        struct wire *wire = AT(struct wire, link, at);
        take_off(at);
        wire->t = NULL;
        if (is_child) {
            wire->ac->dataCleanup = NULL;
            hi_free(wire);
        } else {
            free_context(wire->ac);
        }
    }
    cut(t);
    EACH(at, &t->locks) free_lock(AT(tether_lock, link, at));
    EACH(at, &t->watches) free_watch(AT(tether_watch, link, at));
    EACH(at, &t->events) hi_free(AT(struct event, link, at));
    EACH(at, &t->requests) free_request(AT(struct request, link, at));
    EACH(at, &t->dead) free_request(AT(struct request, link, at));
    EACH(at, &t->watched) free_watched(AT(struct watched, link, at));
    EACH(at, &t->prefixes) free_prefix(AT(struct prefix, link, at));
    discard((tether_bytes){t->options.username, 0});
    discard((tether_bytes){t->options.password, 0});
    discard((tether_bytes){t->options.name, 0});
    hi_free(t);
}

/* ---- the user's connection for data ---- */

/* P-GUARD-1 */
bool tether_guard(const tether_lock *lock, tether_context *data, void (*fn)(tether_context *, void *, void *),
                  void *user, int argc, const char **argv, const size_t *argvlen) {
    struct words words = {0};
    if (tether_check(lock) != NULL)
        return false;
    add_text(&words, "LOCK.GUARD");
    add(&words, lock->request->places[0].key);
    add_number(&words, lock->token);
    for (int at = 0; at < argc; at++)
        add(&words, argvlen ? (tether_bytes){argv[at], argvlen[at]} : tether_text(argv[at]));
    int status = redisAsyncCommandArgv(data, fn, user, (int)words.count, words.ptr, words.len);
    hi_free(words.ptr);
    hi_free(words.len);
    return status == REDIS_OK;
}

bool tether_is_stale(const void *reply) { return reply && is(code_of(reply), "STALE"); }
