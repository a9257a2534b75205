package main

import (
	"clients/adapter"
	"time"

	"github.com/gomodule/redigo/redis"
)

func main() {
	address, _ := adapter.Arguments()
	// It closes what is idle above MaxIdle, and with it ends what that holds.
	shared := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
	call := func(words ...any) (any, error) {
		connection := shared.Get()
		defer connection.Close()
		return connection.Do(words[0].(string), words[1:]...)
	}
	adapter.Serve(adapter.Version("github.com/gomodule/redigo"), call, func() (adapter.Call, any, error) { return holder(address) })
}

func holder(address string) (adapter.Call, any, error) {
	me, err := redis.Dial("tcp", address, redis.DialReadTimeout(10*time.Second))
	if err != nil {
		return nil, nil, err
	}
	token, err := me.Do("LOCK.ACQUIRE", "report", "WAIT", 6000) // nil: still taken
	return func(words ...any) (any, error) { return me.Do(words[0].(string), words[1:]...) }, token, err
}
