package gocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"tether"
	adapter "tether/gocron"
	"tether/tethertest"
)

func open(t *testing.T, server *tethertest.Server) *tether.Locks {
	locks, err := tether.Open(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

func schedule(t *testing.T, job func(), option gocron.SchedulerOption) {
	scheduler, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scheduler.Shutdown() })
	if _, err := scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(job), gocron.WithName("job")); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
}

// A job that two machines schedule runs on one of them at a time.
func TestLocker(t *testing.T) {
	server := tethertest.Start(t)
	var running, runs atomic.Int64
	for range 2 {
		schedule(t, func() {
			if running.Add(1) > 1 {
				t.Error("it runs twice")
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			runs.Add(1)
		}, gocron.WithDistributedLocker(adapter.Locker(open(t, server))))
	}
	tethertest.Eventually(t, "it runs, again and again", func() bool { return runs.Load() > 10 })
}

// Jobs run on the leader, and on the next one after it.
func TestElector(t *testing.T) {
	server := tethertest.Start(t)
	var runs [2]atomic.Int64
	var ends [2]context.CancelFunc
	var electors [2]*adapter.Elector
	results := make(chan error, 2)
	for at := range electors {
		ctx, end := context.WithCancel(t.Context())
		electors[at], ends[at] = adapter.NewElector(open(t, server), "cron", "here"), end
		if err := electors[at].IsLeader(ctx); err != adapter.ErrNotLeader {
			t.Fatal(err)
		}
		go func() { results <- electors[at].Run(ctx) }()
		schedule(t, func() { runs[at].Add(1) }, gocron.WithDistributedElector(electors[at]))
		tethertest.Eventually(t, "the first leads", func() bool { return electors[0].IsLeader(ctx) == nil })
	}
	tethertest.Eventually(t, "the first runs it", func() bool { return runs[0].Load() > 2 })
	if runs[1].Load() > 0 || electors[1].IsLeader(t.Context()) == nil {
		t.Fatal("two lead")
	}
	ends[0]()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	tethertest.Eventually(t, "the other runs it", func() bool { return runs[1].Load() > 2 })
	ends[1]()
	<-results
}
