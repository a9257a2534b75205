package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * What the tests of Curator's recipes ask for, asked of this client. The table in coming-from.md
 * names the test for each of them.
 */
@Timeout(300)
class RecipesTest {
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private TestServer server;
    private TetherLocks locks;
    private TetherLocks others;

    @BeforeEach
    void start() throws Exception {
        server = TestServer.start();
        locks = TetherLocks.builder(server.uri()).name("one").build();
        others = TetherLocks.builder(server.uri()).name("other").build();
    }

    @AfterEach
    void stop() {
        threads.shutdownNow();
        others.close();
        locks.close();
        server.close();
    }

    private <T> T elsewhere(Callable<T> action) throws Exception {
        return threads.submit(action).get();
    }

    private static LockRequest atOnce(LockRequest request) {
        return request.noWait();
    }

    private void killConnections(String name) {
        for (String line : ((String) server.ask("CLIENT", "LIST")).split("\n")) {
            Matcher id = Pattern.compile("^\\S*?id=(\\d+) .* name=" + name + " ").matcher(line);
            if (id.find()) {
                server.ask("CLIENT", "KILL", "ID", id.group(1));
            }
        }
    }

    // ---- mutex ----

    @Test
    void ofManyThreadsOneIsInside() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        List<Future<Integer>> all = new ArrayList<>();
        for (int thread = 0; thread < 5; thread++) {
            Lock lock = (thread % 2 == 0 ? locks : others).asLock("k");
            all.add(
                    threads.submit(
                            () -> {
                                int others = 0;
                                for (int count = 0; count < 20; count++) {
                                    lock.lock();
                                    others += inside.getAndIncrement();
                                    inside.decrementAndGet();
                                    lock.unlock();
                                }
                                return others;
                            }));
        }
        for (Future<Integer> each : all) {
            assertEquals(0, each.get());
        }
    }

    @Test
    void aWaiterOutlivesARestart() throws Exception {
        Hold hold = locks.lock("k").acquire();
        Future<Hold> waiter = threads.submit(() -> others.lock("k").acquire());
        server.awaitCrowd("k", 1, 1);
        server.kill();
        server.startAgain();
        Hold next = waiter.get();
        assertTrue(next.isHeld());
        assertFalse(hold.isHeld());
        assertTrue(next.token() > hold.token());
    }

    @Test
    void aKilledConnectionFreesTheLock() throws Exception {
        Hold hold = locks.lock("k").acquire();
        Future<Hold> waiter = threads.submit(() -> others.lock("k").acquire());
        server.awaitCrowd("k", 1, 1);
        killConnections("one");
        assertTrue(waiter.get().isHeld());
        TestServer.eventually("the loss is told", () -> !hold.isHeld());
        assertThrows(LostException.class, hold::close);
    }

    @Test
    void ofALockNothingIsLeft() throws Exception {
        locks.lock("k").acquire().close();
        assertEquals(0L, server.ask("EXISTS", "k"));
    }

    @Test
    void aThreadTakesItAgain() throws Exception {
        Lock lock = locks.asLock("k");
        lock.lock();
        assertTrue(lock.tryLock());
        assertFalse(elsewhere(() -> lock.tryLock()), "another thread of the program");
        lock.unlock();
        assertFalse(elsewhere(() -> lock.tryLock()), "it is held once still");
        lock.unlock();
        assertTrue(
                elsewhere(
                        () -> {
                            boolean isTaken = lock.tryLock() && lock.tryLock();
                            lock.unlock();
                            lock.unlock();
                            return isTaken;
                        }));
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void twoClientsTakeTurns() throws Exception {
        Hold one = locks.lock("k").acquire();
        Future<Hold> two = threads.submit(() -> others.lock("k").acquire());
        server.awaitCrowd("k", 1, 1);
        assertFalse(two.isDone());
        one.close();
        two.get().close();
    }

    @Test
    void aHolderHearsOfADeletion() throws Exception {
        Hold hold = locks.lock("k").acquire();
        BlockingQueue<String> lost = new LinkedBlockingQueue<>();
        hold.onLost(lost::add);
        server.ask("DEL", "k");
        assertEquals("deleted", lost.poll(60, TimeUnit.SECONDS));
    }

    // ---- several at once ----

    @Test
    void severalAreTakenInOneStep() throws Exception {
        try (Hold taken = others.lock("b").acquire()) {
            assertTrue(atOnce(locks.all("a", "b")).tryAcquire().isEmpty());
            assertEquals(List.of(0, 0), server.crowd("a"));
            assertTrue(taken.isHeld());
        }
        Hold both = locks.all("a", "b").acquire();
        server.ask("DEL", "b");
        TestServer.eventually("one is lost, so all", () -> !both.isHeld());
        assertThrows(LostException.class, both::close);
        server.awaitCrowd("a", 0, 0);
    }

    // ---- read and write ----

    @Test
    void readersShareAndAWriterIsAlone() throws Exception {
        ReadWriteLock lock = locks.asReadWriteLock("k");
        lock.readLock().lock();
        ReadWriteLock other = others.asReadWriteLock("k");
        assertFalse(elsewhere(() -> other.writeLock().tryLock()));
        assertTrue(
                elsewhere(
                        () -> {
                            boolean isTaken = other.readLock().tryLock();
                            other.readLock().unlock();
                            return isTaken;
                        }));
        lock.readLock().unlock();
        lock.writeLock().lock();
        assertFalse(elsewhere(() -> other.readLock().tryLock()));
        lock.writeLock().unlock();
    }

    @Test
    void upAndDownThereIsNoWay() throws Exception {
        ReadWriteLock lock = locks.asReadWriteLock("k");
        lock.readLock().lock();
        assertFalse(lock.writeLock().tryLock());
        assertThrows(DeadlockException.class, lock.writeLock()::lock);
        lock.readLock().unlock();
        lock.writeLock().lock();
        assertFalse(lock.readLock().tryLock());
        assertThrows(DeadlockException.class, lock.readLock()::lock);
        lock.writeLock().unlock();
        assertEquals(List.of(0, 0), server.crowd("k"));
    }

    @Test
    void theServerNamesHoldersAndWaiters() throws Exception {
        try (Hold one = locks.lock("k").shared().acquire();
                Hold two = others.lock("k").shared().acquire()) {
            Future<Hold> writer = threads.submit(() -> others.lock("k").acquire());
            server.awaitCrowd("k", 2, 1);
            assertFalse(writer.isDone());
            assertNotEquals(one.token(), two.token());
            writer.cancel(true);
            server.awaitCrowd("k", 2, 0);
        }
    }

    // ---- semaphores ----

    @Test
    void permitsAreTakenAndComeBackOneByOne() throws Exception {
        List<Hold> holds = new ArrayList<>();
        for (int count = 0; count < 3; count++) {
            holds.add(atOnce(locks.semaphore("k", 3)).acquire());
        }
        for (Hold each : holds) {
            assertTrue(atOnce(others.semaphore("k", 3)).tryAcquire().isEmpty());
            each.close();
            holds.set(holds.indexOf(each), atOnce(others.semaphore("k", 3)).acquire());
        }
        for (Hold each : holds) {
            each.close();
        }
        assertEquals(List.of(0, 0), server.crowd("k"));
    }

    @Test
    void permitsAreTakenInChunks() throws Exception {
        try (Hold five = locks.semaphore("k", 5, 11).acquire();
                Hold four = others.semaphore("k", 4, 11).acquire()) {
            assertTrue(atOnce(locks.semaphore("k", 3, 11)).tryAcquire().isEmpty());
            atOnce(locks.semaphore("k", 2, 11)).acquire().close();
            assertTrue(five.isHeld() && four.isHeld());
        }
    }

    @Test
    void neverMoreThanThePermitsAreInside() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Future<?>> all = new ArrayList<>();
        for (int thread = 0; thread < 8; thread++) {
            LockRequest permit = (thread % 2 == 0 ? locks : others).semaphore("k", 3);
            all.add(
                    threads.submit(
                            () -> {
                                for (int count = 0; count < 20; count++) {
                                    try (Hold hold = permit.acquire()) {
                                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                                        hold.check();
                                        inside.decrementAndGet();
                                    }
                                }
                                return null;
                            }));
        }
        for (Future<?> each : all) {
            each.get();
        }
        assertTrue(most.get() <= 3, most + " at once");
    }

    @Test
    void aClosedClientGivesItsPermitsBack() throws Exception {
        locks.semaphore("k", 2, 2).acquire();
        Future<Hold> waiter = threads.submit(() -> others.semaphore("k", 2).acquire());
        server.awaitCrowd("k", 1, 1);
        locks.close();
        assertTrue(waiter.get().isHeld());
    }

    @Test
    void whoeverGivesUpLeavesNoPlace() throws Exception {
        try (Hold taken = locks.semaphore("k", 1).acquire()) {
            assertTrue(
                    others.semaphore("k", 1)
                            .waitAtMost(Duration.ofMillis(50))
                            .tryAcquire()
                            .isEmpty());
            assertEquals(List.of(1, 0), server.crowd("k"));
            assertTrue(taken.isHeld());
        }
    }

    @Test
    void anInterruptedWaiterLeavesNoPlace() throws Exception {
        try (Hold taken = locks.semaphore("k", 1).acquire()) {
            Future<Hold> waiter = threads.submit(() -> others.semaphore("k", 1).acquire());
            server.awaitCrowd("k", 1, 1);
            waiter.cancel(true);
            server.awaitCrowd("k", 1, 0);
            assertTrue(taken.isHeld());
        }
    }

    @Test
    void allSayTheSameTotal() throws Exception {
        try (Hold one = locks.semaphore("k", 3).acquire()) {
            assertThrows(TetherException.class, () -> atOnce(others.semaphore("k", 4)).acquire());
            assertTrue(one.isHeld());
        }
        others.semaphore("k", 4).acquire().close();
    }

    // ---- leaders ----

    @Test
    void candidatesLeadOneAfterTheOther() throws Exception {
        List<TetherLocks> clients = new ArrayList<>();
        List<Candidate> candidates = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            clients.add(TetherLocks.builder(server.uri()).build());
            candidates.add(clients.get(number).elect("k", Integer.toString(number)));
        }
        server.awaitCrowd("k", 1, 4);
        Set<Candidate> led = new HashSet<>();
        while (!candidates.isEmpty()) {
            TestServer.eventually(
                    "one leads", () -> candidates.stream().anyMatch(Candidate::isLeading));
            List<Candidate> leading = candidates.stream().filter(Candidate::isLeading).toList();
            assertEquals(1, leading.size());
            leading.get(0).close();
            led.add(leading.get(0));
            candidates.removeAll(leading);
        }
        assertEquals(5, led.size());
        clients.forEach(TetherLocks::close);
    }

    @Test
    void nobodyLeadsUntilSomebodyStands() throws Exception {
        BlockingQueue<Optional<Leader>> leaders = new LinkedBlockingQueue<>();
        try (Subscription observer = others.observe("k", leaders::add)) {
            assertEquals(Optional.empty(), leaders.poll(60, TimeUnit.SECONDS));
            try (Candidate candidate = locks.elect("k", "me")) {
                assertTrue(candidate.awaitTerm().isHeld());
                assertEquals(
                        "me", leaders.poll(60, TimeUnit.SECONDS).map(Leader::value).orElseThrow());
            }
            assertEquals(Optional.empty(), leaders.poll(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void aDeletedTermIsLostAndTheNextOneBegins() throws Exception {
        try (Candidate candidate = locks.elect("k", "me")) {
            Hold first = candidate.awaitTerm();
            BlockingQueue<String> lost = new LinkedBlockingQueue<>();
            first.onLost(lost::add);
            server.ask("DEL", "k");
            assertEquals("deleted", lost.poll(60, TimeUnit.SECONDS));
            Hold second = candidate.awaitTerm();
            assertTrue(second.token() > first.token());
        }
    }

    @Test
    void aBrokenConnectionEndsATermWithoutASession() throws Exception {
        try (Candidate candidate = locks.elect("k", "me")) {
            Hold term = candidate.awaitTerm();
            Candidate other = others.elect("k", "other");
            server.awaitCrowd("k", 1, 1);
            killConnections("one");
            assertTrue(other.awaitTerm().isHeld());
            TestServer.eventually("the loss is told", () -> !term.isHeld());
            assertFalse(candidate.isLeading());
            other.close();
            assertTrue(candidate.awaitTerm().isHeld(), "it stands again");
        }
    }

    @Test
    void aSessionOutlivesABrokenConnection() throws Exception {
        try (TetherLocks lasting =
                        TetherLocks.builder(server.uri())
                                .name("lasting")
                                .grace(Duration.ofMinutes(1))
                                .build();
                Candidate candidate = lasting.elect("k", "me")) {
            Hold term = candidate.awaitTerm();
            killConnections("lasting");
            term.checkServer();
            assertTrue(candidate.isLeading());
        }
    }

    @Test
    void aCandidateWaitsForAServer() throws Exception {
        server.kill();
        Candidate early = locks.elect("k", "me");
        assertFalse(early.isLeading());
        early.close();
        Candidate candidate = locks.elect("k", "me");
        server.startAgain();
        assertTrue(candidate.awaitTerm().isHeld());
        candidate.close();
    }

    @Test
    void oneWhoClosesIsToldNothing() throws Exception {
        List<String> told = new ArrayList<>();
        Candidate candidate = locks.elect("k", "me");
        Hold term = candidate.awaitTerm();
        term.onLost(told::add, Runnable::run);
        candidate.close();
        server.awaitCrowd("k", 0, 0);
        assertEquals(List.of(), told);
        assertThrows(TetherException.class, candidate::awaitTerm);
        Candidate other = others.elect("k", "other");
        other.awaitTerm();
        others.close();
        assertThrows(TetherException.class, other::awaitTerm);
    }

    // ---- members ----

    @Test
    void membersComeAndGo() throws Exception {
        Map<String, String> members = new ConcurrentHashMap<>();
        try (Subscription presence =
                others.presence(
                        "group:",
                        event -> {
                            if (event.kind() == MemberEvent.Kind.REMOVED) {
                                members.remove(event.key());
                            } else {
                                members.put(event.key(), event.value());
                            }
                        })) {
            Hold one = locks.temporaryKey("group:1", "a").acquire();
            Hold two = others.temporaryKey("group:2", "b").acquire();
            TestServer.eventually(
                    "both are there", () -> members.equals(Map.of("group:1", "a", "group:2", "b")));
            one.close();
            TestServer.eventually("one went", () -> members.equals(Map.of("group:2", "b")));
            two.close();
        }
    }

    // ---- the table ----

    @Test
    void theTableNamesTheseTests() throws Exception {
        String page = Files.readString(Path.of("..", "coming-from.md"));
        String table = page.substring(page.indexOf("## Curator's tests"));
        Set<String> named = new HashSet<>();
        Pattern.compile("`([a-z]\\w+)`\\s*\\|$", Pattern.MULTILINE)
                .matcher(table)
                .results()
                .forEach(found -> named.add(found.group(1)));
        Set<String> here = new HashSet<>();
        for (var method : RecipesTest.class.getDeclaredMethods()) {
            if (method.isAnnotationPresent(Test.class)) {
                here.add(method.getName());
            }
        }
        here.remove("theTableNamesTheseTests");
        assertEquals(here, named);
    }
}
