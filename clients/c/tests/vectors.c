/* The vectors of the client protocol, run by the core: vectors FILE... (of clients/protocol/vectors). */
#include "../tether.c"
#include <jansson.h>

static json_t *sent, *events, *orders;

static json_t *json_bytes(tether_bytes bytes) {
    json_t *text = bytes.ptr ? json_stringn(bytes.ptr, bytes.len) : json_null();
    if (text)
        return text;
    char hex[512] = "";
    for (size_t at = 0; at < bytes.len; at++)
        sprintf(hex + 2 * at, "%02x", (unsigned char)bytes.ptr[at]);
    return json_pack("{s:s}", "hex", hex);
}

/* Bytes of a vector, of which the caller frees what is copied. */
static tether_bytes bytes_of(const json_t *json) {
    const char *hex = json_string_value(json_object_get(json, "hex"));
    if (hex == NULL)
        return copied((tether_bytes){json_string_value(json), json_string_length(json)});
    tether_bytes bytes = copied((tether_bytes){hex, strlen(hex) / 2});
    for (size_t at = 0; at < bytes.len; at++)
        sscanf(hex + 2 * at, "%2hhx", (unsigned char *)bytes.ptr + at);
    return bytes;
}

static void write_frame(FILE *to, json_t *frame) {
    const char *name;
    json_t *value, *each;
    size_t at;
    if (json_is_object(frame) && json_object_get(frame, "hex") == NULL) {
        name = json_object_iter_key(json_object_iter(frame));
        value = json_object_iter_value(json_object_iter(frame));
        if (strcmp(name, "map") == 0) {
            fprintf(to, "%%%zu\r\n", json_object_size(value));
            json_object_foreach(value, name, each) {
                fprintf(to, "$%zu\r\n%s\r\n", strlen(name), name);
                write_frame(to, each);
            }
        } else if (strcmp(name, "push") == 0) {
            fprintf(to, ">%zu\r\n", json_array_size(value));
            json_array_foreach(value, at, each) write_frame(to, each);
        } else {
            fprintf(to, "%c%s\r\n", name[0] == 'e' ? '-' : '+', json_string_value(value));
        }
    } else if (json_is_array(frame)) {
        fprintf(to, "*%zu\r\n", json_array_size(frame));
        json_array_foreach(frame, at, each) write_frame(to, each);
    } else if (json_is_integer(frame)) {
        fprintf(to, ":%lld\r\n", (long long)json_integer_value(frame));
    } else if (json_is_null(frame)) {
        fputs("_\r\n", to);
    } else {
        tether_bytes bytes = bytes_of(frame);
        fprintf(to, "$%zu\r\n", bytes.len);
        fwrite(bytes.ptr, 1, bytes.len, to);
        fputs("\r\n", to);
        discard(bytes);
    }
}

static void receive_frame(tether *t, json_t *frame) {
    char *bytes;
    size_t size;
    void *reply = NULL;
    FILE *to = open_memstream(&bytes, &size);
    write_frame(to, frame);
    fclose(to);
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, bytes, size);
    redisReaderGetReply(reader, &reply);
    receive(t, reply);
    freeReplyObject(reply);
    redisReaderFree(reader);
    free(bytes);
}

/* ---- what the core says ---- */

static void note_sent(tether *t, int argc, const char **argv, const size_t *argvlen) {
    json_t *words = json_array();
    (void)t;
    for (int at = 0; at < argc; at++)
        json_array_append_new(words, json_bytes((tether_bytes){argv[at], argvlen[at]}));
    json_array_append_new(sent, words);
}

static void note_order(tether *t, enum order order, double after) {
    (void)t;
    json_array_append_new(orders, order == CONNECT ? json_string("connect")
                                  : after > 0      ? json_pack("{s:I}", "leave_after", (json_int_t)after)
                                                   : json_string("leave"));
}

static void note(const tether_event *event, const char *id) {
    static const char *const names[] = {"granted", "refused",  "lost",         "releasing", "released",
                                        "over",    "extended", "not_extended", "checked",   "not_checked"};
    static const char *const states[] = {"exists", "missing", "added", "deleted", "add", "set", "del"};
    tether_kind kind = event->kind;
    json_t *said = json_object();
    json_array_append_new(events, said);
    if (kind == TETHER_ENDED) {
        json_object_set_new(said, "ended", json_string(id));
    } else if (kind >= TETHER_EXISTS) {
        bool is_key = kind <= TETHER_DELETED;
        json_object_set_new(said, is_key ? "watch" : "presence", json_string(id));
        json_object_set_new(said, "is", json_string(states[kind - TETHER_EXISTS]));
        json_object_set_new(said, "key", json_bytes(event->key));
        if (kind == TETHER_LEFT)
            json_object_set_new(said, "reason", json_string(event->code));
        else if (!is_key)
            json_object_set_new(said, "value", json_bytes(event->value));
    } else {
        json_object_set_new(said, names[kind], json_string(id));
        if (kind == TETHER_GRANTED && event->key.ptr)
            json_object_set_new(said, "key", json_bytes(event->key));
    }
    if (kind == TETHER_GRANTED || kind == TETHER_JOINED || kind == TETHER_CHANGED)
        json_object_set_new(said, "token", json_integer(event->token));
    if (kind == TETHER_LOST)
        json_object_set_new(said, "reason", json_string(event->code));
    if (event->error)
        json_object_set_new(said, "error", json_string(event->error));
    if (event->error || kind == TETHER_RELEASING)
        json_object_set_new(said, "code", json_string(event->code));
}

static void note_lock(tether_lock *lock, const tether_event *event, void *id) {
    (void)lock;
    note(event, id);
}

static void warned(void *user, const char *what) {
    (void)user;
    json_array_append_new(events, json_pack("{s:s}", "warning", what));
}

/* ---- a vector ---- */

struct {
    const char *id;
    tether_lock *lock;
    tether_watch *watch;
} handles[64];
static size_t handle_count;

/* A watch of several keys is several here: the end of one ends the others. */
static void end_handles(const char *id) {
    for (size_t at = 0; at < handle_count; at++)
        if (handles[at].watch && strcmp(handles[at].id, id) == 0) {
            tether_unwatch(handles[at].watch);
            handles[at].watch = NULL;
        }
}

static void note_watch(tether_watch *watch, const tether_event *event, void *id) {
    (void)watch;
    note(event, id);
    if (event->kind == TETHER_ENDED)
        end_handles(id);
}

static void add_handle(const char *id, tether_lock *lock, tether_watch *watch) {
    handles[handle_count].id = id;
    handles[handle_count].lock = lock;
    handles[handle_count++].watch = watch;
}

static double number(const json_t *step, const char *name, double otherwise) {
    const json_t *value = json_object_get(step, name);
    return value ? json_number_value(value) : otherwise;
}

static void acquire_by(tether *t, json_t *step, const char *id) {
    tether_bytes keys[8], owner = bytes_of(json_object_get(step, "owner")),
                          task = bytes_of(json_object_get(step, "task")),
                          value = bytes_of(json_object_get(step, "temporary"));
    json_t *each, *permits = json_object_get(step, "permits");
    size_t at, count = json_array_size(json_object_get(step, "keys"));
    json_array_foreach(json_object_get(step, "keys"), at, each) keys[at] = bytes_of(each);
    tether_terms terms = {.wait = number(step, "wait", TETHER_FOREVER),
                          .lease = number(step, "lease", 0),
                          .shared = json_is_true(json_object_get(step, "shared")),
                          .seq = json_is_true(json_object_get(step, "seq")),
                          .reentrant = json_is_true(json_object_get(step, "reentrant")),
                          .permits = (int)json_integer_value(json_array_get(permits, 0)),
                          .of = (int)json_integer_value(json_array_get(permits, 1)),
                          .owner = owner.ptr ? &owner : NULL,
                          .task = task.ptr ? &task : NULL};
    add_handle(id,
               value.ptr ? tether_settp(t, keys[0], value, &terms, note_lock, (void *)(uintptr_t)id)
                         : tether_acquire_all(t, keys, count, &terms, note_lock, (void *)(uintptr_t)id),
               NULL);
    for (at = 0; at < count; at++)
        discard(keys[at]);
    discard(owner);
    discard(task);
    discard(value);
}

/* What `check` gives. */
static json_t *call(tether *t, json_t *step) {
    const char *name = json_string_value(json_object_get(step, "call"));
    const char *id = json_string_value(json_object_get(step, "id"));
    tether_lock *lock = NULL;
    json_t *each;
    size_t at;
    for (at = 0; id && at < handle_count; at++)
        if (strcmp(handles[at].id, id) == 0)
            lock = handles[at].lock;
    if (strcmp(name, "open") == 0) {
        need_link(t);
    } else if (strcmp(name, "acquire") == 0) {
        acquire_by(t, step, id);
    } else if (strcmp(name, "release") == 0 || strcmp(name, "give_up") == 0) {
        tether_release(lock);
    } else if (strcmp(name, "extend") == 0) {
        tether_extend(lock, number(step, "lease", 0));
    } else if (strcmp(name, "check") == 0) {
        const char *why = tether_check(lock);
        if (why == NULL || strcmp(why, "waiting") == 0)
            return json_string(why ? why : "held");
        bool is_lost = strcmp(why, "released") != 0 && strcmp(why, "refused") != 0;
        return is_lost ? json_pack("{s:s}", "lost", why) : json_string("released");
    } else if (strcmp(name, "watch") == 0) {
        json_array_foreach(json_object_get(step, "keys"), at, each) {
            tether_bytes key = bytes_of(each);
            add_handle(id, NULL, tether_watch_key(t, key, note_watch, (void *)(uintptr_t)id));
            discard(key);
        }
    } else if (strcmp(name, "presence") == 0) {
        tether_bytes prefix = bytes_of(json_object_get(step, "prefix"));
        add_handle(id, NULL, tether_presence(t, prefix, note_watch, (void *)(uintptr_t)id));
        discard(prefix);
    } else if (strcmp(name, "close") == 0) {
        tether_close(t);
    } else {
        end_handles(id);
    }
    return NULL;
}

static struct stamp stamp_of(const tether *t, const json_t *to) {
    double ms = json_number_value(to);
    if (json_is_object(to))
        return (struct stamp){number(to, "mono", 0), number(to, "boot", 0)};
    return (struct stamp){ms, ms + t->now.boot - t->now.mono};
}

static void go_to(tether *t, const json_t *to) {
    struct stamp until = stamp_of(t, to);
    double ahead = t->now.boot - t->now.mono;
    while (!json_is_object(to) && t->now.mono + time_left(t) <= until.mono) {
        t->now.mono += time_left(t);
        t->now.boot = t->now.mono + ahead;
        tick(t);
    }
    t->now = until;
    tick(t);
}

static void still(tether *t, struct stamp *now) {
    (void)t;
    (void)now;
}

static void nothing(tether *t) { (void)t; }

static bool differs(const char *what, json_t *said, json_t *expected) {
    json_t *none = json_array();
    bool is_other = !json_equal(said, expected ? expected : none);
    if (is_other) {
        char *text = json_dumps(said, JSON_ENCODE_ANY),
             *other = json_dumps(expected ? expected : none, JSON_ENCODE_ANY);
        printf("      %s: %s, not %s\n", what, text, other);
        free(text);
        free(other);
    }
    json_decref(none);
    return is_other;
}

static bool step_fails(tether *t, json_t *step) {
    json_t *given = NULL;
    sent = json_array();
    events = json_array();
    orders = json_array();
    enter(t);
    if (json_object_get(step, "call"))
        given = call(t, step);
    else if (json_object_get(step, "recv"))
        receive_frame(t, json_object_get(step, "recv"));
    else if (json_object_get(step, "at"))
        go_to(t, json_object_get(step, "at"));
    else if (json_object_get(step, "stop"))
        t->now = stamp_of(t, json_object_get(step, "stop"));
    else if (json_object_get(step, "connected"))
        connected(t);
    else if (json_object_get(step, "unreached"))
        unreached(t);
    else
        broke(t);
    leave(t);
    bool is_wrong = differs("sent", sent, json_object_get(step, "sent"));
    is_wrong |= differs("events", events, json_object_get(step, "events"));
    is_wrong |= differs("orders", orders, json_object_get(step, "orders"));
    if (given && json_object_get(step, "gives"))
        is_wrong |= differs("gives", given, json_object_get(step, "gives"));
    json_decref(given);
    json_decref(sent);
    json_decref(events);
    json_decref(orders);
    return is_wrong;
}

static bool runs(json_t *preludes, json_t *vector) {
    json_t *client = json_object_get(vector, "client"), *step;
    json_t *prelude = json_object_get(preludes, json_string_value(json_object_get(vector, "begin")));
    json_t *steps = json_copy(json_object_get(prelude, "steps"));
    size_t at;
    bool is_wrong = false;
    json_array_extend(steps, json_object_get(vector, "steps"));
    tether *t = new_core();
    t->clocks = still;
    t->send = note_sent;
    t->order = note_order;
    t->carry_out = nothing;
    t->random = number(client, "random", 0);
    t->is_unix = json_is_true(json_object_get(client, "unix"));
    t->has_boot_clock = !json_is_false(json_object_get(client, "boot_clock"));
    t->options = (tether_options){
        .stop_within = number(client, "stop_within", 0), .fence = number(client, "fence", 0), .warn = warned};
    json_array_foreach(steps, at, step) {
        if (!is_wrong && step_fails(t, step)) {
            char *text = json_dumps(step, 0);
            printf("    %s: step %zu: %s\n", json_string_value(json_object_get(vector, "name")), at, text);
            free(text);
            is_wrong = true;
        }
    }
    handle_count = 0;
    tether_free(t);
    json_decref(steps);
    return !is_wrong;
}

/* NULL, or why this client does not run the vector. */
static const char *is_beyond(json_t *vector) {
    const char *level = json_string_value(json_object_get(vector, "level"));
    json_t *client = json_object_get(vector, "client"), *step;
    size_t at;
    if (strcmp(level, "L1") != 0 && strcmp(level, "L3") != 0)
        return level;
    if (strcmp(json_string_value(json_object_get(vector, "begin")), "session") == 0)
        return "a session";
    if (json_is_string(json_object_get(client, "boot_clock")))
        return "/proc/uptime: this client reads CLOCK_BOOTTIME";
    json_array_foreach(json_object_get(vector, "steps"), at, step) {
        const char *name = json_string_value(json_object_get(step, "call"));
        if (json_object_get(step, "elect") || (name && strcmp(name, "observe") == 0))
            return "elections";
        if (json_object_get(step, "acks") || json_object_get(step, "at_least"))
            return "a call that needs a session is not in this client's API";
    }
    return NULL;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0, skipped = 0;
    json_t *preludes = json_load_file(argv[1], 0, NULL), *vector;
    size_t each;
    for (int at = 2; at < argc; at++) {
        json_t *file = json_load_file(argv[at], 0, NULL);
        json_array_foreach(file, each, vector) {
            if (is_beyond(vector))
                skipped++;
            else if (runs(preludes, vector))
                passed++;
            else
                failed++;
        }
        json_decref(file);
    }
    json_decref(preludes);
    printf("test result: %s. %d passed; %d failed; %d of other levels\n", failed ? "FAILED" : "ok", passed, failed,
           skipped);
    return failed > 0 || passed == 0;
}
