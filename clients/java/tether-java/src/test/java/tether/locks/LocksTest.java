package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;

/** The client on a real server. */
@Timeout(300)
class LocksTest {
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static TestServer server;
    private static TetherLocks locks;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
        locks = TetherLocks.builder(server.uri()).build();
    }

    @AfterAll
    static void stop() {
        locks.close();
        server.close();
    }

    private static TetherLocks withSession() {
        return TetherLocks.builder(server.uri()).grace(MINUTE).build();
    }

    private static <T> T next(BlockingQueue<T> queue) throws InterruptedException {
        T next = queue.poll(60, TimeUnit.SECONDS);
        assertTrue(next != null, "nothing came");
        return next;
    }

    @Test
    void aLockIsHandedOver(TestInfo test) throws Exception {
        LockRequest request = locks.lock(test.getDisplayName());
        Hold first = request.acquire();
        assertTrue(first.isHeld());
        assertEquals(Optional.empty(), request.noWait().tryAcquire());
        CompletableFuture<Hold> second = request.acquireAsync();
        server.awaitCrowd(test.getDisplayName(), 1, 1);
        first.close();
        assertTrue(second.get().token() > first.token());
        assertThrows(IllegalStateException.class, first::check);
        second.get().releaseAsync().toCompletableFuture().get();
        server.awaitCrowd(test.getDisplayName(), 0, 0);
    }

    @Test
    void aWaitEnds(TestInfo test) throws Exception {
        try (Hold hold = locks.lock(test.getDisplayName()).acquireAsync().get()) {
            LockRequest late = locks.lock(test.getDisplayName()).waitAtMost(Duration.ofMillis(50));
            TakenException taken = assertThrows(TakenException.class, late::acquire);
            assertEquals("TAKEN", taken.code());
            assertTrue(hold.isHeld());
        }
    }

    @Test
    void aThreadThatWouldWaitForItselfIsDeadlocked(TestInfo test) throws Exception {
        try (Hold hold = locks.lock(test.getDisplayName()).acquire()) {
            assertThrows(DeadlockException.class, locks.lock(test.getDisplayName())::acquire);
            assertTrue(hold.isHeld());
        }
    }

    @Test
    void aCancelledFutureLeavesNothing(TestInfo test) throws Exception {
        try (Hold hold = locks.lock(test.getDisplayName()).acquire()) {
            CompletableFuture<Hold> second = locks.lock(test.getDisplayName()).acquireAsync();
            server.awaitCrowd(test.getDisplayName(), 1, 1);
            second.cancel(false);
            server.awaitCrowd(test.getDisplayName(), 1, 0);
            assertTrue(hold.isHeld());
        }
    }

    @Test
    void aFutureThatTimesOutLeavesNothing(TestInfo test) throws Exception {
        try (Hold hold = locks.lock(test.getDisplayName()).acquire()) {
            LockRequest request = locks.lock(test.getDisplayName());
            CompletableFuture<Hold> late =
                    request.acquireAsync().orTimeout(500, TimeUnit.MILLISECONDS);
            CompletableFuture<Hold> failed = request.acquireAsync();
            server.awaitCrowd(test.getDisplayName(), 1, 2);
            failed.completeExceptionally(new IllegalStateException("of the caller"));
            server.awaitCrowd(test.getDisplayName(), 1, 0);
            assertTrue(late.isCompletedExceptionally() && hold.isHeld());
        }
    }

    @Test
    void aFutureThatItsCallerCompletesLeavesNothing(TestInfo test) throws Exception {
        try (Hold hold = locks.lock(test.getDisplayName()).acquire()) {
            LockRequest request = locks.lock(test.getDisplayName());
            CompletableFuture<Hold> late = request.acquireAsync();
            CompletableFuture<Hold> other = request.acquireAsync();
            server.awaitCrowd(test.getDisplayName(), 1, 2);
            late.completeOnTimeout(null, 1, TimeUnit.MILLISECONDS);
            other.complete(hold);
            server.awaitCrowd(test.getDisplayName(), 1, 0);
            assertTrue(late.join() == null && hold.isHeld());
            CompletableFuture<Hold> next = request.acquireAsync();
            server.awaitCrowd(test.getDisplayName(), 1, 1);
            hold.close();
            next.get().checkServer();
            next.get().close();
        }
    }

    @Test
    void readersAndPermitsShare(TestInfo test) throws Exception {
        LockRequest reader = locks.lock(test.getDisplayName()).shared().noWait();
        try (Hold one = reader.acquire();
                Hold two = reader.acquire()) {
            assertTrue(two.token() > one.token());
            assertThrows(TakenException.class, locks.lock(test.getDisplayName()).noWait()::acquire);
        }
        LockRequest permit = locks.semaphore("s:" + test.getDisplayName(), 2).noWait();
        try (Hold one = permit.acquire();
                Hold two = permit.acquire()) {
            assertTrue(one.isHeld() && two.isHeld());
            assertThrows(TakenException.class, permit::acquire);
        }
    }

    @Test
    void severalAreLostTogether(TestInfo test) throws Exception {
        String a = "a:" + test.getDisplayName();
        String b = "b:" + test.getDisplayName();
        Hold hold = locks.all(a, b).acquire();
        assertEquals(List.of(a, b), hold.keys());
        BlockingQueue<String> reasons = new LinkedBlockingQueue<>();
        hold.onLost(reasons::add);
        server.ask("DEL", a);
        assertEquals("deleted", next(reasons));
        server.awaitCrowd(b, 0, 0);
        assertEquals("deleted", assertThrows(LostException.class, hold::check).reason());
        assertThrows(LostException.class, hold::close);
        hold.close();
        hold.onLost(reasons::add);
        assertEquals("deleted", next(reasons));
    }

    @Test
    void aLeaseEndsUnlessItIsExtended(TestInfo test) throws Exception {
        Hold hold = locks.lock(test.getDisplayName()).lease(MINUTE).acquire();
        hold.extend(MINUTE);
        BlockingQueue<String> reasons = new LinkedBlockingQueue<>();
        hold.onLost(reasons::add);
        hold.extend(Duration.ofMillis(20));
        assertEquals("lease", next(reasons));
        assertThrows(LostException.class, () -> hold.extend(MINUTE));
    }

    @Test
    void whatIsToBeKeptNeedsASessionForIt(TestInfo test) throws Exception {
        Hold hold = locks.lock(test.getDisplayName()).lease(MINUTE).acquire();
        CompletionStage<Void> extended = hold.extendAsync(MINUTE, MINUTE);
        assertTrue(extended.toCompletableFuture().isCompletedExceptionally());
        assertThrows(TetherException.class, () -> hold.extend(MINUTE, MINUTE));
        hold.extendAsync(MINUTE, Duration.ZERO).toCompletableFuture().join();
        hold.check();
        hold.close();
    }

    @Test
    void ofASessionNothingIsLostByABreak(TestInfo test) throws Exception {
        try (TetherLocks own = withSession()) {
            Hold hold = own.lock(test.getDisplayName()).acquire();
            kill(test.getDisplayName());
            hold.checkServer();
            assertTrue(hold.isHeld());
            hold.close();
        }
    }

    @Test
    void withoutASessionABreakLosesTheLock(TestInfo test) throws Exception {
        try (TetherLocks own = TetherLocks.builder(server.uri()).build()) {
            Hold hold = own.lock(test.getDisplayName()).acquire();
            BlockingQueue<String> reasons = new LinkedBlockingQueue<>();
            hold.onLost(reasons::add);
            kill(test.getDisplayName());
            assertEquals("connection", next(reasons));
            own.lock(test.getDisplayName()).acquire().close();
        }
    }

    private static void kill(String key) {
        Map<?, ?> info = (Map<?, ?>) server.ask("LOCK.INFO", key);
        Map<?, ?> holder = (Map<?, ?>) ((List<?>) info.get("holders")).get(0);
        assertEquals(1L, server.ask("CLIENT", "KILL", "ID", holder.get("client").toString()));
    }

    @Test
    void closingTellsHoldersAndFreesAtOnce(TestInfo test) throws Exception {
        TetherLocks own = withSession();
        Hold hold = own.lock(test.getDisplayName()).acquire();
        CompletableFuture<Hold> waiting = own.lock(test.getDisplayName()).acquireAsync();
        server.awaitCrowd(test.getDisplayName(), 1, 1);
        own.close();
        own.close();
        assertEquals(List.of(0, 0), server.crowd(test.getDisplayName()));
        assertEquals(Optional.of("closed"), hold.loss());
        ExecutionException ended = assertThrows(ExecutionException.class, waiting::get);
        assertEquals(Failure.CLOSED, ((TetherException) ended.getCause()).failure());
        TetherException closed = assertThrows(TetherException.class, own.lock("any")::acquire);
        assertEquals(Failure.CLOSED, closed.failure());
    }

    @Test
    void aNamedOwnerReenters(TestInfo test) throws Exception {
        LockRequest request = locks.lock(test.getDisplayName()).owner("me").reentrant().noWait();
        Hold outer = request.acquire();
        Hold inner = request.acquire();
        assertEquals(outer.token(), inner.token());
        outer.close();
        assertTrue(inner.isHeld());
        assertEquals(List.of(1, 0), server.crowd(test.getDisplayName()));
        while (!isInterrupted(request)) {} // Unless the grant is there before it looks.
        inner.checkServer(); // After what the interrupted call has given up.
        assertTrue(inner.isHeld());
        assertEquals(List.of(1, 0), server.crowd(test.getDisplayName()));
        inner.close();
        assertEquals(List.of(0, 0), server.crowd(test.getDisplayName()));
    }

    /** Whether an acquire in an interrupted thread ends by that; a hold is given back. */
    private static boolean isInterrupted(LockRequest request) {
        Thread.currentThread().interrupt();
        try {
            Hold hold = request.acquire();
            Thread.interrupted();
            hold.close();
            return false;
        } catch (InterruptedException interrupted) {
            return true;
        }
    }

    @Test
    void threadsThatWouldWaitForEachOtherAreDeadlocked(TestInfo test) throws Exception {
        String a = "a:" + test.getDisplayName();
        String b = "b:" + test.getDisplayName();
        ExecutorService other = Executors.newSingleThreadExecutor();
        try (Hold mine = locks.lock(a).acquire()) {
            Hold theirs = other.submit(() -> locks.lock(b).acquire()).get();
            var waiting = other.submit(() -> locks.lock(a).acquire());
            server.awaitCrowd(a, 1, 1);
            assertThrows(DeadlockException.class, locks.lock(b)::acquire);
            mine.close();
            waiting.get().close();
            theirs.close();
        } finally {
            other.shutdown();
        }
    }

    @Test
    void aGuardedWriteNeedsTheLock(TestInfo test) throws Exception {
        try (TestServer.Raw raw = new TestServer.Raw(server)) {
            DataConnection data =
                    command -> {
                        Object reply =
                                raw.ask(command.stream().map(Resp::string).toArray(String[]::new));
                        if (reply instanceof ServerError error) {
                            throw new IOException(error.text());
                        }
                        return reply;
                    };
            Hold hold = locks.lock(test.getDisplayName()).acquire();
            assertEquals("OK", hold.run(data, "SET", "page", "new"));
            server.ask("DEL", test.getDisplayName());
            assertThrows(LostException.class, () -> hold.run(data, "SET", "page", "newer"));
            assertThrows(LostException.class, hold::close);
            assertEquals("new", server.ask("GET", "page"));
        }
    }

    @Test
    void temporaryKeysAreRead(TestInfo test) throws Exception {
        try (Hold hold = locks.temporaryKey(test.getDisplayName(), "here").acquire()) {
            assertTrue(hold.token() > 0);
            assertEquals("here", server.ask("GET", test.getDisplayName()));
        }
        assertEquals(null, server.ask("GET", test.getDisplayName()));
        try (Hold hold = locks.temporaryKey("n:", "x").sequence().acquire()) {
            assertTrue(hold.keys().get(0).startsWith("n:"));
            assertEquals("x", server.ask("GET", hold.keys().get(0)));
        }
    }

    @Test
    void watchersAreTold(TestInfo test) throws Exception {
        String key = test.getDisplayName();
        BlockingQueue<KeyEvent> events = new LinkedBlockingQueue<>();
        try (Subscription watch = locks.watch(List.of(key), events::add)) {
            assertEquals(new KeyEvent(key, KeyEvent.Kind.MISSING), next(events));
            server.ask("SET", key, "1");
            assertEquals(new KeyEvent(key, KeyEvent.Kind.ADDED), next(events));
            server.ask("DEL", key);
            assertEquals(new KeyEvent(key, KeyEvent.Kind.DELETED), next(events));
            watch.close();
            watch.ended().toCompletableFuture().get();
        }
    }

    @Test
    void membersAreTold() throws Exception {
        BlockingQueue<MemberEvent> events = new LinkedBlockingQueue<>();
        Hold first = locks.temporaryKey("member:ü", "1").acquire();
        try (Subscription presence = locks.presence("member:", events::add)) {
            assertFalse(presence.ended().toCompletableFuture().isDone());
            assertEquals(
                    new MemberEvent("member:ü", MemberEvent.Kind.ADDED, first.token(), "1", null),
                    next(events));
            first.close();
            MemberEvent gone = next(events);
            assertEquals(MemberEvent.Kind.REMOVED, gone.kind());
            assertEquals("member:ü", gone.key());
        }
    }

    @Test
    void leadersFollowEachOther(TestInfo test) throws Exception {
        String name = test.getDisplayName();
        BlockingQueue<Optional<Leader>> seen = new LinkedBlockingQueue<>();
        try (Subscription observer = locks.observe(name, seen::add);
                TetherLocks others = withSession();
                Candidate one = locks.elect(name, "one")) {
            assertFalse(observer.ended().toCompletableFuture().isDone());
            while (next(seen)
                    .isEmpty()) {} // Nobody leads at first, if the observer is told before the
            // candidate stands.
            Hold term = one.awaitTerm();
            assertTrue(one.isLeading());
            BlockingQueue<Hold> terms = new LinkedBlockingQueue<>();
            try (Candidate two = others.elect(name, "two")) {
                two.onElected(terms::add);
                server.awaitCrowd(name, 1, 1);
                term.close();
                Hold theirs = next(terms);
                assertEquals(Optional.of(new Leader(theirs.token(), "two")), next(seen));
                assertEquals(theirs, two.awaitTerm());
                assertFalse(one.isLeading());
                server.awaitCrowd(name, 1, 1);
            }
            assertTrue(one.awaitTerm().token() > term.token());
        }
    }

    @Test
    void closingEndsACandidateThatMayNotResign(TestInfo test) throws Exception {
        server.ask("ACL", "SETUSER", "stuck", "on", ">pass", "~*", "&*", "+@all", "-deltp");
        String uri = "redis://stuck:pass@127.0.0.1:" + server.port;
        ExecutorService waiting = Executors.newSingleThreadExecutor();
        try (TetherLocks own = TetherLocks.builder(uri).grace(MINUTE).build()) {
            Candidate candidate = own.elect(test.getDisplayName(), "me");
            Hold term = candidate.awaitTerm();
            assertEquals("NOPERM", assertThrows(TetherException.class, term::close).code());
            var next = waiting.submit(candidate::awaitTerm);
            own.close();
            ExecutionException ended =
                    assertThrows(ExecutionException.class, () -> next.get(10, TimeUnit.SECONDS));
            assertEquals(Failure.CLOSED, ((TetherException) ended.getCause()).failure());
        } finally {
            waiting.shutdownNow();
        }
    }

    @Test
    void anObserverIsTold(TestInfo test) throws Exception {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        TetherObserver observer =
                new TetherObserver() {
                    @Override
                    public void connected(String place) {
                        told.add("connected " + place);
                    }

                    @Override
                    public void granted(List<String> keys, long token, Duration waited) {
                        told.add("granted " + keys);
                    }

                    @Override
                    public void refused(List<String> keys, Failure failure) {
                        told.add("refused " + failure);
                    }

                    @Override
                    public void released(List<String> keys, long token) {
                        told.add("released " + keys);
                    }
                };
        String key = test.getDisplayName();
        try (TetherLocks own = TetherLocks.builder(server.uri()).observer(observer).build()) {
            try (Hold hold = own.lock(key).acquire()) {
                assertThrows(TakenException.class, own.lock(key).noWait()::acquire);
                assertTrue(hold.isHeld());
            }
            assertEquals("connected 127.0.0.1:" + server.port, next(told));
            assertEquals("granted [" + key + "]", next(told));
            assertEquals("refused TAKEN", next(told));
            assertEquals("released [" + key + "]", next(told));
        }
    }

    @Test
    void anUnreachableServerIsAnError() {
        try (TetherLocks nowhere = TetherLocks.builder("redis://127.0.0.1:1").build()) {
            LockRequest lock = nowhere.lock("any");
            LockRequest waiting = lock.waitAtMost(Duration.ofMillis(50));
            for (LockRequest each : List.of(lock.noWait(), waiting)) {
                String said = assertThrows(UnreachableException.class, each::acquire).getMessage();
                assertTrue(said.contains("127.0.0.1:1: Connection refused"), said);
            }
        }
        IllegalArgumentException unread =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> TetherLocks.builder("redis://:secret word@host"));
        assertFalse(unread.getMessage().contains("secret"));
    }

    /** It would connect to another server than the one that is meant. */
    @Test
    void aUriIsReadOrRefused() {
        for (String uri :
                List.of(
                        "redis://redis_master:6379",
                        "redis://:sec/ret@host:6379",
                        "redis://me:6379/secret@host",
                        "redis://:secret@",
                        "redis:sec-ret:6379",
                        "redis:/3",
                        "rediss:sec-ret",
                        "unix://:secret@/socket",
                        "unix://sec/ret/socket",
                        "unix:ret/socket",
                        "unix://",
                        "unix:",
                        "unix:///socket?db=secret")) {
            IllegalArgumentException unread =
                    assertThrows(IllegalArgumentException.class, () -> Address.of(uri), uri);
            for (String named : List.of("redis_master", "sec", "ret")) {
                assertFalse(unread.toString().contains(named), unread.toString());
            }
        }
        assertEquals("localhost", Address.of("redis:///3").host());
        assertEquals(3, Address.of("redis:///3").database());
        assertEquals("/a/b", Address.of("unix:///a/b").path());
        assertEquals("/a/b", Address.of("unix:/a/b").path());
        assertEquals("/a/b", Address.of("unix://me:secret@localhost/a/b").path());
        assertEquals("::1", Address.of("redis://[::1]:1").host());
        assertEquals("s/e", Address.of("redis://:s%2Fe@host").password());
    }

    /**
     * No monitor is held while a thread waits: it would keep the few carrier threads, and nobody
     * could release.
     */
    @Test
    @EnabledForJreRange(min = JRE.JAVA_21)
    void virtualThreadsWait(TestInfo test) throws Exception {
        Object executor = Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        ExecutorService threads = assertInstanceOf(ExecutorService.class, executor);
        LockRequest request = locks.lock(test.getDisplayName());
        for (int count = 0; count < 500; count++) {
            threads.submit(
                    () -> {
                        try (Hold hold = request.acquire()) {
                            assertEquals(1, inside.incrementAndGet());
                            Thread.sleep(0, 1000);
                            hold.check();
                            inside.decrementAndGet();
                        }
                        return done.incrementAndGet();
                    });
        }
        threads.shutdown();
        assertTrue(threads.awaitTermination(4, TimeUnit.MINUTES));
        assertEquals(500, done.get());
    }
}
