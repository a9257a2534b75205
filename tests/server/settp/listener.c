/* Another module that hears keyspace events: HEARD says how many keys it heard go by `del`. */

#include <string.h>

typedef int (*function)(void *ctx, void **argv, int argc);

static int (*reply)(void *ctx, long long number);
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
    attribute(ctx, "listener", 1, 1);
    subscribe(ctx, 1 << 2, on_key);
    return create(ctx, "heard", on_command, "readonly", 0, 0, 0);
}
