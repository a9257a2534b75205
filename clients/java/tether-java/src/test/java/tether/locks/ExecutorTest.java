package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A user's executor may be full, at its end, or of one thread. */
@Timeout(30)
class ExecutorTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static TestServer server;

    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final ExecutorService one = Executors.newSingleThreadExecutor();

    private final TetherObserver observer =
            new TetherObserver() {
                @Override
                public void granted(List<String> keys, long token, Duration waited) {
                    told.add("granted " + keys);
                }

                @Override
                public void refused(List<String> keys, Failure failure) {
                    told.add("refused " + keys);
                }

                @Override
                public void lost(List<String> keys, long token, String reason) {
                    told.add("lost " + keys);
                }

                @Override
                public void released(List<String> keys, long token) {
                    told.add("released " + keys);
                }
            };

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @AfterEach
    void stopThreads() {
        threads.shutdownNow();
        one.shutdownNow();
    }

    /** What an executor does with its tasks. */
    private enum Fails {
        REFUSES_ALL,
        REFUSES_EACH_SECOND,
        HAS_NO_THREAD,
        RUNS_AND_FAILS
    }

    private Executor that(Fails fails) {
        AtomicInteger count = new AtomicInteger();
        return task -> {
            switch (fails) {
                case REFUSES_ALL -> throw new RejectedExecutionException("it is shut down");
                case REFUSES_EACH_SECOND -> {
                    if (count.incrementAndGet() % 2 == 1) {
                        throw new RejectedExecutionException("it is full");
                    }
                    threads.execute(task);
                }
                case HAS_NO_THREAD ->
                        throw new OutOfMemoryError("unable to create native thread: so the test");
                case RUNS_AND_FAILS -> {
                    threads.execute(task);
                    throw new IllegalStateException("after it has begun the task, maybe");
                }
            }
        };
    }

    private TetherLocks locksWith(Executor executor) {
        return TetherLocks.builder(server.uri()).executor(executor).observer(observer).build();
    }

    private static <T> T get(CompletionStage<T> stage) throws Exception {
        return stage.toCompletableFuture().get(10, TimeUnit.SECONDS);
    }

    private void assertTold(String what) throws InterruptedException {
        assertEquals(what, told.poll(10, TimeUnit.SECONDS));
    }

    @ParameterizedTest
    @EnumSource
    void callsEndWhateverItDoes(Fails fails) throws Exception {
        try (TetherLocks locks = locksWith(that(fails))) {
            Hold hold = locks.lock("calls").acquire();
            assertTold("granted [calls]");
            assertThrows(TakenException.class, locks.lock("calls").owner("o").noWait()::acquire);
            assertTold("refused [calls]");
            get(hold.extendAsync(MINUTE));
            get(hold.checkServerAsync());
            get(hold.releaseAsync());
            assertTold("released [calls]");
            get(get(locks.lock("calls").acquireAsync()).releaseAsync());
            assertTold("granted [calls]");
            assertTold("released [calls]");
        }
    }

    @ParameterizedTest
    @EnumSource
    void aLossIsToldToAll(Fails fails) throws Exception {
        try (TetherLocks locks = locksWith(that(fails))) {
            Hold hold = locks.lock("losses").acquire();
            assertTold("granted [losses]");
            CompletableFuture<String> first = new CompletableFuture<>();
            CompletableFuture<String> second = new CompletableFuture<>();
            CompletableFuture<String> third = new CompletableFuture<>();
            hold.onLost(first::complete, that(fails));
            hold.onLost(
                    reason -> {
                        throw new IllegalStateException("as an action may");
                    },
                    Runnable::run);
            hold.onLost(second::complete);
            server.ask("DEL", "losses");
            assertEquals("deleted", get(first));
            assertEquals("deleted", get(second));
            hold.onLost(third::complete, that(fails));
            assertEquals("deleted", get(third));
            assertTold("lost [losses]");
            assertThrows(LostException.class, hold::close);
        }
    }

    @ParameterizedTest
    @EnumSource
    void listenersAreCalled(Fails fails) throws Exception {
        BlockingQueue<KeyEvent.Kind> events = new LinkedBlockingQueue<>();
        CompletableFuture<Hold> elected = new CompletableFuture<>();
        try (TetherLocks locks = locksWith(that(fails))) {
            Subscription watch = locks.watch(List.of("watched"), event -> events.add(event.kind()));
            assertEquals(KeyEvent.Kind.MISSING, events.poll(10, TimeUnit.SECONDS));
            locks.lock("watched").acquire().close();
            assertEquals(KeyEvent.Kind.ADDED, events.poll(10, TimeUnit.SECONDS));
            assertEquals(KeyEvent.Kind.DELETED, events.poll(10, TimeUnit.SECONDS));
            Candidate candidate = locks.elect("elects", "me");
            candidate.onElected(elected::complete);
            assertTrue(get(elected).isHeld());
            assertTrue(get(candidate.nextTerm()).isHeld());
            candidate.close();
            get(candidate.ended());
            watch.close();
            get(watch.ended());
        }
    }

    private interface Wait {
        void of(Hold hold) throws Exception;
    }

    private static final List<Wait> WAITS =
            List.of(
                    Hold::checkServer,
                    hold -> hold.extend(MINUTE),
                    hold -> hold.extend(MINUTE, Duration.ZERO));

    private static void waitAll(Hold hold, CompletableFuture<Void> done) {
        try {
            for (Wait wait : WAITS) {
                wait.of(hold);
            }
            done.complete(null);
        } catch (Exception error) {
            done.completeExceptionally(error);
        }
    }

    /** The executor's only thread waits in an action: who else would end its wait? */
    @Test
    void anActionMayWait() throws Exception {
        try (TetherLocks locks = locksWith(one);
                Hold hold = locks.lock("waits").acquire()) {
            CompletableFuture<Void> atLoss = new CompletableFuture<>();
            CompletableFuture<Void> atElection = new CompletableFuture<>();
            CompletableFuture<Void> atChange = new CompletableFuture<>();
            CompletableFuture<Void> atGrant = new CompletableFuture<>();
            locks.lock("other").acquire().onLost(reason -> waitAll(hold, atLoss));
            server.ask("DEL", "other");
            get(atLoss);
            Candidate candidate = locks.elect("waiting", "me");
            candidate.onElected(term -> waitAll(hold, atElection));
            get(atElection);
            locks.watch(List.of("changing"), event -> waitAll(hold, atChange));
            get(atChange);
            locks.lock("granting").acquireAsync().thenAccept(now -> waitAll(hold, atGrant));
            get(atGrant);
        }
    }
}
