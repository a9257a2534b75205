package main

import (
	"clients/adapter"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func main() {
	address, protocol := adapter.Arguments()
	shared := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
	adapter.Serve(redis.Version(), call(shared.Do), func() (adapter.Call, any, error) { return holder(address) })
}

func holder(address string) (adapter.Call, any, error) {
	me := redis.NewClient(&redis.Options{Addr: address, ReadTimeout: 10 * time.Second, MaxRetries: -1}).Conn()
	token, err := me.Do(ctx, "LOCK.ACQUIRE", "report", "WAIT", 6000).Result() // redis.Nil: still taken
	if errors.Is(err, redis.Nil) {
		token, err = nil, nil
	}
	return call(me.Do), token, err
}

func call(do func(context.Context, ...any) *redis.Cmd) adapter.Call {
	return func(words ...any) (any, error) {
		reply, err := do(ctx, words...).Result()
		if errors.Is(err, redis.Nil) {
			return nil, nil
		}
		return reply, err
	}
}
