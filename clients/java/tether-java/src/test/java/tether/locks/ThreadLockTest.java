package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;

/** What {@link TetherLocks#asLock} promises. */
@Timeout(300)
class ThreadLockTest {
    private static final ExecutorService OTHER = Executors.newSingleThreadExecutor();
    private static TestServer server;
    private static TetherLocks locks;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
        locks = TetherLocks.builder(server.uri()).build();
    }

    @AfterAll
    static void stop() {
        OTHER.shutdown();
        locks.close();
        server.close();
    }

    @Test
    void aThreadCountsHowOftenItTookIt(TestInfo test) throws Exception {
        String key = test.getDisplayName();
        Lock lock = locks.asLock(key);
        lock.lock();
        assertTrue(locks.asLock(key).tryLock(), "the same lock by another object");
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        lock.lockInterruptibly();
        assertFalse(OTHER.submit(() -> lock.tryLock()).get());
        for (int count = 0; count < 3; count++) {
            lock.unlock();
            assertEquals(List.of(1, 0), server.crowd(key));
        }
        assertTrue(locks.heldByThread(key).isPresent());
        lock.unlock();
        assertEquals(List.of(0, 0), server.crowd(key));
        assertEquals(Optional.empty(), locks.heldByThread(key));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void anotherThreadDoesNotHoldIt(TestInfo test) throws Exception {
        Lock lock = locks.asLock(test.getDisplayName());
        lock.lock();
        ExecutionException error =
                assertThrows(ExecutionException.class, () -> OTHER.submit(lock::unlock).get());
        assertEquals(IllegalMonitorStateException.class, error.getCause().getClass());
        lock.unlock();
    }

    @Test
    void theLastUnlockTellsALoss(TestInfo test) {
        String key = test.getDisplayName();
        Lock lock = locks.asLock(key);
        lock.lock();
        lock.lock();
        Hold hold = locks.heldByThread(key).orElseThrow();
        server.ask("DEL", key);
        TestServer.eventually("the loss is told", () -> !hold.isHeld());
        assertThrows(LostException.class, lock::lock);
        lock.unlock();
        assertEquals("deleted", assertThrows(LostException.class, lock::unlock).reason());
        assertTrue(lock.tryLock(), "it can be had again");
        lock.unlock();
    }

    @Test
    void anInterruptEndsOnlyTheWaitsThatMayBe(TestInfo test) throws Exception {
        String key = test.getDisplayName();
        Lock lock = locks.asLock(key);
        lock.lock();
        CountDownLatch began = new CountDownLatch(1);
        CountDownLatch goesOn = new CountDownLatch(1);
        Thread[] waiter = new Thread[1];
        Future<Boolean> wasInterrupted =
                OTHER.submit(
                        () -> {
                            waiter[0] = Thread.currentThread();
                            began.countDown();
                            assertThrows(InterruptedException.class, lock::lockInterruptibly);
                            goesOn.await();
                            lock.lock();
                            lock.unlock();
                            return Thread.interrupted();
                        });
        began.await();
        server.awaitCrowd(key, 1, 1);
        waiter[0].interrupt();
        server.awaitCrowd(key, 1, 0);
        goesOn.countDown();
        server.awaitCrowd(key, 1, 1);
        waiter[0].interrupt();
        lock.unlock();
        assertTrue(wasInterrupted.get(), "the interrupt of lock() is kept");
        server.awaitCrowd(key, 0, 0);
    }

    @Test
    void readersShareAndWritersDoNot(TestInfo test) throws Exception {
        ReadWriteLock lock = locks.asReadWriteLock(test.getDisplayName());
        lock.readLock().lock();
        assertTrue(
                OTHER.submit(
                                () -> {
                                    boolean isTaken =
                                            lock.readLock().tryLock()
                                                    && !lock.writeLock().tryLock();
                                    lock.readLock().unlock();
                                    return isTaken;
                                })
                        .get());
        assertFalse(lock.writeLock().tryLock(), "no upgrade");
        assertThrows(DeadlockException.class, lock.writeLock()::lock);
        lock.readLock().unlock();
        lock.writeLock().lock();
        assertFalse(OTHER.submit(() -> lock.readLock().tryLock()).get());
        lock.writeLock().unlock();
    }

    @Test
    void conditionsAreNotSupported() {
        assertThrows(UnsupportedOperationException.class, locks.asLock("any")::newCondition);
    }
}
