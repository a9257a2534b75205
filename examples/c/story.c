/* The story of a lock, told in C with hiredis 1.1 or later.
 *
 *     make && ./story [host [port]]        (127.0.0.1 and 6379 unless told)
 *
 * A process takes the lock. Ann, Bob and Cy find it taken and ask to be told when it goes. The process is killed with
 * SIGKILL, so it cannot tidy up; the server does that. All three hear it, and one of them is the next holder.
 *
 * The end is 0 when all of that happened, 1 when not. Nobody waits for ever.
 *
 * The three are asynchronous connections in one event loop. What the server says unasked comes as a push frame of
 * RESP3, and hiredis gives each to the function of redisAsyncSetPushCallback, also while replies are awaited. Older
 * hiredis took every frame for a reply, and had to be patched before a server could speak first. */

#include <hiredis/hiredis.h>
#if HIREDIS_MAJOR < 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR < 1)
#error "this needs hiredis 1.1 or later (the Makefile says where to get it)"
#endif
#include <hiredis/async.h>
#include <hiredis/adapters/poll.h>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE 60 /* seconds that anyone waits for anything */
#define WATCHERS 3

static const char *host = "127.0.0.1";
static int port = 6379;

static pid_t holder;                    /* the process that has the lock at first */
static int watching, heard, won, tried; /* how many of the three have come so far */

struct watcher {
    const char *name;
    redisAsyncContext *connection;
};

/* ---- telling and failing ---- */

static void tell(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

static void fail(const char *who, const char *what, const char *found) {
    tell("The story fails: %s: %s: %s", who, what, found);
    if (holder > 0) kill(holder, SIGKILL);
    exit(1);
}

/* What a reply says, as a word for comparing and for telling. */
static const char *word(const redisReply *reply) {
    static char number[32];
    if (reply == NULL) return "no reply";
    if (reply->type == REDIS_REPLY_INTEGER) {
        snprintf(number, sizeof number, "%lld", reply->integer);
        return number;
    }
    return reply->str ? reply->str : "something else";
}

static void expect(const char *who, const char *what, const char *wanted, const redisReply *found) {
    if (strcmp(word(found), wanted) != 0) fail(who, what, word(found));
}

/* ---- the three who watch: each reply leads to the next step ---- */

static void on_second_settp(redisAsyncContext *connection, void *reply, void *unused) {
    struct watcher *me = connection->data;
    (void)unused;
    if (strcmp(word(reply), "1") == 0) {
        tell("%s: tries SETTP lock %s -> 1, it is mine", me->name, me->name);
        won++;
    } else {
        expect(me->name, "SETTP was to say 1 or 0, but said", "0", reply);
        tell("%s: tries SETTP lock %s -> 0, too late", me->name, me->name);
    }
    tried++;
}

/* Called for every push frame, whatever else this connection is waiting for: here `watchex lock DEL`. */
static void on_push(redisAsyncContext *connection, void *frame) {
    struct watcher *me = connection->data;
    redisReply *push = frame; /* hiredis frees it after this call */

    if (push->elements != 3 || strcmp(word(push->element[0]), "watchex") != 0) return; /* no concern of ours */
    if (strcmp(word(push->element[2]), "DEL") != 0) return; /* ADD: somebody has it again */

    tell("%s: hears: watchex %s DEL", me->name, word(push->element[1]));
    heard++;
    /* Everyone may try; the server lets one of them win. */
    redisAsyncCommand(connection, on_second_settp, NULL, "SETTP lock %s", me->name);
}

static void on_watchex(redisAsyncContext *connection, void *reply, void *unused) {
    struct watcher *me = connection->data;
    (void)unused;
    /* From the moment of this reply on, nothing that happens to the key escapes us. */
    expect(me->name, "WATCHEX was to say EXIST, but said", "EXIST", reply);
    tell("%s: WATCHEX lock -> EXIST, I shall be told", me->name);
    watching++;
}

static void on_first_settp(redisAsyncContext *connection, void *reply, void *unused) {
    struct watcher *me = connection->data;
    (void)unused;
    expect(me->name, "SETTP was to say 0, but said", "0", reply);
    tell("%s: SETTP lock %s -> 0, somebody has it", me->name, me->name);
    redisAsyncCommand(connection, on_watchex, NULL, "WATCHEX lock");
}

static void on_hello(redisAsyncContext *connection, void *reply, void *unused) {
    struct watcher *me = connection->data;
    (void)unused;
    if (reply == NULL) fail(me->name, "lost the connection", connection->errstr);
    if (((redisReply *)reply)->type == REDIS_REPLY_ERROR) fail(me->name, "HELLO 3 was refused", word(reply));
    redisAsyncCommand(connection, on_first_settp, NULL, "SETTP lock %s", me->name);
}

static void on_disconnect(const redisAsyncContext *connection, int status) {
    struct watcher *me = connection->data;
    if (status != REDIS_OK) fail(me->name, "lost the connection", connection->errstr);
}

static void join_in(struct watcher *me) {
    me->connection = redisAsyncConnect(host, port);
    if (me->connection == NULL) fail(me->name, "cannot connect", "out of memory");
    if (me->connection->err) fail(me->name, "cannot connect", me->connection->errstr);
    me->connection->data = me;
    redisPollAttach(me->connection);
    redisAsyncSetDisconnectCallback(me->connection, on_disconnect);
    redisAsyncSetPushCallback(me->connection, on_push);
    redisAsyncCommand(me->connection, on_hello, NULL, "HELLO 3"); /* RESP3 from here on */
}

/* The event loop: until `*count` is `wanted`. (With more connections one would take libevent, libuv or the like, for
 * which hiredis has adapters, too.) */
static void run_until(struct watcher *watchers, const int *count, int wanted, const char *what) {
    time_t end = time(NULL) + PATIENCE;
    while (*count < wanted) {
        if (time(NULL) > end) fail("everyone", "waited in vain for", what);
        for (int i = 0; i < WATCHERS; i++) redisPollTick(watchers[i].connection, 0.005);
    }
}

/* ---- the holder and the teller, who need only the ordinary, blocking calls ---- */

static redisContext *connect_blocking(const char *who) {
    struct timeval patience = {PATIENCE, 0};
    redisContext *connection = redisConnectWithTimeout(host, port, patience);
    if (connection == NULL) fail(who, "cannot connect", "out of memory");
    if (connection->err) fail(who, "cannot connect", connection->errstr);
    redisSetTimeout(connection, patience);
    return connection;
}

static redisReply *ask(redisContext *connection, const char *who, const char *command) {
    redisReply *reply = redisCommand(connection, command);
    if (reply == NULL) fail(who, command, connection->errstr);
    return reply;
}

/* A process of its own, so that it can be killed. It says through a pipe that it has the lock. */
static void start_holder(void) {
    int ready[2];
    char byte;
    if (pipe(ready) != 0) fail("holder", "no pipe", "pipe");
    holder = fork();
    if (holder < 0) fail("holder", "no process", "fork");
    if (holder == 0) {
        close(ready[0]);
        alarm(6 * PATIENCE); /* should nobody kill it */
        redisReply *reply = ask(connect_blocking("holder"), "holder", "SETTP lock holder");
        expect("holder", "SETTP was to say 1, but said", "1", reply);
        tell("holder: SETTP lock holder -> 1, it is mine");
        if (write(ready[1], "!", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) { /* it has ended, and has said why */
        waitpid(holder, NULL, 0);
        exit(1);
    }
    close(ready[0]);
}

int main(int argc, char **argv) {
    struct watcher watchers[WATCHERS] = {{"ann", NULL}, {"bob", NULL}, {"cy", NULL}};
    if (argc > 1) host = argv[1];
    if (argc > 2) port = atoi(argv[2]);

    start_holder();

    for (int i = 0; i < WATCHERS; i++) join_in(&watchers[i]);
    run_until(watchers, &watching, WATCHERS, "three who watch");

    tell("The holder is killed with SIGKILL.");
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    holder = 0;

    run_until(watchers, &tried, WATCHERS, "three who hear of it and try");
    if (heard != WATCHERS) fail("watchers", "one push for each was due", heard > WATCHERS ? "more came" : "fewer came");
    if (won != 1) fail("watchers", "one winner was due", won ? "there are more" : "there is none");

    redisContext *teller = connect_blocking("teller");
    redisReply *reply = ask(teller, "teller", "GET lock");
    tell("Now the lock says: %s", word(reply));
    freeReplyObject(reply);

    /* The end of a connection gives the lock back: nothing may be left behind. */
    for (int i = 0; i < WATCHERS; i++) redisAsyncFree(watchers[i].connection);
    for (time_t end = time(NULL) + PATIENCE;;) {
        reply = ask(teller, "teller", "EXISTS lock");
        if (reply->integer == 0) break;
        freeReplyObject(reply);
        if (time(NULL) > end) fail("teller", "the holder has gone, but", "the lock is still there");
        usleep(10000);
    }
    freeReplyObject(reply);
    redisFree(teller);
    tell("All have gone, and the lock with its last holder. The end.");
    return 0;
}
