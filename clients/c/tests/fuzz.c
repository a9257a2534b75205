/* Whatever a server may say to whatever a user may call: fuzz [SEED [STEPS]]. No server: the core alone, with
 * sanitizers. A handle must hear GRANTED at most once, one answer to each call, and else nothing after its last event.
 */
#include "../tether.c"
#include <stdarg.h>

#define HANDLES 24

struct user {
    tether_lock *lock;
    tether_watch *watch;
    bool is_granted, is_over;
    int asked; /* calls without an answer */
};

static struct user *users[HANDLES];
static unsigned seed;
static char frame[1 << 14];
static size_t size;
static tether *t;

static int dice(int sides) { return rand_r(&seed) % sides; }

static const char *pick(const char *const *words, int count) { return words[dice(count)]; }
#define PICK(...) pick((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static const char *key(void) { return PICK("k", "l", "m", "", "p:a", "p:b", "p:", "a key"); }
static const char *label(void) { return PICK(".1", ".2", ".3", ".4", ".17", "x", "a b", ""); }

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size += (size_t)vsnprintf(frame + size, sizeof frame - size, format, arguments);
    va_end(arguments);
}

static void put_text(const char *text) { put("$%zu\r\n%s\r\n", strlen(text), text); }

static const char *error(void) {
    return PICK("BUSY no", "LOADING no", "NOREPLICAS no", "OOM", "READONLY no", "NOTHELD no", "NOTHELD no", "NOPERM no",
                "MOVED 12 host:1", "DEADLOCK no", "QUARANTINE no", "STALE no", "ERR unknown command 'x'", "", " ");
}

static void put_bytes(tether_bytes bytes) {
    put("$%zu\r\n%.*s\r\n", bytes.len, (int)bytes.len, bytes.ptr ? bytes.ptr : "");
}

/* One that the server could speak of. */
static struct request *any_request(void) {
    int number = dice(HANDLES);
    EACH(at, &t->requests) {
        if (number-- == 0)
            return AT(struct request, link, at);
    }
    return is_empty(&t->requests) ? NULL : AT(struct request, link, t->requests.next);
}

static void put_entry(void) {
    struct request *request = dice(2) ? any_request() : NULL;
    put("%%%d\r\n", 5);
    put_text("key");
    request &&dice(5) ? put_bytes(request->places[0].key) : dice(5) ? put_text(key()) : put("_\r\n");
    put_text("label");
    request ? put_bytes(request->label) : dice(5) ? put_text(label()) : put("_\r\n");
    put_text("kind");
    put_text(PICK("lock", "temporary", "later"));
    put_text("state");
    put_text(PICK("held", "held", "pending", "waiting"));
    put_text("token");
    dice(9) ? put(":%lld\r\n", request ? request->token : dice(40)) : put("_\r\n");
}

/* What a push says of a request or of a key. */
static void put_said(const struct request *request) {
    char text[256];
    const char *word = PICK("LOST deleted", "LOST lease", "LOST demoted", "LOST", "TIMEOUT", "FAILED UNBLOCKED",
                            "FAILED OOM", "FAILED MOVED 12 host:1", "FAILED ASK", "FAILED NOACKS 1 of 2", "FAILED", "7",
                            "8", "ADD", "DEL", "ADD 3 v", "ADD 4", "SET 5 ", "DEL 3 died", "FLUSHED", "END moved", "",
                            " ", "LATER", "99999999999999999999");
    if (request && dice(9))
        snprintf(text, sizeof text, "%s%s%.*s", word, request->label.len ? " " : "", (int)request->label.len,
                 request->label.ptr ? request->label.ptr : "");
    else
        snprintf(text, sizeof text, "%s%s%s", word, dice(3) ? " " : "", dice(4) ? label() : "");
    put_text(text);
}

/* The kind of frame that answers the oldest command. */
static int fitting(void) {
    if (is_empty(&t->commands))
        return 11;
    struct command *command = AT(struct command, link, t->commands.next);
    return command->then == page_of_mine                     ? 5
           : command->then == prefix_answered                ? 6
           : command->then == greeted                        ? 7
           : command->then == watch_answered                 ? 3
           : command->request && command->request->terms.seq ? 9
                                                             : 1;
}

static void put_frame(int depth) {
    int kind = depth == 0 && dice(10) < 6 ? fitting() : dice(depth > 3 ? 5 : 13);
    int count = dice(4);
    if (kind == 0) {
        put("_\r\n");
    } else if (kind == 1) {
        put(":%d\r\n", dice(40) - 2);
    } else if (kind == 2) {
        put("+%s\r\n", PICK("PONG", "OK", ""));
    } else if (kind == 3) {
        put_text(PICK("EXIST", "NOEXIST", "s", "0", ""));
    } else if (kind == 4) {
        put("-%s\r\n", error());
    } else if (kind == 5) { /* of LOCK.MINE */
        put("*2\r\n");
        put_text(PICK("0", "0", "9"));
        put("*%d\r\n", count);
        while (count-- > 0)
            put_entry();
    } else if (kind == 6) { /* of WATCHTP */
        put("*2\r\n");
        put_text(PICK("", "", "p:a"));
        put("*%d\r\n", count);
        while (count-- > 0) {
            put("*3\r\n");
            put_text(key());
            put(":%d\r\n", dice(9));
            dice(3) ? put_text("v") : put("_\r\n");
        }
    } else if (kind == 7) { /* of LOCK.SERVER */
        put("%%3\r\n");
        put_text("role");
        put_text(dice(9) ? "master" : "replica");
        put_text("pushes");
        put(":%d\r\n", dice(9) ? 1 : 0);
        put_text("peer-timeout-ms");
        put(":%d\r\n", dice(9) ? 8000 : dice(3000));
    } else if (kind == 8) {
        put("*%d\r\n", count);
        while (count-- > 0)
            put_frame(depth + 1);
    } else if (kind == 9) { /* of SETTP SEQ */
        put("*2\r\n");
        put_text(key());
        put(":%d\r\n", dice(40));
    } else if (depth == 0) {
        put(">%d\r\n", dice(9) ? 3 : 2);
        struct request *request = dice(3) ? any_request() : NULL;
        const char *whose = request ? (request->is_temporary ? "settp" : "lock")
                                    : PICK("lock", "settp", "watchex", "watchex", "watchtp", "watchtp", "later");
        put_text(whose);
        request &&dice(9) ? put_bytes(request->places[0].key) : put_text(key());
        strcmp(whose, "watchex") == 0 && dice(9) ? put_text(PICK("ADD", "DEL")) : put_said(request);
    } else {
        put("_\r\n");
    }
}

static void receive_any(void) {
    void *reply = NULL;
    size = 0;
    put_frame(0);
    redisReader *reader = redisReaderCreate();
    redisReaderFeed(reader, frame, size);
    if (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
        receive(t, reply);
        freeReplyObject(reply);
    }
    redisReaderFree(reader);
}

/* ---- users ---- */

static void drop(struct user *user) {
    for (int at = 0; at < HANDLES; at++)
        if (users[at] == user)
            users[at] = NULL;
    if (user->lock)
        tether_forget(user->lock);
    if (user->watch)
        tether_unwatch(user->watch);
    free(user);
}

static void heard(struct user *user, const tether_event *event) {
    tether_kind kind = event->kind;
    bool is_last = kind == TETHER_REFUSED || kind == TETHER_LOST || kind == TETHER_RELEASED || kind == TETHER_OVER ||
                   kind == TETHER_ENDED;
    bool is_answer =
        kind == TETHER_EXTENDED || kind == TETHER_NOT_EXTENDED || kind == TETHER_CHECKED || kind == TETHER_NOT_CHECKED;
    if ((user->is_over && !is_answer) || (user->is_granted && kind == TETHER_GRANTED) || (is_answer && !user->asked--))
        abort();
    user->is_granted |= kind == TETHER_GRANTED;
    user->is_over |= is_last;
}

static void on_lock(tether_lock *lock, const tether_event *event, void *user) {
    heard(user, event);
    ((struct user *)user)->lock = lock;
    if (((struct user *)user)->is_over && tether_check(lock) == NULL)
        abort();
    if (dice(9) == 0)
        tether_release(lock);
    else if (dice(9) == 0)
        drop(user);
}

static void on_watch(tether_watch *watch, const tether_event *event, void *user) {
    heard(user, event);
    ((struct user *)user)->watch = watch;
    if (dice(9) == 0)
        drop(user);
}

static tether_bytes any(const char *text) { return tether_text(text); }

static void ask_any(int at) {
    struct user *user = users[at] = calloc(1, sizeof *user);
    tether_bytes keys[] = {any(key()), any(key())}, owner = any(PICK("x", "a b", ".no"));
    tether_terms terms = {.wait = dice(3) - 1,
                          .lease = dice(4) ? 0 : dice(3000),
                          .shared = dice(9) == 0,
                          .seq = dice(9) == 0,
                          .reentrant = dice(2),
                          .permits = dice(9) == 0,
                          .of = 2};
    if (terms.wait > 0)
        terms.wait = dice(3000);
    if (dice(3) == 0)
        terms.owner = &owner;
    int kind = dice(6);
    if (kind < 2)
        tether_acquire(t, keys[0], &terms, on_lock, user);
    else if (kind == 2)
        tether_acquire_all(t, keys, (size_t)dice(3), &terms, on_lock, user);
    else if (kind == 3)
        tether_settp(t, keys[0], any("v"), &terms, on_lock, user);
    else if (kind == 4)
        tether_watch_key(t, keys[0], on_watch, user);
    else
        tether_presence(t, any(PICK("p:", "p:a", "")), on_watch, user);
}

/* The handle is known from the lists: the user hears of it with the first event only. */
static tether_lock *any_lock(void) {
    int number = dice(HANDLES);
    EACH(at, &t->locks) {
        if (number-- == 0)
            return AT(tether_lock, link, at);
    }
    return NULL;
}

static void ask_about(tether_lock *lock) {
    ((struct user *)lock->user)->asked++;
    if (dice(2))
        tether_extend(lock, dice(3000));
    else
        tether_check_server(lock);
}

static void call_any(void) {
    int at = dice(HANDLES);
    tether_lock *lock = any_lock();
    if (users[at] == NULL)
        ask_any(at);
    else if (lock && dice(4) == 0)
        tether_release(lock);
    else if (lock && dice(2) == 0)
        ask_about(lock);
    else if (lock)
        tether_check(lock);
    if (users[at] && (users[at]->lock || users[at]->watch) && dice(4) == 0)
        drop(users[at]);
}

/* ---- the world ---- */

static void still(tether *of, struct stamp *now) { (void)of, (void)now; }
static void send_nowhere(tether *of, int argc, const char **argv, const size_t *argvlen) {
    for (int at = 0; at < argc; at++)
        if (argvlen[at] && memchr(argv[at], 1, argvlen[at]))
            abort();
    bool is_watch = strcmp(argv[0], "WATCHEX") == 0 || strcmp(argv[0], "UNWATCHEX") == 0;
    EACH(at, &of->commands) { /* P-WATCH-1; the new command does not know its key yet */
        const struct watched *open = AT(struct command, link, at)->watched;
        if (is_watch && open && same(open->key, (tether_bytes){argv[1], argvlen[1]}))
            abort();
    }
}
static void order_nothing(tether *of, enum order order, double after) { (void)of, (void)order, (void)after; }
static void do_nothing(tether *of) { (void)of; }

static void new_world(void) {
    t = new_core();
    t->clocks = still;
    t->send = send_nowhere;
    t->order = order_nothing;
    t->carry_out = do_nothing;
}

static void end_world(void) {
    bool is_closed = dice(2);
    if (is_closed)
        tether_close(t);
    tether_free(t);
    for (int at = 0; at < HANDLES; at++) {
        if (is_closed && users[at] && users[at]->asked)
            abort();
        free(users[at]);
        users[at] = NULL;
    }
}

int main(int argc, char **argv) {
    seed = argc > 1 ? (unsigned)atoi(argv[1]) : 40;
    new_world();
    for (int left = argc > 2 ? atoi(argv[2]) : 200000; left > 0; left--) {
        int what = dice(100);
        enter(t);
        if (what < 55) {
            receive_any();
        } else if (what < 70) {
            t->now.mono += dice(700);
            t->now.boot += dice(701);
            tick(t);
        } else if (what < 74 && t->link == OPENING) {
            dice(9) ? connected(t) : unreached(t);
        } else if (what == 74) {
            broke(t);
        }
        leave(t);
        if (what >= 75 && what < 99)
            call_any();
        if (what == 99 && dice(20) == 0) {
            end_world();
            new_world();
        }
    }
    end_world();
    puts("test result: ok. 1 passed; 0 failed");
    return 0;
}
