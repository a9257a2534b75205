package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;
import org.junit.jupiter.api.Test;

/**
 * P-ACQ-10: an interrupted wait leaves neither a place in the queue nor a hold, at whatever
 * instruction.
 */
class InterruptTest {
    private static final int STEPS =
            Integer.parseInt(System.getenv().getOrDefault("TETHER_STEPS", "1000"));
    private static final int THREADS = 8;

    @Test
    void interruptsAtRandomMomentsLeaveNothing() throws IOException, InterruptedException {
        AtomicInteger interrupted = new AtomicInteger();
        AtomicInteger granted = new AtomicInteger();
        List<Throwable> faults = new ArrayList<>();
        try (TestServer server = TestServer.start();
                TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            LockRequest one = locks.lock("a");
            LockRequest two = locks.all("a", "b");
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                LockRequest request = number % 2 == 0 ? one : two;
                threads.add(
                        new Thread(
                                () -> {
                                    while (interrupted.get() < STEPS) {
                                        try (Hold hold = request.acquire()) {
                                            granted.incrementAndGet();
                                        } catch (InterruptedException expected) {
                                            interrupted.incrementAndGet();
                                        } catch (RuntimeException | Error fault) {
                                            synchronized (faults) {
                                                faults.add(fault);
                                            }
                                            return;
                                        }
                                        Thread.interrupted(); // It may have come to the release,
                                        // which it does not stop.
                                    }
                                }));
            }
            threads.forEach(Thread::start);
            RandomGenerator random = RandomGeneratorFactory.of("L64X128MixRandom").create(7);
            for (int count = 0; threads.stream().anyMatch(Thread::isAlive); count++) {
                threads.get(random.nextInt(THREADS)).interrupt();
                LockSupport.parkNanos(random.nextInt(1, 200_000));
                if (count % 64 == 0 && interrupted.get() < STEPS) {
                    int before = granted.get();
                    TestServer.eventually(
                            "some are granted", () -> granted.get() > before || faults.size() > 0);
                }
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), faults);
            server.awaitCrowd("a", 0, 0);
            server.awaitCrowd("b", 0, 0);
            assertEquals(List.of("0", List.of()), server.ask("LOCK.LIST", "0", "COUNT", "100000"));
        }
        assertTrue(interrupted.get() >= STEPS, interrupted + " interrupts");
        assertTrue(granted.get() > 0, "nothing was granted in between");
    }
}
