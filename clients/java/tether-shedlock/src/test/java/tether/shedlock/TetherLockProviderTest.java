package tether.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import tether.locks.TestServer;
import tether.locks.TetherLocks;
import tether.locks.TetherObserver;

/** What ShedLock asks of a provider, told again. */
@Timeout(300)
class TetherLockProviderTest {
    private static final Duration LONG = Duration.ofMinutes(5);
    private static final Duration SHORT = Duration.ofMillis(50);
    private static TestServer server;
    private static TetherLocks locks;
    private static TetherLocks others;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
        locks = TetherLocks.builder(server.uri()).grace(LONG).build();
        others = TetherLocks.builder(server.uri()).grace(LONG).build();
    }

    @AfterAll
    static void stop() {
        others.close();
        locks.close();
        server.close();
    }

    private static LockConfiguration configuration(String name, Duration most, Duration least) {
        return new LockConfiguration(ClockProvider.now(), name, most, least);
    }

    /** By this program, and by another. */
    private static void assertLocked(String name) {
        for (TetherLocks client : List.of(locks, others)) {
            assertEquals(
                    Optional.empty(),
                    new TetherLockProvider(client).lock(configuration(name, LONG, Duration.ZERO)));
        }
        assertEquals(List.of(1, 0), server.crowd("shedlock:" + name));
    }

    private static void assertUnlocked(String name) {
        SimpleLock lock =
                new TetherLockProvider(others)
                        .lock(configuration(name, LONG, Duration.ZERO))
                        .orElseThrow();
        lock.unlock();
        assertEquals(List.of(0, 0), server.crowd("shedlock:" + name));
    }

    private static SimpleLock lock(String name, Duration most, Duration least) {
        return new TetherLockProvider(locks).lock(configuration(name, most, least)).orElseThrow();
    }

    @Test
    void aLockIsTakenOnceAndReleased(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), LONG, Duration.ZERO);
        assertLocked(test.getDisplayName());
        lock.unlock();
        assertUnlocked(test.getDisplayName());
    }

    @Test
    void locksOfOtherNamesAreOthers(TestInfo test) {
        SimpleLock one = lock("1" + test.getDisplayName(), LONG, Duration.ZERO);
        SimpleLock two = lock("2" + test.getDisplayName(), LONG, Duration.ZERO);
        one.unlock();
        assertLocked("2" + test.getDisplayName());
        two.unlock();
    }

    @Test
    void itEndsAtMostThen(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), SHORT, Duration.ZERO);
        TestServer.eventually(
                "it is over",
                () -> server.crowd("shedlock:" + test.getDisplayName()).equals(List.of(0, 0)));
        assertUnlocked(test.getDisplayName());
        lock.unlock(); // Too late, which is a warning.
    }

    @Test
    void itIsKeptAtLeastSoLong(TestInfo test) {
        lock(test.getDisplayName(), LONG, LONG).unlock();
        assertLocked(test.getDisplayName());
        String other = "2" + test.getDisplayName();
        lock(other, LONG, Duration.ofMillis(500)).unlock();
        TestServer.eventually(
                "it is over", () -> server.crowd("shedlock:" + other).equals(List.of(0, 0)));
        assertUnlocked(other);
    }

    @Test
    void anotherLockOfTheNameIsNotReleased(TestInfo test) {
        SimpleLock late = lock(test.getDisplayName(), SHORT, Duration.ZERO);
        TestServer.eventually(
                "it is over",
                () -> server.crowd("shedlock:" + test.getDisplayName()).equals(List.of(0, 0)));
        SimpleLock next = lock(test.getDisplayName(), LONG, Duration.ZERO);
        late.unlock();
        assertLocked(test.getDisplayName());
        next.unlock();
    }

    @Test
    void itIsExtended(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), LONG, Duration.ZERO);
        SimpleLock extended = lock.extend(LONG, Duration.ZERO).orElseThrow();
        assertLocked(test.getDisplayName());
        assertThrows(
                IllegalStateException.class, lock::unlock, "of the former lock nothing is left");
        extended.unlock();
        assertUnlocked(test.getDisplayName());
    }

    @Test
    void anExtensionMayKeepIt(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), LONG, Duration.ZERO);
        lock.extend(LONG, LONG).orElseThrow().unlock();
        assertLocked(test.getDisplayName());
        SimpleLock kept = lock("2" + test.getDisplayName(), LONG, LONG);
        kept.extend(LONG, Duration.ZERO).orElseThrow().unlock();
        assertUnlocked("2" + test.getDisplayName());
    }

    @Test
    void whatAnExtensionKeepsOutlivesTheClientAndIsNoLoss(TestInfo test) {
        String name = test.getDisplayName();
        List<String> losses = new CopyOnWriteArrayList<>();
        TetherObserver observer =
                new TetherObserver() {
                    @Override
                    public void lost(List<String> keys, long token, String reason) {
                        losses.add(reason);
                    }
                };
        try (TetherLocks own =
                TetherLocks.builder(server.uri()).grace(LONG).observer(observer).build()) {
            SimpleLock lock =
                    new TetherLockProvider(own)
                            .lock(configuration(name, LONG, Duration.ZERO))
                            .orElseThrow();
            lock.extend(LONG, LONG).orElseThrow().unlock();
        }
        assertLocked(name);
        assertEquals(List.of(), losses);
    }

    @Test
    void whoeverIsInterruptedDoesNotLearnThatTheLockIsLost(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), LONG, Duration.ZERO);
        Thread.currentThread().interrupt();
        assertThrows(LockException.class, () -> lock.extend(LONG, Duration.ZERO));
        assertTrue(Thread.interrupted());
        lock.unlock();
        assertUnlocked(test.getDisplayName());
    }

    @Test
    void whatIsOverIsNotExtended(TestInfo test) {
        SimpleLock lock = lock(test.getDisplayName(), SHORT, Duration.ZERO);
        TestServer.eventually(
                "it is over",
                () -> server.crowd("shedlock:" + test.getDisplayName()).equals(List.of(0, 0)));
        assertEquals(Optional.empty(), lock.extend(LONG, Duration.ZERO));
        assertUnlocked(test.getDisplayName());
    }

    @Test
    void atLeastNeedsASession(TestInfo test) {
        try (TetherLocks plain = TetherLocks.builder(server.uri()).build()) {
            TetherLockProvider provider = new TetherLockProvider(plain);
            LockConfiguration kept = configuration(test.getDisplayName(), LONG, LONG);
            assertThrows(LockException.class, () -> provider.lock(kept));
            SimpleLock lock =
                    provider.lock(configuration(test.getDisplayName(), LONG, Duration.ZERO))
                            .orElseThrow();
            assertThrows(LockException.class, () -> lock.extend(LONG, LONG));
            lock.unlock();
        }
    }

    @Test
    void aRedisProviderOfTheSameKeysExcludesAndIsExcluded(TestInfo test) {
        TetherLockProvider provider = new TetherLockProvider(locks, "job-lock:default:");
        LockConfiguration job = configuration(test.getDisplayName(), LONG, Duration.ZERO);
        String key = "job-lock:default:" + test.getDisplayName();
        String[] theirs = {"SET", key, "ADDED:", "NX", "PX", "300000"};
        assertEquals("OK", server.ask(theirs));
        assertThrows(LockException.class, () -> provider.lock(job));
        server.ask("DEL", key);
        SimpleLock lock = provider.lock(job).orElseThrow();
        assertNull(server.ask(theirs));
        lock.unlock();
        assertEquals("OK", server.ask(theirs));
    }

    @Test
    void ofManyThreadsOneWorksAtATime(TestInfo test) throws InterruptedException {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger worked = new AtomicInteger();
        AtomicInteger together = new AtomicInteger();
        for (int thread = 0; thread < 8; thread++) {
            DefaultLockingTaskExecutor executor =
                    new DefaultLockingTaskExecutor(
                            new TetherLockProvider(thread % 2 == 0 ? locks : others));
            threads.submit(
                    () -> {
                        while (worked.get() < 100) {
                            executor.executeWithLock(
                                    (Runnable)
                                            () -> {
                                                together.addAndGet(inside.incrementAndGet() - 1);
                                                worked.incrementAndGet();
                                                inside.decrementAndGet();
                                            },
                                    configuration(test.getDisplayName(), LONG, Duration.ZERO));
                        }
                    });
        }
        threads.shutdown();
        assertTrue(threads.awaitTermination(4, TimeUnit.MINUTES));
        assertEquals(0, together.get());
    }
}
