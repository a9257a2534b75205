/* Another module, which does something in the middle of others' commands: when a key leaves its name, and before it is said to have
 * another one, it looks at some keys and deletes others. BETWEEN looks key ... says at which, once, in the database of the key that
 * leaves: at so many of them it looks. It begins to listen with the first BETWEEN, so that whoever listens before that hears of
 * the key first. */

#define MOST 8
#define GENERIC (1 << 2)
#define READ 1

typedef int (*function)(void *ctx, void **argv, int argc);
typedef int (*listener)(void *ctx, int class, const char *event, void *key);

static int (*subscribe)(void *ctx, int classes, listener);
static void *(*open_key)(void *ctx, void *key, int mode);
static void (*close_key)(void *key);
static void *(*copy)(void *ctx, const void *string);
static void (*release)(void *ctx, void *string);
static void *(*call)(void *ctx, const char *name, const char *format, ...);
static void (*free_reply)(void *reply);
static int (*number)(const void *string, long long *number);
static int (*answer)(void *ctx, long long number);

static void *keys[MOST];
static int count;
static long long looks;

static int is(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

static int on_event(void *ctx, int class, const char *event, void *key) {
    int at, now = count;
    (void)class, (void)key;
    if (!is(event, "rename_from") && !is(event, "move_from")) return 0;
    count = 0;
    for (at = 0; at < now; at++) {
        void *opened = at < looks ? open_key(ctx, keys[at], READ) : 0;
        void *reply = at < looks ? 0 : call(ctx, "DEL", "s", keys[at]);
        if (opened) close_key(opened);
        if (reply) free_reply(reply);
        release(0, keys[at]);
    }
    return 0;
}

static int on_between(void *ctx, void **argv, int argc) {
    static int listens;
    if (!listens && subscribe(ctx, GENERIC, on_event)) return answer(ctx, -1);
    listens = 1;
    while (count) release(0, keys[--count]);
    if (argc < 2 || number(argv[1], &looks)) return answer(ctx, -1);
    while (count < MOST && count < argc - 2) {
        keys[count] = copy(0, argv[count + 2]);
        count++;
    }
    return answer(ctx, count);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *name, void *function) = ((int (**)(const char *, void *))ctx)[0];
    int (*attribute)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, function, const char *flags, int, int, int);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &attribute);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    get("RedisModule_OpenKey", &open_key);
    get("RedisModule_CloseKey", &close_key);
    get("RedisModule_CreateStringFromString", &copy);
    get("RedisModule_FreeString", &release);
    get("RedisModule_Call", &call);
    get("RedisModule_FreeCallReply", &free_reply);
    get("RedisModule_StringToLongLong", &number);
    get("RedisModule_ReplyWithLongLong", &answer);
    attribute(ctx, "between", 1, 1);
    return create(ctx, "between", on_between, "readonly", 0, 0, 0);
}
