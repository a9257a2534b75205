/* A lock on ae, the loop of redis-server: cc ae.c ../tether.c -I SRC SRC/ae.c .. -lhiredis -lm, SRC being that of Redis
 */
#include "../tether.h"
#include <hiredis/adapters/ae.h>
#include <stdio.h>
#include <stdlib.h>

static aeEventLoop *loop;

static tether_context *connect_to(void *user, const char *host, int port) {
    redisAsyncContext *ac = redisAsyncConnect(host ? host : "127.0.0.1", host ? port : atoi(user));
    if (ac && ac->err == 0)
        redisAeAttach(loop, ac);
    return ac;
}

static void on_report(tether_lock *lock, const tether_event *event, void *user) {
    (void)user;
    if (event->kind == TETHER_GRANTED) {
        printf("held with token %lld\n", event->token);
        if (tether_check(lock) == NULL) /* before each step of the work */
            puts("working");
        tether_release(lock);
    } else { /* TETHER_RELEASED, TETHER_REFUSED, TETHER_LOST */
        puts(event->kind == TETHER_RELEASED ? "released" : event->code);
        aeStop(loop);
    }
}

static int on_timer(aeEventLoop *on, long long id, void *t) {
    (void)on;
    (void)id;
    tether_tick(t);
    return 50;
}

int main(int argc, char **argv) {
    loop = aeCreateEventLoop(64);
    tether *t = tether_new(&(tether_options){.connect = connect_to, .user = argc > 1 ? argv[1] : "6379"});
    aeCreateTimeEvent(loop, 50, on_timer, t, NULL);
    tether_acquire(t, tether_text("report"), &(tether_terms){.wait = 5000}, on_report, NULL);
    aeMain(loop);
    tether_free(t);
    aeDeleteEventLoop(loop);
    return 0;
}
