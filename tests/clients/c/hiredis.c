// hiredis, which has no pool. Reads lines, has hiredis send what these say, and prints the replies (see
// tests/clients/check.py).

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *host;
static int port;

static void print(redisContext *context, redisReply *reply) {
    if (reply == NULL)
        printf("! %s\n", context->errstr);
    else if (reply->type == REDIS_REPLY_ERROR)
        printf("! %s\n", reply->str);
    else if (reply->type == REDIS_REPLY_NIL)
        puts("nil");
    else if (reply->type == REDIS_REPLY_INTEGER)
        printf("%lld\n", reply->integer);
    else
        printf("%s\n", reply->str ? reply->str : "(an array)");
    fflush(stdout);
    if (reply)
        freeReplyObject(reply);
}

static redisContext *lines(void) {
    redisContext *me = redisConnect(host, port);
    redisSetTimeout(me, (struct timeval){.tv_sec = 10});
    redisReply *token = redisCommand(me, "LOCK.ACQUIRE report WAIT 6000"); // REDIS_REPLY_NIL: still taken
    print(me, token);
    return me;
}

int main(int count, char **arguments) {
    char line[1024], *words[32];
    if (count < 4)
        return 1;
    host = arguments[1];
    port = atoi(arguments[2]);
    redisContext *shared = redisConnect(host, port), *held = NULL;
    if (strcmp(arguments[3], "3") == 0)
        freeReplyObject(redisCommand(shared, "HELLO 3"));
    printf("%d.%d.%d\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int words_count = 0;
        for (char *at = line; *at; at++)
            if (*at == '%')
                *at = '0';
        for (char *word = strtok(line, " \n"); word && words_count < 32; word = strtok(NULL, " \n"))
            words[words_count++] = word;
        if (strcmp(words[0], "width") == 0) {
            puts("1");
            fflush(stdout);
        } else if (strcmp(words[0], "lines") == 0) {
            held = lines();
        } else {
            redisContext *context = strcmp(words[0], "holder") == 0 ? held : shared;
            print(context, redisCommandArgv(context, words_count - 1, (const char **)words + 1, NULL));
        }
    }
    return 0;
}
