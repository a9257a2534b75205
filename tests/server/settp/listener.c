/* Another module: HEARD says how many keys it heard go by `del`, OVERWRITE key value and SNATCH key write and remove
 * keys by the low-level API, without a word of it. */

#include <string.h>

typedef int (*function)(void *ctx, void **argv, int argc);

static int (*reply)(void *ctx, long long number);
static void *(*open)(void *ctx, void *name, int mode);
static void (*close)(void *key);
static int (*set)(void *key, void *value);
static int (*delete)(void *key);
static long long heard = 0;

static int on_key(void *ctx, int type, const char *event, void *key) {
    (void)ctx, (void)type, (void)key;
    heard += strcmp(event, "del") == 0;
    return 0;
}

static int on_command(void *ctx, void **argv, int argc) {
    (void)argv, (void)argc;
    return reply(ctx, heard);
}

static int on_overwrite(void *ctx, void **argv, int argc) {
    void *key = argc == 3 ? open(ctx, argv[1], 3) : 0;
    int failed = key ? set(key, argv[2]) : 1;
    close(key);
    return reply(ctx, failed);
}

static int on_snatch(void *ctx, void **argv, int argc) {
    void *key = argc == 2 ? open(ctx, argv[1], 3) : 0;
    int failed = key ? delete(key) : 1;
    close(key);
    return reply(ctx, failed);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *name, void *function) = ((int (**)(const char *, void *))ctx)[0];
    int (*attribute)(void *ctx, const char *name, int version, int api);
    int (*subscribe)(void *ctx, int classes, int (*callback)(void *, int, const char *, void *));
    int (*create)(void *ctx, const char *name, function, const char *flags, int, int, int);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &attribute);
    get("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_ReplyWithLongLong", &reply);
    get("RedisModule_OpenKey", &open);
    get("RedisModule_CloseKey", &close);
    get("RedisModule_StringSet", &set);
    get("RedisModule_DeleteKey", &delete);
    attribute(ctx, "listener", 1, 1);
    subscribe(ctx, 1 << 2, on_key);
    return create(ctx, "overwrite", on_overwrite, "write", 1, 1, 1) ||
           create(ctx, "snatch", on_snatch, "write", 1, 1, 1) ||
           create(ctx, "heard", on_command, "readonly", 0, 0, 0);
}
