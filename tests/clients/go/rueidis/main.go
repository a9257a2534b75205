package main

import (
	"clients/adapter"
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func main() {
	address, protocol := adapter.Arguments()
	shared, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, AlwaysRESP2: protocol == 2, DisableCache: protocol == 2,
	})
	if err != nil {
		panic(err)
	}
	adapter.Serve(adapter.Version("github.com/redis/rueidis"), call(shared), func() (adapter.Call, any, error) {
		return holder(address)
	})
}

func holder(address string) (adapter.Call, any, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, DisableRetry: true, ConnWriteTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, nil, err
	}
	me, _ := client.Dedicate() // what it gives beside hands the connection to others
	acquire := me.B().Arbitrary("LOCK.ACQUIRE").Keys("report").Args("WAIT", "6000").Blocking()
	token, err := me.Do(ctx, acquire).ToAny() // rueidis.IsRedisNil(err): still taken
	if rueidis.IsRedisNil(err) {
		token, err = nil, nil
	}
	return call(me), token, err
}

// Both of its kinds of clients.
type sender interface {
	B() rueidis.Builder
	Do(context.Context, rueidis.Completed) rueidis.RedisResult
}

func call(by sender) adapter.Call {
	return func(words ...any) (any, error) {
		texts := make([]string, len(words))
		for at, word := range words {
			texts[at] = fmt.Sprint(word)
		}
		reply, err := by.Do(ctx, by.B().Arbitrary(texts...).Build()).ToAny()
		if rueidis.IsRedisNil(err) {
			return nil, nil
		}
		return reply, err
	}
}
