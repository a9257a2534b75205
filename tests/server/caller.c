/* Another module: CALL command [argument ...] has the server call a command for a client without a connection, and
 * replies as that does. */

typedef int (*function)(void *ctx, void **argv, int argc);

static void *(*call)(void *ctx, const char *name, const char *format, ...);
static int (*pass_on)(void *ctx, void *reply);
static int (*error)(void *ctx, const char *message);
static const char *(*bytes)(void *string, unsigned long *length);

static int on_call(void *ctx, void **argv, int argc) {
    unsigned long length;
    void *reply;
    if (argc < 2) return error(ctx, "ERR call what?");
    reply = call(ctx, bytes(argv[1], &length), "!Ev", argv + 2, (unsigned long)argc - 2);
    return reply ? pass_on(ctx, reply) : error(ctx, "ERR no reply");
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    int (*get)(const char *name, void *function) = ((int (**)(const char *, void *))ctx)[0];
    int (*attribute)(void *ctx, const char *name, int version, int api);
    int (*create)(void *ctx, const char *name, function, const char *flags, int, int, int);
    (void)argv, (void)argc;
    get("RedisModule_SetModuleAttribs", &attribute);
    get("RedisModule_CreateCommand", &create);
    get("RedisModule_Call", &call);
    get("RedisModule_ReplyWithCallReply", &pass_on);
    get("RedisModule_ReplyWithError", &error);
    get("RedisModule_StringPtrLen", &bytes);
    attribute(ctx, "caller", 1, 1);
    return create(ctx, "call", on_call, "write", 0, 0, 0);
}
