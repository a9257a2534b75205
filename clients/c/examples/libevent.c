/* A lock on libevent: cc libevent.c ../tether.c -lhiredis -levent -lm */
#include "../tether.h"
#include <event2/event.h>
#include <hiredis/adapters/libevent.h>
#include <stdio.h>
#include <stdlib.h>

static struct event_base *base;

static tether_context *connect_to(void *user, const char *host, int port) {
    redisAsyncContext *ac = redisAsyncConnect(host ? host : "127.0.0.1", host ? port : atoi(user));
    if (ac && ac->err == 0)
        redisLibeventAttach(ac, base);
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
        event_base_loopbreak(base);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *t) {
    (void)fd;
    (void)what;
    tether_tick(t);
}

int main(int argc, char **argv) {
    base = event_base_new();
    tether *t = tether_new(&(tether_options){.connect = connect_to, .user = argc > 1 ? argv[1] : "6379"});
    struct event *timer = event_new(base, -1, EV_PERSIST, on_timer, t);
    event_add(timer, &(struct timeval){.tv_usec = 50000});
    tether_acquire(t, tether_text("report"), &(tether_terms){.wait = 5000}, on_report, NULL);
    event_base_dispatch(base);
    tether_free(t);
    event_free(timer);
    event_base_free(base);
    return 0;
}
