package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.springframework.integration.leader.AbstractCandidate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.event.LeaderEventPublisher;
import tether.locks.Failure;
import tether.locks.TestServer;
import tether.locks.TetherLocks;
import tether.locks.TetherObserver;

/** Terms that end while they begin. */
@Timeout(300)
class TetherLeaderInitiatorTest {
    private interface Granted {
        void run() throws InterruptedException;
    }

    private static TestServer server;
    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    private TetherLeaderInitiator initiator(TetherLocks locks, String role, Granted work) {
        return initiator(locks, role, work, () -> {});
    }

    private TetherLeaderInitiator initiator(
            TetherLocks locks, String role, Granted work, Runnable end) {
        AbstractCandidate candidate =
                new AbstractCandidate("me", role) {
                    @Override
                    public void onGranted(Context context) throws InterruptedException {
                        told.add("granted");
                        work.run();
                    }

                    @Override
                    public void onRevoked(Context context) {
                        told.add("revoked");
                        end.run();
                    }
                };
        return new TetherLeaderInitiator(locks, "", candidate, new Published());
    }

    private void assertTold(String... expected) throws InterruptedException {
        for (String each : expected) {
            assertEquals(each, told.poll(60, TimeUnit.SECONDS));
        }
    }

    private final class Published implements LeaderEventPublisher {
        @Override
        public void publishOnGranted(Object source, Context context, String role) {
            told.add("published");
        }

        @Override
        public void publishOnRevoked(Object source, Context context, String role) {
            told.add("published that it is revoked");
        }

        @Override
        public void publishOnFailedToAcquire(Object source, Context context, String role) {}
    }

    @Test
    void aLossInterruptsTheWork(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        Granted work =
                () -> {
                    try {
                        Thread.sleep(600_000);
                    } catch (InterruptedException interrupted) {
                        told.add("interrupted");
                        throw interrupted;
                    }
                };
        try (TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, work);
            initiator.start();
            assertTold("granted");
            server.ask("DEL", role);
            assertTold("interrupted", "revoked", "published that it is revoked", "granted");
            initiator.stop();
            assertTold("interrupted", "revoked", "published that it is revoked");
            server.awaitCrowd(role, 0, 0);
            assertEquals(List.of(), List.copyOf(told));
        }
    }

    @Test
    void workThatIgnoresAnInterruptKeepsNobody(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        CountDownLatch end = new CountDownLatch(1);
        Granted work =
                () -> {
                    while (end.getCount() > 0) {
                        Thread.onSpinWait();
                    }
                };
        try (TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, work);
            initiator.start();
            assertTold("granted");
            initiator.stop();
            assertTold("revoked", "published that it is revoked");
            server.awaitCrowd(role, 0, 0);
        } finally {
            end.countDown();
        }
    }

    @Test
    void workThatFailsResigns(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        Granted work =
                () -> {
                    throw new IllegalStateException("as work may");
                };
        try (TetherLocks locks = TetherLocks.builder(server.uri()).build();
                TetherLocks others = TetherLocks.builder(server.uri()).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, work);
            initiator.start();
            assertTold("granted", "revoked", "published that it is revoked");
            others.elect(role, "other").awaitTerm();
            initiator.stop();
        }
    }

    /** The pauses are at least 10, 20, 40, 80 and 160 ms (P-RETRY-1). */
    @Test
    void workThatAlwaysFailsPausesBeforeItStandsAgain(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        List<Long> began = new CopyOnWriteArrayList<>();
        Runnable fail =
                () -> {
                    throw new IllegalStateException("as work may");
                };
        Granted work =
                () -> {
                    began.add(System.nanoTime());
                    fail.run();
                };
        try (TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, work, fail);
            initiator.start();
            for (int term = 0; term < 6; term++) {
                assertTold("granted", "revoked");
            }
            long passed = TimeUnit.NANOSECONDS.toMillis(began.get(5) - began.get(0));
            assertTrue(passed >= 300, "six terms within " + passed + " ms");
            initiator.stop();
            server.awaitCrowd(role, 0, 0);
        }
    }

    /** What the server refuses now, it may not refuse later. */
    @Test
    void aCandidateThatLosesItsRightStandsAgain(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        assertStandsAgain(
                role,
                () -> {
                    server.ask("ACL", "SETUSER", "me", "-settp");
                    server.ask("DEL", role);
                },
                () -> server.ask("ACL", "SETUSER", "me", "+settp"));
    }

    @Test
    void aCandidateThatIsNotLetInStandsAgain(TestInfo test) throws Exception {
        assertStandsAgain(
                test.getDisplayName(),
                () -> {
                    server.ask("ACL", "SETUSER", "me", "resetpass", ">other");
                    server.ask("CLIENT", "KILL", "USER", "me");
                },
                () -> server.ask("ACL", "SETUSER", "me", ">secret"));
    }

    private void assertStandsAgain(String role, Runnable refuse, Runnable allow) throws Exception {
        server.ask("ACL", "SETUSER", "me", "reset", "on", ">secret", "~*", "&*", "+@all");
        BlockingQueue<Failure> refused = new LinkedBlockingQueue<>();
        TetherObserver observer =
                new TetherObserver() {
                    @Override
                    public void refused(List<String> keys, Failure failure) {
                        refused.add(failure);
                    }
                };
        String uri = server.uri().replace("//", "//me:secret@");
        try (TetherLocks locks = TetherLocks.builder(uri).observer(observer).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, () -> {});
            initiator.start();
            assertTold("granted", "published");
            refuse.run();
            assertTold("revoked", "published that it is revoked");
            for (int times = 0; times < 3; times++) {
                assertEquals(Failure.REFUSED, refused.poll(60, TimeUnit.SECONDS));
            }
            allow.run();
            assertTold("granted", "published");
            initiator.stop();
            assertTold("revoked", "published that it is revoked");
        }
    }

    @Test
    void nothingIsGrantedOnceItIsStopped(TestInfo test) throws Exception {
        String role = test.getDisplayName();
        BlockingQueue<Runnable> later = new LinkedBlockingQueue<>();
        try (TetherLocks locks = TetherLocks.builder(server.uri()).executor(later::add).build()) {
            TetherLeaderInitiator initiator = initiator(locks, role, () -> {});
            initiator.start();
            Runnable grant = later.poll(60, TimeUnit.SECONDS);
            initiator.stop();
            server.awaitCrowd(role, 0, 0);
            for (Runnable each = grant; each != null; each = later.poll()) {
                each.run();
            }
            assertEquals(List.of(), List.copyOf(told));
        }
    }
}
