/* tether.h: locks, temporary keys, watches and presence of tether, a module of Redis and Valkey.
 *
 * One `tether` has one connection of its own: a redisAsyncContext (hiredis 1.1 or later) on the caller's event loop.
 * It holds locks, and tells each of its users by a callback what becomes of a lock or a key: above all that a lock is
 * lost, before another client is granted it. It keeps the client protocol, level L1, and of L3 temporary keys, watches
 * and presence (clients/protocol/protocol.md).
 *
 *     tether *t = tether_new(&(tether_options){.connect = connect_to_redis, .user = loop});
 *     tether_lock *report = tether_acquire(t, tether_text("report"), &(tether_terms){.wait = 5000}, on_report, NULL);
 *     ...                                       // and a timer that calls tether_tick(t) every 50 ms
 *
 * Times are in milliseconds. Names and values are bytes, and are copied. A `tether` and all that belongs to it is used
 * by one thread, that of the loop. Callbacks may call any function, also those that free what the callback is about.
 * No callback runs from within another; some run before the call that causes them returns. Memory comes from
 * hiredis' allocator; where it gives none, the program is aborted, since a client that cannot note a loss must not go
 * on.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TETHER_H
#define TETHER_H

#define TETHER_VERSION "0.2.0"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compiled with TETHER_VALKEY, it uses libvalkey in the place of hiredis. */
#ifdef TETHER_VALKEY
typedef struct valkeyAsyncContext tether_context;
#else
typedef struct redisAsyncContext tether_context;
#endif

typedef struct tether tether;
typedef struct tether_lock tether_lock;   /* a request for a lock or temporary key, and then the hold */
typedef struct tether_watch tether_watch; /* of one key, or of all temporary keys with a prefix */

/* Bytes that may contain zeros. */
typedef struct {
    const char *ptr;
    size_t len;
} tether_bytes;

static inline tether_bytes tether_text(const char *text) {
    tether_bytes bytes = {text, strlen(text)};
    return bytes;
}

typedef enum {
    /* Of a lock. REFUSED, LOST, RELEASED and OVER are the last event of theirs. */
    TETHER_GRANTED,      /* `token`; `key` where `seq` made the name */
    TETHER_REFUSED,      /* it ended without a grant: `error`, `code`, `text` */
    TETHER_LOST,         /* it ended, and its owner did not end it: `code` is the reason. Stop the work */
    TETHER_RELEASING,    /* the server refused the release (`code`, `text`), which is sent again until it is accepted */
    TETHER_RELEASED,     /* the server accepted the release */
    TETHER_OVER,         /* it was released before it was granted, and the server has nothing left of it */
    TETHER_EXTENDED,     /* the lease counts anew */
    TETHER_NOT_EXTENDED, /* `error`, `code`, `text`; of a hold that is lost it follows LOST */
    TETHER_CHECKED,      /* by tether_check_server: the server has this hold */
    TETHER_NOT_CHECKED,  /* likewise, or the server could not say */
    /* Of a watch of a key: first one of these two, and then ADDED and DELETED in turn. `key` */
    TETHER_EXISTS,
    TETHER_MISSING,
    TETHER_ADDED,
    TETHER_DELETED,
    /* Of presence: `key`, `token`; `value`, whose `ptr` is NULL where the server does not say it */
    TETHER_JOINED,
    TETHER_CHANGED,
    TETHER_LEFT, /* `key`; `code` is the reason */
    /* Of either: the watch is over: `error`, `code`, `text` */
    TETHER_ENDED
} tether_kind;

/* What happened. What it points to lives until the callback returns. */
typedef struct {
    tether_kind kind;
    long long token;   /* the fencing token: send it along with each write */
    const char *error; /* "taken", "deadlock", "refused", "unreachable", "nomodule", "nopush", "unfit", "closed",
                          "lost", "fork" */
    const char
        *code; /* the first word of the server's error, or one of the client's own; of LOST and LEFT the reason */
    const char *text; /* the server's words, for people */
    tether_bytes key, value;
} tether_event;

typedef void tether_lock_fn(tether_lock *lock, const tether_event *event, void *user);
typedef void tether_watch_fn(tether_watch *watch, const tether_event *event, void *user);

typedef struct {
    /* Begins to connect, and attaches the context to the loop: redisAsyncConnect and redisLibeventAttach, say, and TLS.
     * `host` is NULL, except when the server was a replica: then host and port are its master's. The context is the
     * client's from then on: its `data`, callbacks and end. NULL: it could not be made. Without time-outs, and without
     * REDIS_OPT_NOAUTOFREE. */
    tether_context *(*connect)(void *user, const char *host, int port);
    void (*warn)(void *user, const char *what); /* NULL, or is told of "no-boot-clock": suspended time is not counted */
    void *user;
    const char *username, *password; /* NULL: none */
    const char *name;                /* of the connection; NULL: tether:<host>:<pid>:<program> */
    int database;
    double stop_within; /* how long the work goes on after a loss, at most */
    double fence;       /* D, how long one answer vouches for the holds; 0: as long as `tether.peer-timeout` allows */
} tether_options;

#define TETHER_FOREVER (-1.0)

/* How to ask. All zero: an exclusive lock, without waiting. */
typedef struct {
    double wait;               /* 0: not at all; TETHER_FOREVER */
    double lease;              /* the server ends the hold after this time; 0: never */
    bool shared;               /* beside other readers */
    int permits, of;           /* of a semaphore; 0: no semaphore */
    bool seq;                  /* tether_settp: key and token are the name, which GRANTED says. It never waits */
    bool reentrant;            /* with an `owner`: once more if it is held, and released as often */
    const tether_bytes *owner; /* NULL: each request is an owner of its own. It does not begin with a dot */
    const tether_bytes *task;  /* what one thread of work asks for, so that the server sees deadlocks; NULL: unknown */
} tether_terms;

/* Nothing is connected before the first request or watch. Options are copied. */
tether *tether_new(const tether_options *options);
/* Looks at the clocks: to be called from a timer, every 50 ms or so (a loss by silence is told at most so much later,
 * of which the protocol allows a second, less what the machine makes of it). Gives the time until it has something
 * to do, rounded up; -1: nothing until another function is called. */
long tether_tick(tether *t);
/* Tells all holders (LOST closed) and ends all requests and watches; then closes the connection, which frees the locks.
 */
void tether_close(tether *t);
/* Closes without telling anybody, and frees `t` with all its locks and watches. */
void tether_free(tether *t);
/* In a forked child, as first of all: closes the child's copies of the sockets without sending anything, so that the
 * parent's locks end with the parent. It is safe in a signal handler, and so in pthread_atfork's child handler. In the
 * child all holds are lost (`fork`) and all requests refused; use a new loop and a new `tether` there. */
void tether_forked(tether *t);

/* Asks for a lock, for several at once, or for a temporary key with this value. NULL: `fn` has freed it already. */
tether_lock *tether_acquire(tether *t, tether_bytes key, const tether_terms *terms, tether_lock_fn *fn, void *user);
tether_lock *tether_acquire_all(tether *t, const tether_bytes *keys, size_t count, const tether_terms *terms,
                                tether_lock_fn *fn, void *user);
tether_lock *tether_settp(tether *t, tether_bytes key, tether_bytes value, const tether_terms *terms,
                          tether_lock_fn *fn, void *user);
/* Releases the hold, or gives the request up: RELEASED or OVER follow, or LOST if it was lost before that. */
void tether_release(tether_lock *lock);
/* Frees the handle, and releases what it still has. No callback follows. Each handle is freed once, by this or by
 * tether_free; after its last event it takes no more than its memory. */
void tether_forget(tether_lock *lock);
/* NULL while it is held; else why not: "waiting", "refused", "released", or the reason of its loss. It reads the clocks
 * and asks nobody: call it before each step of the work. */
const char *tether_check(const tether_lock *lock);
/* Of the grant, else 0. */
long long tether_token(const tether_lock *lock);
/* EXTENDED or NOT_EXTENDED follows each call, in their order; `error` is "lost" if the hold ended before that. */
void tether_extend(tether_lock *lock, double lease);
/* Asks the server whether the hold is current: CHECKED or NOT_CHECKED follows each call, as with tether_extend. A hold
 * that the server does not have is lost. */
void tether_check_server(tether_lock *lock);
/* Sends the command on the caller's connection for data, to be run only while the hold is current (LOCK.GUARD). False:
 * it is not held, and nothing was sent. A reply for which tether_is_stale is true: the hold is lost, and nothing was
 * run; no reply: perhaps it was run, so it is not sent again. Of several keys, all of which must be in the data's slot,
 * it is the first that counts. */
bool tether_guard(const tether_lock *lock, tether_context *data, void (*fn)(tether_context *, void *reply, void *user),
                  void *user, int argc, const char **argv, const size_t *argvlen);
bool tether_is_stale(const void *reply);

/* Tells whether the key is there, and each change. */
tether_watch *tether_watch_key(tether *t, tether_bytes key, tether_watch_fn *fn, void *user);
/* Tells which temporary keys with this prefix there are, and each change. */
tether_watch *tether_presence(tether *t, tether_bytes prefix, tether_watch_fn *fn, void *user);
/* Ends the watch, if it is not over, and frees it. No callback follows. */
void tether_unwatch(tether_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
