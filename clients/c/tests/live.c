/* Tests on a server: live PORT [NAME]. Each ends with nothing held, watched or allocated. */
#define _GNU_SOURCE /* rand_r */
#include "tether.h"
#include <assert.h>
#include <event2/event.h>
#include <hiredis/adapters/libevent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static struct event_base *base;
static redisContext *other; /* another client */
static tether *t;
static int port;

static tether_context *connect_to(void *user, const char *host, int its_port) {
    redisAsyncContext *ac = redisAsyncConnect(host ? host : "127.0.0.1", host ? its_port : port);
    (void)user;
    if (ac && ac->err == 0)
        redisLibeventAttach(ac, base);
    return ac;
}

static tether *new_client(void) { return tether_new(&(tether_options){.connect = connect_to, .name = "a test"}); }

/* What the callbacks of one lock or watch said last, and how often. */
struct heard {
    tether_event last;
    char code[64], key[64], value[64];
    int count, times[TETHER_ENDED + 1];
};

static void hear(struct heard *heard, const tether_event *event) {
    heard->last = *event;
    heard->times[event->kind]++;
    heard->count++;
    snprintf(heard->code, sizeof heard->code, "%s", event->code);
    memcpy(heard->key, event->key.ptr ? event->key.ptr : "", event->key.len);
    memcpy(heard->value, event->value.ptr ? event->value.ptr : "", event->value.len);
}

static void on_lock(tether_lock *lock, const tether_event *event, void *heard) {
    (void)lock;
    hear(heard, event);
}

static void on_watch(tether_watch *watch, const tether_event *event, void *heard) {
    (void)watch;
    hear(heard, event);
}

static void on_timer(evutil_socket_t fd, short what, void *user) {
    (void)fd;
    (void)what;
    (void)user;
    tether_tick(t);
}

static void turn(void) { event_base_loop(base, EVLOOP_ONCE); }

static void until(const struct heard *heard, tether_kind kind) {
    while (heard->times[kind] == 0)
        turn();
}

static long long ask(const char *command) {
    redisReply *reply = redisCommand(other, command);
    long long number = reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements : reply->integer;
    freeReplyObject(reply);
    return number;
}

static const tether_terms for_ever = {.wait = TETHER_FOREVER};
static const tether_bytes binary = {"a\0b\r\n\xff", 6};

static void names_are_bytes(void) {
    struct heard lock = {0}, key = {0}, watch = {0}, presence = {0}, named = {0};
    tether_bytes value = {"\0 v", 3}, prefix = {"a\0", 2}, owner = {"o\0 w", 4};
    tether_watch_key(t, binary, on_watch, &watch);
    tether_presence(t, prefix, on_watch, &presence);
    until(&watch, TETHER_MISSING);
    tether_settp(t, binary, value, &for_ever, on_lock, &key);
    until(&key, TETHER_GRANTED);
    until(&watch, TETHER_ADDED);
    until(&presence, TETHER_JOINED);
    assert(presence.last.key.len == 6 && memcmp(presence.key, binary.ptr, 6) == 0);
    assert(presence.last.value.len == 3 && memcmp(presence.value, value.ptr, 3) == 0);
    assert(presence.last.token == key.last.token);
    redisReply *reply = redisCommand(other, "DEL %b", binary.ptr, binary.len);
    freeReplyObject(reply);
    until(&key, TETHER_LOST);
    until(&watch, TETHER_DELETED);
    until(&presence, TETHER_LEFT);
    assert(strcmp(presence.code, "deleted") == 0);
    tether_lock *held = tether_acquire(t, binary, &for_ever, on_lock, &lock);
    tether_acquire(t, tether_text("l"), &(tether_terms){.wait = 1000, .owner = &owner}, on_lock, &named);
    until(&lock, TETHER_GRANTED);
    until(&named, TETHER_GRANTED);
    assert(tether_check(held) == NULL && tether_token(held) == lock.last.token);
    tether_check_server(held);
    until(&lock, TETHER_CHECKED);
    ask("DEL l");
    until(&named, TETHER_LOST); /* whose label has a zero and a space */
    tether_release(held);
    until(&lock, TETHER_RELEASED);
    assert(strcmp(tether_check(held), "released") == 0);
}

static void forget_in_callback(tether_lock *lock, const tether_event *event, void *heard) {
    hear(heard, event);
    tether_forget(lock);
}

static void close_in_callback(tether_lock *lock, const tether_event *event, void *heard) {
    (void)lock;
    hear(heard, event);
    if (event->kind == TETHER_GRANTED)
        tether_close(t);
}

static void free_in_callback(tether_lock *lock, const tether_event *event, void *heard) {
    (void)lock;
    hear(heard, event);
    tether_free(t);
    t = new_client();
}

static void unwatch_in_callback(tether_watch *watch, const tether_event *event, void *heard) {
    hear(heard, event);
    tether_unwatch(watch);
}

static void callbacks_may_call_anything(void) {
    struct heard heard[7] = {0};
    tether_bytes twice[] = {tether_text("k"), tether_text("k")};
    assert(tether_acquire_all(t, twice, 2, NULL, forget_in_callback, &heard[0]) == NULL);
    assert(heard[0].count == 1 && strcmp(heard[0].code, "KEYS") == 0);
    tether_acquire(t, tether_text("k"), &for_ever, forget_in_callback, &heard[1]);
    until(&heard[1], TETHER_GRANTED);
    tether_watch_key(t, tether_text("w"), unwatch_in_callback, &heard[2]);
    until(&heard[2], TETHER_MISSING);
    tether_acquire(t, tether_text("k"), &for_ever, close_in_callback, &heard[3]);
    until(&heard[3], TETHER_LOST);
    assert(strcmp(heard[3].code, "closed") == 0);
    assert(tether_acquire(t, tether_text("k"), &for_ever, forget_in_callback, &heard[4]) == NULL);
    assert(strcmp(heard[4].code, "CLOSED") == 0);
    tether_free(t);
    t = new_client();
    tether_acquire(t, tether_text("k"), &for_ever, free_in_callback, &heard[5]);
    until(&heard[5], TETHER_GRANTED);
    int right = port;
    port = 1; /* where nobody answers: it is the tick that tells */
    tether_acquire(t, tether_text("k"), &(tether_terms){.wait = 10}, free_in_callback, &heard[6]);
    until(&heard[6], TETHER_REFUSED);
    port = right;
}

/* Ends the client in the callback of one event. */
struct ending {
    struct heard heard;
    tether_kind at;
    bool is_freed;
};

static void end_client(struct ending *ending, const tether_event *event) {
    hear(&ending->heard, event);
    if (event->kind != ending->at)
        return;
    if (ending->is_freed) {
        tether_free(t);
        t = new_client();
    } else {
        tether_close(t);
    }
}

static void end_at_lock(tether_lock *lock, const tether_event *event, void *ending) {
    (void)lock;
    end_client(ending, event);
}

static void end_at_watch(tether_watch *watch, const tether_event *event, void *ending) {
    (void)watch;
    end_client(ending, event);
}

static void soon_free(const char *info) {
    for (int turns = 0; ask(info) && turns < 400; turns++) /* of 5 ms */
        turn();
    assert(ask(info) == 0);
}

/* No reply is due after the push in whose callback the client ends: what is held is free all the same. */
static void ends_in_callbacks_of_pushes(void) {
    const tether_kind kinds[] = {TETHER_GRANTED, TETHER_REFUSED, TETHER_LOST, TETHER_ADDED};
    for (int at = 0; at < 8; at++) {
        struct heard held = {0};
        struct ending ending = {.at = kinds[at / 2], .is_freed = at % 2};
        tether_lock *lock = tether_acquire(t, tether_text("held"), &for_ever, on_lock, &held);
        if (ending.at == TETHER_GRANTED || ending.at == TETHER_REFUSED)
            ask("LOCK.ACQUIRE k");
        if (ending.at == TETHER_ADDED)
            tether_watch_key(t, tether_text("k"), end_at_watch, &ending);
        else
            tether_acquire(t, tether_text("k"), &(tether_terms){.wait = ending.at == TETHER_REFUSED ? 300 : 60000},
                           end_at_lock, &ending);
        until(&held, TETHER_GRANTED);
        tether_check_server(lock);
        until(&held, TETHER_CHECKED); /* and all that was sent before is answered */
        assert(ending.heard.times[ending.at] == 0);
        if (ending.at == TETHER_GRANTED)
            ask("LOCK.RELEASE k");
        if (ending.at == TETHER_LOST)
            ask("DEL k");
        if (ending.at == TETHER_ADDED)
            ask("LOCK.ACQUIRE k");
        until(&ending.heard, ending.at);
        soon_free("LOCK.INFO held");
        if (!ending.is_freed) {
            tether_free(t);
            t = new_client();
        }
        ask("LOCK.RELEASE k");
    }
}

static void nobody(tether_lock *lock, const tether_event *event, void *user) {
    (void)lock;
    (void)event;
    (void)user;
    abort();
}

/* At each point of a request, also while another client has the lock. TETHER_STEPS of them. */
static void cancels_leave_nobody(void) {
    const char *steps = getenv("TETHER_STEPS");
    unsigned seed = 37;
    tether_bytes keys[] = {tether_text("k"), tether_text("l")};
    for (int at = 0; at < (steps ? atoi(steps) : 10000); at++) {
        struct heard heard = {0};
        int what = rand_r(&seed) % 8;
        bool is_heard = what & 1;
        if (at % 100 == 0)
            ask(at % 200 ? "LOCK.RELEASE k" : "LOCK.ACQUIRE k");
        tether_lock *lock = what < 5 ? tether_acquire(t, keys[what & 1], &for_ever, is_heard ? on_lock : nobody, &heard)
                                     : tether_acquire_all(t, keys, 2, &for_ever, is_heard ? on_lock : nobody, &heard);
        for (int turns = is_heard ? rand_r(&seed) % 4 : 0; turns > 0; turns--)
            event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        if (rand_r(&seed) % 2 && is_heard)
            tether_release(lock);
        tether_forget(lock);
    }
    ask("LOCK.RELEASE k");
    while (ask("LOCK.INFO k") || ask("LOCK.INFO l"))
        turn();
}

/* A key that was renamed is held on under its new name, by nobody who knows. */
static void stale_is_released(void) {
    tether_bytes keys[] = {tether_text("k"), tether_text("l")};
    for (size_t count = 1; count <= 2; count++) {
        struct heard heard = {0};
        tether_lock *held = tether_acquire_all(t, keys, count, &for_ever, on_lock, &heard);
        until(&heard, TETHER_GRANTED);
        ask("RENAME k renamed");
        tether_check_server(held);
        until(&heard, TETHER_LOST);
        assert(heard.times[TETHER_CHECKED] == 0);
        soon_free("LOCK.INFO renamed");
        soon_free("LOCK.INFO l");
    }
}

/* One of two keys may not be read, or neither. */
static void check_says_one_thing(void) {
    const char *unread[] = {"ACL SETUSER u resetkeys ~l", "ACL SETUSER u resetkeys ~k", "ACL SETUSER u resetkeys"};
    tether_bytes keys[] = {tether_text("k"), tether_text("l")};
    struct heard heard = {0};
    ask("ACL SETUSER u on >p ~* +@all");
    tether_free(t);
    t = tether_new(&(tether_options){.connect = connect_to, .username = "u", .password = "p"});
    tether_lock *held = tether_acquire_all(t, keys, 2, &for_ever, on_lock, &heard);
    until(&heard, TETHER_GRANTED);
    for (int at = 0; at < 3; at++) {
        ask(unread[at]);
        tether_check_server(held);
        until(&heard, TETHER_NOT_CHECKED);
        assert(strcmp(heard.code, "NOPERM") == 0);
        ask("ACL SETUSER u ~*");
        tether_check_server(held);
        until(&heard, TETHER_CHECKED);
        assert(heard.times[TETHER_NOT_CHECKED] == 1 && heard.times[TETHER_CHECKED] == 1);
        heard.times[TETHER_NOT_CHECKED] = heard.times[TETHER_CHECKED] = 0;
    }
    ask("ACL DELUSER u");
}

static int answers(const struct heard *heard) {
    return heard->times[TETHER_EXTENDED] + heard->times[TETHER_NOT_EXTENDED] + heard->times[TETHER_CHECKED] +
           heard->times[TETHER_NOT_CHECKED];
}

/* Each call that asks the server about a hold has one answer, told to who called, also where a release overtakes it. */
static void each_errand_is_answered(void) {
    const tether_bytes owner = tether_text("me"), keys[] = {tether_text("k"), tether_text("l")};
    const tether_terms again = {.wait = TETHER_FOREVER, .reentrant = true, .owner = &owner};
    for (int is_lost = 0; is_lost < 2; is_lost++) {
        struct heard heard = {0};
        tether_lock *held = tether_acquire_all(t, keys, 2, &for_ever, on_lock, &heard);
        until(&heard, TETHER_GRANTED);
        tether_extend(held, 60000);
        tether_check_server(held);
        tether_extend(held, 60000);
        if (is_lost)
            ask("DEL k");
        else
            tether_release(held);
        until(&heard, is_lost ? TETHER_LOST : TETHER_RELEASED);
        assert(answers(&heard) == 3);
        tether_check_server(held);
        tether_extend(held, 60000);
        assert(answers(&heard) == 5 && strcmp(heard.last.error, "lost") == 0);
    }
    struct heard outer = {0}, inner = {0}, third = {0};
    tether_lock *first = tether_acquire(t, keys[0], &again, on_lock, &outer);
    until(&outer, TETHER_GRANTED);
    tether_lock *second = tether_acquire(t, keys[0], &again, on_lock, &inner);
    tether_lock *last = tether_acquire(t, keys[0], &again, on_lock, &third);
    tether_extend(second, 60000);
    tether_check_server(second);
    tether_release(second); /* the others hold it still */
    assert(inner.times[TETHER_NOT_EXTENDED] == 1 && inner.times[TETHER_NOT_CHECKED] == 1);
    assert(inner.last.kind == TETHER_RELEASED);
    tether_extend(last, 60000);
    tether_forget(last);
    tether_check_server(first);
    until(&outer, TETHER_CHECKED);
    assert(answers(&outer) == 1 && answers(&inner) == 2 && answers(&third) == 0);
}

static void in_child(void) { tether_forked(t); }

static void ends_well(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    assert(status == 0);
}

/* The parent's lock stays, and ends with the parent although the child lives (conform: fork). */
static void child_has_nothing(void) {
    struct heard heard = {0}, refused = {0}, watched[2] = {{{0}, "", "", "", 0, {0}}, {{0}, "", "", "", 0, {0}}};
    pthread_atfork(NULL, NULL, in_child);
    tether_lock *held = tether_acquire(t, tether_text("k"), &for_ever, on_lock, &heard);
    tether_watch *watches[] = {tether_watch_key(t, tether_text("w"), on_watch, &watched[0]),
                               tether_presence(t, tether_text("p:"), on_watch, &watched[1])};
    until(&heard, TETHER_GRANTED);
    until(&watched[0], TETHER_MISSING);
    for (int at = 0; at < 2; at++) { /* the child's first call ends a watch of the parent's */
        pid_t child = fork();
        if (child == 0) {
            tether_unwatch(watches[at]);
            bool is_right = watched[at].times[TETHER_ENDED] == 0 && watched[1 - at].times[TETHER_ENDED] == 1;
            tether_free(t);
            _exit(is_right ? 0 : 1);
        }
        ends_well(child);
    }
    pid_t child = fork();
    if (child == 0) {
        bool is_right = strcmp(tether_check(held), "fork") == 0;
        tether_release(held);
        is_right &= heard.times[TETHER_LOST] == 1 && strcmp(heard.code, "fork") == 0;
        tether_acquire(t, tether_text("l"), &for_ever, on_lock, &refused);
        is_right &= strcmp(refused.code, "FORK") == 0;
        tether_free(t);
        _exit(is_right ? 0 : 1);
    }
    ends_well(child);
    assert(tether_check(held) == NULL && ask("LOCK.INFO k") > 0);
    tether_check_server(held);
    until(&heard, TETHER_CHECKED);
}

static void no_server_is_unreachable(void) {
    struct heard heard = {0};
    int right = port;
    port = 1;
    tether_acquire(t, tether_text("k"), NULL, on_lock, &heard);
    until(&heard, TETHER_REFUSED);
    assert(strcmp(heard.last.error, "unreachable") == 0);
    port = right;
}

/* A process that stood still hears that its hold is lost, whatever it calls first (P-FENCE-8, P-LEASE-2). */
static void what_is_over_is_not_released(void) {
    const tether_bytes owner = tether_text("me");
    const tether_terms again = {.reentrant = true, .owner = &owner}, leased = {.lease = 50};
    struct heard heard[5] = {{{0}, "", "", "", 0, {0}}}, next = {{0}, "", "", "", 0, {0}};
    const char *names[] = {"a", "b", "c", "d", "e"}, *reasons[] = {"silence", "silence", "silence", "silence", "lease"};
    for (int at = 0; at < 5; at++) {
        tether_free(t);
        t = tether_new(&(tether_options){.connect = connect_to, .name = "a test", .fence = at < 4 ? 200 : 0});
        tether_lock *held = tether_acquire(t, tether_text(names[at]),
                                           at == 3   ? &again
                                           : at == 4 ? &leased
                                                     : NULL,
                                           on_lock, &heard[at]);
        until(&heard[at], TETHER_GRANTED);
        usleep(250000);
        if (at == 0 || at == 4)
            tether_release(held);
        if (at == 1)
            tether_extend(held, 1000);
        if (at == 2)
            tether_check_server(held);
        if (at == 3)
            tether_acquire(t, tether_text(names[at]), &again, on_lock, &next);
        assert(heard[at].times[TETHER_LOST] == 1 && heard[at].times[TETHER_RELEASED] == 0);
        assert(heard[at].times[TETHER_NOT_EXTENDED] == (at == 1) && heard[at].times[TETHER_NOT_CHECKED] == (at == 2));
        assert(at == 1 || at == 2 || strcmp(heard[at].code, reasons[at]) == 0);
        assert(next.times[TETHER_GRANTED] == 0);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"names_are_bytes", names_are_bytes},
             {"callbacks_may_call_anything", callbacks_may_call_anything},
             {"ends_in_callbacks_of_pushes", ends_in_callbacks_of_pushes},
             {"stale_is_released", stale_is_released},
             {"check_says_one_thing", check_says_one_thing},
             {"cancels_leave_nobody", cancels_leave_nobody},
             {"each_errand_is_answered", each_errand_is_answered},
             {"child_has_nothing", child_has_nothing},
             {"what_is_over_is_not_released", what_is_over_is_not_released},
             {"no_server_is_unreachable", no_server_is_unreachable}};

int main(int argc, char **argv) {
    port = atoi(argv[1]);
    other = redisConnect("127.0.0.1", port);
    for (size_t at = 0; at < sizeof tests / sizeof *tests; at++) {
        if (argc > 2 && strcmp(argv[2], tests[at].name) != 0)
            continue;
        base = event_base_new();
        t = new_client();
        struct event *timer = event_new(base, -1, EV_PERSIST, on_timer, NULL);
        event_add(timer, &(struct timeval){.tv_usec = 5000});
        tests[at].run();
        tether_free(t);
        event_free(timer);
        event_base_free(base);
        printf("%s: ok\n", tests[at].name);
        fflush(stdout);
    }
    redisFree(other);
    return 0;
}
