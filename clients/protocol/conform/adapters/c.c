/* The adapter of the C client, on libevent. */
#define _GNU_SOURCE /* strdup, usleep */
#include "tether.h"
#include <event2/event.h>
#include <hiredis/adapters/libevent.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct handle {
    char *id;
    tether_lock *lock;
    tether_watch *watch;
    bool is_lost;
};

static struct event_base *base;
static tether *locks;
static redisAsyncContext *data;
static bool is_child;
static struct handle *handles[1 << 16];
static size_t handle_count;
static char host[256], *path, *user, *password;
static int port, database;

/* Takes `said`. */
static void say(json_t *said) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    json_object_set_new(said, "at", json_real((double)now.tv_sec + (double)now.tv_nsec / 1e9));
    if (is_child)
        json_object_set_new(said, "child", json_true());
    char *text = json_dumps(said, JSON_COMPACT);
    printf("%s\n", text);
    fflush(stdout);
    free(text);
    json_decref(said);
}

static json_t *json_of(tether_bytes bytes) { return bytes.ptr ? json_stringn(bytes.ptr, bytes.len) : json_null(); }

static void say_lost(struct handle *handle, const char *reason) {
    if (!handle->is_lost)
        say(json_pack("{s:s, s:s}", "lost", handle->id, "reason", reason));
    handle->is_lost = true;
}

static void say_error(const char *what, struct handle *handle, const char *error, const char *code, const char *text) {
    say(json_pack("{s:s, s:s, s:s, s:s}", what, handle->id, "error", error, "code", code, "text", text));
}

static void on_lock(tether_lock *lock, const tether_event *event, void *with) {
    static const char *const names[] = {"granted", "refused",  "lost",         "releasing", "released",
                                        "over",    "extended", "not_extended", "checked",   "not_checked"};
    struct handle *handle = with;
    const char *name = names[event->kind];
    (void)lock;
    if (event->kind == TETHER_LOST)
        say_lost(handle, event->code);
    else if (event->error)
        say_error(name, handle, event->error, event->code, event->text);
    else if (event->kind == TETHER_GRANTED)
        say(json_pack("{s:s, s:I}", name, handle->id, "token", (json_int_t)event->token));
    else if (event->kind == TETHER_RELEASING)
        say(json_pack("{s:s, s:s}", name, handle->id, "code", event->code));
    else
        say(json_pack("{s:s}", name, handle->id));
}

static void on_watch(tether_watch *watch, const tether_event *event, void *with) {
    static const char *const states[] = {"exists", "missing", "added", "deleted", "add", "set", "del"};
    struct handle *handle = with;
    (void)watch;
    if (event->kind == TETHER_ENDED) {
        say_error("ended", handle, event->error, event->code, event->text);
        return;
    }
    json_t *said = json_pack("{s:s, s:s, s:o}", event->kind <= TETHER_DELETED ? "watch" : "presence", handle->id, "is",
                             states[event->kind - TETHER_EXISTS], "key", json_of(event->key));
    if (event->kind == TETHER_LEFT)
        json_object_set_new(said, "reason", json_string(event->code));
    if (event->kind == TETHER_JOINED || event->kind == TETHER_CHANGED) {
        json_object_set_new(said, "token", json_integer(event->token));
        json_object_set_new(said, "value", json_of(event->value));
    }
    say(said);
}

/* ---- connections ---- */

static tether_context *connect_to(void *with, const char *other_host, int other_port) {
    redisAsyncContext *ac = other_host ? redisAsyncConnect(other_host, other_port)
                            : path     ? redisAsyncConnectUnix(path)
                                       : redisAsyncConnect(host, port);
    (void)with;
    if (ac && ac->err == 0)
        redisLibeventAttach(ac, base);
    return ac;
}

static void on_data_end(const redisAsyncContext *ac, int status) {
    (void)ac;
    (void)status;
    data = NULL;
}

static void on_guarded(redisAsyncContext *ac, void *reply, void *with) {
    struct handle *handle = with;
    redisReply *said = reply;
    (void)ac;
    if (said == NULL) {
        say_error("not_run", handle, "unreachable", "UNREACHABLE", "no answer");
    } else if (tether_is_stale(reply)) {
        const char *why = tether_check(handle->lock);
        say_lost(handle, why ? why : "stale");
    } else if (said->type == REDIS_REPLY_ERROR) {
        say_error("not_run", handle, "refused", strtok(said->str, " "), "");
    } else {
        say(json_pack("{s:s, s:o}", "ran", handle->id, "reply",
                      said->type == REDIS_REPLY_INTEGER ? json_integer(said->integer) : json_string(said->str)));
    }
}

static void guard(struct handle *handle, json_t *command) {
    const char *words[16];
    size_t at;
    json_t *each;
    json_array_foreach(command, at, each) words[at] = json_string_value(each);
    if (data == NULL) {
        data = connect_to(NULL, NULL, 0);
        redisAsyncSetDisconnectCallback(data, on_data_end);
    }
    if (!tether_guard(handle->lock, data, on_guarded, handle, (int)json_array_size(command), words, NULL))
        say_lost(handle, tether_check(handle->lock));
}

/* ---- calls ---- */

static double number(json_t *call, const char *name, double otherwise) {
    json_t *value = json_object_get(call, name);
    return value ? json_number_value(value) : otherwise;
}

static void open_at(json_t *call) {
    char *url = strdup(json_string_value(json_object_get(call, "url"))), *at = strchr(url, '@');
    char *rest = strstr(url, "//") + 2;
    if (strncmp(url, "unix:", 5) == 0) {
        path = strdup(rest);
    } else {
        if (at) {
            *at = 0;
            password = strchr(rest, ':');
            *password++ = 0;
            user = *rest ? rest : NULL;
            rest = at + 1;
        }
        sscanf(rest, "%255[^:]:%d/%d", host, &port, &database);
    }
    locks = tether_new(&(tether_options){.connect = connect_to,
                                         .username = user,
                                         .password = password,
                                         .database = database,
                                         .stop_within = number(call, "stop_within", 0),
                                         .fence = number(call, "fence", 0)});
    free(url);
}

static struct handle *new_handle(const char *id) {
    struct handle *handle = calloc(1, sizeof *handle);
    handle->id = strdup(id);
    return handles[handle_count++] = handle;
}

static void acquire(json_t *call, struct handle *handle) {
    tether_bytes keys[8], task;
    json_t *each, *permits = json_object_get(call, "permits");
    const char *value = json_string_value(json_object_get(call, "temporary"));
    const char *from = json_string_value(json_object_get(call, "from"));
    size_t at;
    json_array_foreach(json_object_get(call, "keys"), at, each) keys[at] = tether_text(json_string_value(each));
    task = tether_text(from ? from : "");
    tether_terms terms = {.wait = number(call, "wait", TETHER_FOREVER),
                          .lease = number(call, "lease", 0),
                          .shared = json_is_true(json_object_get(call, "shared")),
                          .permits = (int)json_integer_value(json_array_get(permits, 0)),
                          .of = (int)json_integer_value(json_array_get(permits, 1)),
                          .task = from ? &task : NULL};
    handle->lock = value ? tether_settp(locks, keys[0], tether_text(value), &terms, on_lock, handle)
                         : tether_acquire_all(locks, keys, at, &terms, on_lock, handle);
}

static void watch(json_t *call, struct handle *handle) {
    const char *key = json_string_value(json_array_get(json_object_get(call, "keys"), 0));
    handle->watch = tether_watch_key(locks, tether_text(key), on_watch, handle);
}

static void watch_prefix(json_t *call, struct handle *handle) {
    const char *prefix = json_string_value(json_object_get(call, "prefix"));
    handle->watch = tether_presence(locks, tether_text(prefix), on_watch, handle);
}

static json_t *check(json_t *call, struct handle *handle) {
    usleep((useconds_t)(1000 * number(call, "stall", 0))); /* The loop stands still, and no timer runs. */
    const char *why = tether_check(handle->lock);
    if (why == NULL || strcmp(why, "waiting") == 0 || strcmp(why, "released") == 0)
        return json_pack("{s:s}", "gives", why ? why : "held");
    return json_pack("{s:{s:s}}", "gives", "lost", why);
}

/* The sockets that an executed child has. */
static json_t *execute(void) {
    char line[256];
    json_t *sockets = json_array();
    FILE *listing = popen("readlink /proc/self/fd/*", "r");
    while (fgets(line, sizeof line, listing))
        if (strncmp(line, "socket", 6) == 0)
            json_array_append_new(sockets, json_string(strtok(line, "\n")));
    pclose(listing);
    return json_pack("{s:o}", "sockets", sockets);
}

static void handle_line(const char *line);

static void fork_child(const char *input) {
    if (fork())
        return;
    char line[4096];
    is_child = true;
    tether_forked(locks);
    FILE *lines = fopen(input, "r");
    while (fgets(line, sizeof line, lines))
        handle_line(line);
    _exit(0);
}

/* NULL: this adapter does not know it. */
static json_t *answer(json_t *call) {
    const char *name = json_string_value(json_object_get(call, "call"));
    const char *id = json_string_value(json_object_get(call, "id"));
    struct handle *handle = NULL;
    for (size_t at = handle_count; id && at-- > 0 && handle == NULL;)
        handle = strcmp(handles[at]->id, id) == 0 ? handles[at] : NULL;
    if (strcmp(name, "open") == 0)
        open_at(call);
    else if (strcmp(name, "execute") == 0)
        return execute();
    else if (strcmp(name, "fork") == 0)
        fork_child(json_string_value(json_object_get(call, "input")));
    else if (strcmp(name, "close") == 0)
        tether_close(locks);
    else if (strcmp(name, "acquire") == 0 && is_child)
        return json_pack("{s:s}", "error", "fork");
    else if (strcmp(name, "acquire") == 0)
        acquire(call, new_handle(id));
    else if (strcmp(name, "watch") == 0)
        watch(call, new_handle(id));
    else if (strcmp(name, "presence") == 0)
        watch_prefix(call, new_handle(id));
    else if (handle == NULL)
        return NULL;
    else if (strcmp(name, "release") == 0 || strcmp(name, "give_up") == 0)
        tether_release(handle->lock);
    else if (strcmp(name, "check") == 0)
        return check(call, handle);
    else if (strcmp(name, "extend") == 0)
        tether_extend(handle->lock, number(call, "lease", 0));
    else if (strcmp(name, "guard") == 0)
        guard(handle, json_object_get(call, "command"));
    else if (strcmp(name, "check_server") == 0)
        tether_check_server(handle->lock);
    else if (strcmp(name, "unwatch") == 0 || strcmp(name, "end") == 0)
        tether_unwatch(handle->watch);
    else
        return NULL;
    return json_object();
}

static void handle_line(const char *line) {
    json_t *call = json_loads(line, 0, NULL);
    json_t *said = answer(call);
    if (said == NULL)
        said = json_pack("{s:b}", "unknown", 1);
    json_object_set(said, "done", json_object_get(call, "n"));
    say(said);
    json_decref(call);
}

static void on_input(evutil_socket_t fd, short what, void *with) {
    static char text[1 << 20];
    static size_t size;
    ssize_t got = read(fd, text + size, sizeof text - size - 1);
    (void)what;
    (void)with;
    if (got <= 0)
        exit(0);
    size += (size_t)got;
    text[size] = 0;
    char *at = text, *end;
    while ((end = memchr(at, '\n', (size_t)(text + size - at)))) {
        *end = 0;
        handle_line(at);
        at = end + 1;
    }
    size = (size_t)(text + size - at);
    memmove(text, at, size);
}

static void on_timer(evutil_socket_t fd, short what, void *with) {
    (void)fd;
    (void)what;
    (void)with;
    if (locks)
        tether_tick(locks);
}

int main(void) {
    base = event_base_new();
    event_add(event_new(base, 0, EV_READ | EV_PERSIST, on_input, NULL), NULL);
    event_add(event_new(base, -1, EV_PERSIST, on_timer, NULL), &(struct timeval){.tv_usec = 20000});
    say(json_pack("{s:s, s:[s], s:[s, s, s], s:[s, s], s:[s, s, s, s, s, s, s, s, s]}", "hello", "tether.c 0.2.0",
                  "levels", "L1", "also", "temporary-key", "watch-has-no-gap", "presence-has-no-gap", "without", "tls",
                  "sentinels", "calls", "extend", "guard", "check_server", "fork", "execute", "watch", "unwatch",
                  "presence", "end"));
    event_base_dispatch(base);
    return 0;
}
