package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What happens together in the loop's thread. The server's answers are made up here. */
@Timeout(60)
class NodeTest {
    private static final String KEY = "{p}";

    /** A page of a snapshot with the key alone. */
    private static final String LED = "*2\r\n+\r\n*1\r\n*3\r\n+{p}\r\n:7\r\n+v\r\n";

    /** Before an answer: it comes after longer than what moves needs to settle. */
    private static final String PAUSE = "~";

    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final AtomicInteger attempts = new AtomicInteger();
    private final CountDownLatch isRefused = new CountDownLatch(1);
    private final ClientContext context = new ClientContext(Clock.SYSTEM, threads, null);
    private final Cluster cluster;

    NodeTest() {
        cluster = new Cluster(context, settings(), this::find, null);
    }

    private static Settings settings() {
        return new Settings(9000.0, 0, null, false, Settings.BootClock.NONE, () -> 0);
    }

    @AfterEach
    void stop() {
        cluster.loop.end();
        threads.shutdownNow();
    }

    /** The first attempt fails when the test says so, and further ones take for ever. */
    private List<Address> find(double within, int slot) throws Greeter.RefusedException {
        if (attempts.incrementAndGet() > 1) {
            await(new CountDownLatch(1));
        }
        await(isRefused);
        throw new Greeter.RefusedException(Problem.UNREACHABLE);
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    private interface Step {
        void of(Node node);
    }

    private void inLoop(Step step) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        cluster.loop.post(
                () -> {
                    step.of(cluster.node(List.of("k")));
                    done.complete(null);
                });
        done.get();
    }

    private static void connect(Node node) {
        node.act(core -> core.link.connected(false));
        for (Object frame : List.of(Map.of("role", "master", "pushes", 1L), "secret")) {
            node.act(core -> core.link.received(frame));
        }
    }

    private void receive(Object frame) throws Exception {
        inLoop(node -> node.act(core -> core.link.received(frame)));
    }

    private static Ask election(String key) {
        Ask ask = new Ask(List.of(key));
        ask.temporary = "me";
        ask.isElection = true;
        return ask;
    }

    /** What a term that was lost is asked for late is not done to the next one. */
    @Test
    void aLateReleaseIsOfItsTerm() throws Exception {
        Candidate candidate = new Candidate(context, cluster, election("k"));
        inLoop(NodeTest::connect);
        receive(7L);
        Hold term = candidate.awaitTerm();
        inLoop(
                node -> {
                    term.release(); // Which follows in the loop.
                    Push lost = new Push(List.of("settp", "k", "LOST deleted"));
                    node.act(core -> core.link.received(lost));
                });
        receive(9L);
        assertEquals(9, candidate.awaitTerm().token());
    }

    /** What a candidate has behind it that is closed. */
    private enum Stood {
        UNANSWERED,
        IN_THE_QUEUE(0L),
        RESIGNS(7L),
        IS_NOT_LET_RESIGN(7L, new ServerError("NOREPLICAS no")),
        RESIGNS_WHAT_IS_LOST(7L, new Push(List.of("settp", "k", "LOST deleted")));

        final List<Object> frames;

        Stood(Object... frames) {
            this.frames = List.of(frames);
        }
    }

    @ParameterizedTest
    @EnumSource
    void nobodyWaitsForACandidateThatIsClosed(Stood stood) throws Exception {
        Candidate candidate = assertNobodyWaits(stood, Candidate::close);
        candidate.ended().toCompletableFuture().get(10, TimeUnit.SECONDS);
    }

    /** P-CLOSE-1. */
    @ParameterizedTest
    @EnumSource
    void nobodyWaitsForACandidateOfAClosedClient(Stood stood) throws Exception {
        Candidate candidate = assertNobodyWaits(stood, closed -> cluster.close());
        assertClosed(candidate.ended());
    }

    /** Neither who waits when it is closed in this way nor who asks later. */
    private Candidate assertNobodyWaits(Stood stood, Consumer<Candidate> close) throws Exception {
        Candidate candidate = new Candidate(context, cluster, election("k"));
        CompletableFuture<Hold> term = awaitTerm(candidate, stood);
        close.accept(candidate);
        assertClosed(term);
        assertClosed(candidate.nextTerm());
        return candidate;
    }

    /** A term is over by then. */
    @Test
    void aCandidateThatIsRefusedSaysSo() throws Exception {
        Candidate candidate = new Candidate(context, cluster, election("k"));
        inLoop(NodeTest::connect);
        receive(7L);
        Hold term = candidate.awaitTerm();
        receive(new Push(List.of("settp", "k", "LOST deleted")));
        assertFalse(candidate.ended().toCompletableFuture().isDone());
        receive(new ServerError("NOPERM no"));
        assertFalse(term.isHeld());
        assertEnds("NOPERM", candidate.ended());
        assertEnds("NOPERM", candidate.nextTerm());
    }

    /** Begins to wait in a thread once the candidate has got so far. */
    private CompletableFuture<Hold> awaitTerm(Candidate candidate, Stood stood) throws Exception {
        inLoop(NodeTest::connect);
        for (Object frame : stood.frames) {
            receive(frame);
            if (frame.equals(7L)) {
                candidate.awaitTerm().release();
            }
        }
        CompletableFuture<Hold> term = new CompletableFuture<>();
        Thread waiter =
                new Thread(
                        () -> {
                            try {
                                term.complete(candidate.awaitTerm());
                            } catch (InterruptedException | TetherException error) {
                                term.completeExceptionally(error);
                            }
                        });
        waiter.setDaemon(true);
        waiter.start();
        TestServer.eventually("it waits", () -> waiter.getState() == Thread.State.WAITING);
        return term;
    }

    private static void assertClosed(CompletionStage<?> stage) {
        assertEnds("CLOSED", stage);
    }

    private static void assertEnds(String code, CompletionStage<?> stage) {
        ExecutionException ended =
                assertThrows(
                        ExecutionException.class,
                        () -> stage.toCompletableFuture().get(10, TimeUnit.SECONDS));
        assertEquals(code, ((TetherException) ended.getCause()).code());
    }

    /** P-GUARD-2: what was asked before a call says nothing of the moment of that call. */
    @Test
    void eachCheckHasAnAnswerOfItsOwn() throws Exception {
        Ticket ticket = new Ticket(context, cluster, new Ask(List.of("k")));
        ticket.begin();
        inLoop(NodeTest::connect);
        receive(7L);
        Hold hold = ticket.granted.get();
        CompletableFuture<Void> first = hold.checkServerAsync().toCompletableFuture();
        CompletableFuture<Void> second = hold.checkServerAsync().toCompletableFuture();
        receive(new ServerError("BUSY not now"));
        assertThrows(ExecutionException.class, () -> first.get(10, TimeUnit.SECONDS));
        assertFalse(second.isDone());
        receive(1L);
        second.get(10, TimeUnit.SECONDS);
    }

    /** P-LEASE-1. */
    @Test
    void anExtensionEndsWithTheReleaseOfItsHold() throws Exception {
        Ticket ticket = new Ticket(context, cluster, new Ask(List.of("k")));
        ticket.begin();
        inLoop(NodeTest::connect);
        receive(7L);
        Hold hold = ticket.granted.get();
        CompletionStage<Void> extended = hold.extendAsync(Duration.ofSeconds(1));
        CompletionStage<Void> released = hold.releaseAsync();
        assertEnds("released", extended);
        receive(1L);
        receive(0L);
        released.toCompletableFuture().get(10, TimeUnit.SECONDS);
    }

    /** The fence ends, which leaves that attempt for another one, in the step of its failure. */
    @Test
    void anAttemptThatFailsAsItIsLeftIsNotFollowedByTwo() throws Exception {
        Loop none = new Loop("none"); // What is posted is run at once.
        none.end();
        Node node =
                new Node(
                        none,
                        Clock.SYSTEM,
                        settings(),
                        this::find,
                        null,
                        Thread::new,
                        new Nobody());
        node.act(core -> core.acquire("a", new Ask(List.of("k"))));
        node.core.link.secret = "secret";
        node.core.link.fence = new Link.Fence(node.core.now, 1000, null);
        Thread.sleep(1100); // After a sound time, the next attempt is made at once (P-RETRY-2).
        isRefused.countDown();
        TestServer.eventually("another attempt", () -> attempts.get() > 1);
        Thread.sleep(100);
        node.tick();
        Thread.sleep(100);
        assertEquals(2, attempts.get());
    }

    /** P-CLUSTER-7: who has left meanwhile is known by what was told at the former node. */
    @Test
    void aPresenceThatMovesTellsWhoHasLeft() throws Exception {
        BlockingQueue<MemberEvent> events = new LinkedBlockingQueue<>();
        String two = "*2\r\n+\r\n*2\r\n*3\r\n+{p}a\r\n:1\r\n+v\r\n*3\r\n+{p}b\r\n:2\r\n+v\r\n";
        String end = ">3\r\n+watchtp\r\n+{p}\r\n+END moved\r\n";
        String one = "*2\r\n+\r\n*1\r\n*3\r\n+{p}b\r\n:2\r\n+v\r\n";
        ServerSocket high = serve(queue(one));
        ServerSocket low = serve(queue(two + end, movedTo(high)));
        Cluster both = clusterAt(low);
        try (high;
                low;
                Subscription presence =
                        new Watcher.OfPrefix(context, both, "{p}", events::add).begin()) {
            List<String> heard = new ArrayList<>();
            while (heard.size() < 3) {
                MemberEvent event = events.poll(30, TimeUnit.SECONDS);
                assertNotNull(event, () -> "only " + heard);
                heard.add(event.kind() + " " + event.key());
            }
            assertEquals(List.of("ADDED {p}a", "ADDED {p}b", "REMOVED {p}a"), heard);
            assertFalse(presence.ended().toCompletableFuture().isDone());
        }
        both.close().get();
    }

    /** What has no time to wait. */
    private enum Lasting {
        WATCH("+EXIST\r\n"),
        PRESENCE(LED),
        OBSERVER(LED),
        CANDIDATE(":7\r\n");

        /** The answer of a node that has it. */
        final String found;

        Lasting(String found) {
            this.found = found;
        }

        /** Completes with what is told first, or with what ends it. */
        CompletableFuture<Object> begin(ClientContext context, Cluster cluster) {
            CompletableFuture<Object> told = new CompletableFuture<>();
            CompletionStage<?> end =
                    switch (this) {
                        case WATCH ->
                                new Watcher.OfKeys(context, cluster, List.of(KEY), told::complete)
                                        .begin()
                                        .ended();
                        case PRESENCE ->
                                new Watcher.OfPrefix(context, cluster, KEY, told::complete)
                                        .begin()
                                        .ended();
                        case OBSERVER ->
                                new Watcher.OfElection(context, cluster, KEY, told::complete)
                                        .begin()
                                        .ended();
                        case CANDIDATE -> new Candidate(context, cluster, election(KEY)).nextTerm();
                    };
            end.whenComplete(
                    (value, error) -> {
                        if (error == null) {
                            told.complete(value);
                        } else {
                            told.completeExceptionally(error);
                        }
                    });
            return told;
        }
    }

    /** P-CLUSTER-7, P-ELECT-2: the next slot that moves, or the next time that it does. */
    @ParameterizedTest
    @EnumSource
    void whatLastsFollowsHoweverOftenItsSlotMoves(Lasting lasting) throws Exception {
        assertNotNull(moved(lasting, Cluster.MOST_REDIRECTIONS));
    }

    /** P-CLUSTER-3: these nodes would send it to and fro for ever. */
    @ParameterizedTest
    @EnumSource
    void whatLastsIsNotSentToAndFro(Lasting lasting) {
        ExecutionException ended =
                assertThrows(ExecutionException.class, () -> moved(lasting, 100));
        assertEquals("MOVED", ((TetherException) ended.getCause()).code());
    }

    /** What it tells once it was moved so often, and a last time after a pause. */
    private Object moved(Lasting lasting, int often) throws Exception {
        Queue<String> answers = queue();
        ServerSocket low = serve(answers);
        ServerSocket high = serve(answers);
        for (int move = 0; move < often; move++) {
            answers.add(movedTo(move % 2 == 0 ? high : low));
        }
        answers.add(PAUSE + movedTo(often % 2 == 0 ? high : low));
        answers.add(lasting.found);
        Cluster both = clusterAt(low);
        try (low;
                high) {
            return lasting.begin(context, both).get(30, TimeUnit.SECONDS);
        } finally {
            both.close().get();
        }
    }

    private static Queue<String> queue(String... answers) {
        return new ConcurrentLinkedQueue<>(List.of(answers));
    }

    private static String movedTo(ServerSocket server) {
        return "-MOVED 1 127.0.0.1:" + server.getLocalPort() + "\r\n";
    }

    private Cluster clusterAt(ServerSocket server) {
        Address first = Address.of("redis://127.0.0.1:" + server.getLocalPort());
        Settings settings = new Settings(null, 0, null, true, Settings.BootClock.NONE, () -> 0);
        Greeter greeter = new Greeter("test", null, true);
        return new Cluster(context, settings, (within, slot) -> List.of(first), greeter);
    }

    /** A server that gives these answers to requests and watches, one after the other. */
    private ServerSocket serve(Queue<String> answers) throws IOException {
        ServerSocket server = new ServerSocket(0, 9, InetAddress.getByName("127.0.0.1"));
        threads.execute(
                () -> {
                    try {
                        while (true) {
                            Socket socket = server.accept();
                            threads.execute(() -> answer(socket, answers));
                        }
                    } catch (IOException closed) {
                        return;
                    }
                });
        return server;
    }

    private static void answer(Socket socket, Queue<String> answers) {
        try (socket) {
            Resp asked = new Resp(socket.getInputStream()::read);
            while (true) {
                String reply =
                        switch ((String) ((List<?>) asked.read()).get(0)) {
                            case "HELLO" -> "%1\r\n+role\r\n+master\r\n";
                            case "LOCK.SERVER" ->
                                    "%3\r\n+role\r\n+master\r\n+pushes\r\n:1\r\n+peer-timeout-ms\r\n:8000\r\n";
                            case "WATCHTP", "WATCHEX", "SETTP" -> answers.remove();
                            case "CLUSTER" -> "-ERR it does not say\r\n";
                            default -> "+OK\r\n";
                        };
                if (reply.startsWith(PAUSE)) {
                    Thread.sleep(1100);
                    reply = reply.substring(PAUSE.length());
                }
                socket.getOutputStream().write(reply.getBytes(StandardCharsets.US_ASCII));
            }
        } catch (IOException | InterruptedException over) {
            return;
        }
    }

    private static final class Nobody implements Node.Listener {
        @Override
        public void connected(Address address) {}

        @Override
        public void disconnected(Problem problem) {}

        @Override
        public void whenTold(Runnable action) {}

        @Override
        public void over() {}

        @Override
        public void event(Event event) {}
    }
}
