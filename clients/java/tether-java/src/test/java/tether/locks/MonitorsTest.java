package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MonitorInfo;
import java.lang.management.ThreadInfo;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * A thread that waits holds no monitor: until Java 24 a virtual thread would keep its carrier with
 * it.
 */
@Timeout(300)
class MonitorsTest {
    private interface Wait {
        void begin() throws Exception;
    }

    /** A wait in a thread of its own, which is ended by an interrupt or by what the caller does. */
    private static Thread begin(Wait wait) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                wait.begin();
                            } catch (Exception over) {
                                return;
                            }
                        });
        thread.start();
        return thread;
    }

    private static void assertNoMonitor(Thread thread) {
        TestServer.eventually("it waits in " + thread, () -> isParked(thread));
        ThreadInfo[] all =
                ManagementFactory.getThreadMXBean()
                        .getThreadInfo(new long[] {thread.getId()}, true, true);
        assertEquals(List.of(), List.of(all[0].getLockedMonitors()));
    }

    private static boolean isParked(Thread thread) {
        Thread.State state = thread.getState();
        return state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING;
    }

    @Test
    void waitsForALockHoldNone() throws Exception {
        try (TestServer server = TestServer.start();
                TetherLocks others = TetherLocks.builder(server.uri()).build();
                TetherLocks locks = TetherLocks.builder(server.uri()).build();
                Hold taken = others.lock("a").acquire();
                Candidate leader = others.elect("e", "1");
                Hold term = leader.awaitTerm();
                Candidate candidate = locks.elect("e", "2")) {
            List<Thread> threads =
                    Stream.<Wait>of(
                                    () -> locks.lock("a").acquire(),
                                    () -> locks.lock("a").waitAtMost(Duration.ofDays(1)).acquire(),
                                    () -> locks.asLock("a").lockInterruptibly(),
                                    () -> locks.asLock("a").tryLock(1, TimeUnit.DAYS),
                                    () -> locks.asReadWriteLock("a").readLock().lockInterruptibly(),
                                    candidate::awaitTerm)
                            .map(MonitorsTest::begin)
                            .toList();
            server.awaitCrowd("a", 1, 5);
            for (Thread thread : threads) {
                assertNoMonitor(thread);
                thread.interrupt();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            server.awaitCrowd("a", 1, 0);
            assertEquals(true, taken.isHeld() && term.isHeld());
        }
    }

    @Test
    void waitsForAnAnswerHoldNone() throws Exception {
        try (TetherDevServer server = TetherDevServer.start("--peer-timeout", "600s")) {
            TetherLocks locks = TetherLocks.builder(server.uri()).build();
            Hold one = locks.lock("a").acquire();
            Hold two = locks.lock("b").acquire();
            server.dev("SILENT", "3600000");
            List<Thread> threads =
                    Stream.<Wait>of(
                                    () -> one.extend(Duration.ofDays(1)),
                                    one::checkServer,
                                    () -> locks.lock("c").acquire(),
                                    two::close)
                            .map(
                                    wait -> {
                                        Thread thread = begin(wait);
                                        assertNoMonitor(thread);
                                        return thread;
                                    })
                            .toList();
            locks.close(); // Which ends all of these waits.
            for (Thread thread : threads) {
                thread.join();
            }
        }
    }

    /** The look itself sees a monitor. */
    @Test
    void aMonitorIsSeen() throws IOException, InterruptedException {
        Object monitor = new Object();
        Thread thread =
                begin(
                        () -> {
                            synchronized (monitor) {
                                Thread.sleep(TimeUnit.DAYS.toMillis(1));
                            }
                        });
        TestServer.eventually("it sleeps", () -> isParked(thread));
        MonitorInfo[] locked =
                ManagementFactory.getThreadMXBean()
                        .getThreadInfo(new long[] {thread.getId()}, true, true)[0]
                        .getLockedMonitors();
        assertEquals(1, locked.length);
        thread.interrupt();
        thread.join();
    }
}
