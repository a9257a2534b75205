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
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Attempts to connect that fail, and what is told of them. The server is made up here. */
@Timeout(30)
class GreetingTest {
    private static final String FIT =
            "%3\r\n+role\r\n+master\r\n+pushes\r\n:1\r\n+peer-timeout-ms\r\n:8000\r\n";

    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
    private final BlockingQueue<List<?>> hellos = new LinkedBlockingQueue<>();
    private ServerSocket listener;

    private final TetherObserver observer =
            new TetherObserver() {
                @Override
                public void connected(String server) {
                    told.add("connected");
                }

                @Override
                public void disconnected(String why) {
                    told.add(why);
                }

                @Override
                public void granted(List<String> keys, long token, Duration waited) {
                    told.add("granted");
                }
            };

    /** {@code answer}: to LOCK.SERVER; empty: it ends the connection. */
    private String serve(String answer) throws IOException {
        listener = new ServerSocket(0, 9, InetAddress.getByName("127.0.0.1"));
        threads.execute(
                () -> {
                    try {
                        while (true) {
                            Socket socket = listener.accept();
                            threads.execute(() -> converse(socket, answer));
                        }
                    } catch (IOException closed) {
                        return;
                    }
                });
        return "redis://127.0.0.1:" + listener.getLocalPort();
    }

    private void converse(Socket socket, String answer) {
        try (socket) {
            Resp asked = new Resp(socket.getInputStream()::read);
            while (true) {
                List<?> words = (List<?>) asked.read();
                String reply =
                        switch ((String) words.get(0)) {
                            case "HELLO" -> {
                                hellos.add(words);
                                yield "%1\r\n+role\r\n+master\r\n";
                            }
                            case "LOCK.SERVER" -> answer;
                            case "LOCK.ACQUIRE" -> ":7\r\n";
                            default -> "+OK\r\n";
                        };
                if (reply.isEmpty()) {
                    return;
                }
                socket.getOutputStream().write(reply.getBytes(StandardCharsets.US_ASCII));
            }
        } catch (IOException over) {
            return;
        }
    }

    @AfterEach
    void stop() throws IOException {
        if (listener != null) {
            listener.close();
        }
        threads.shutdownNow();
    }

    private String next() throws InterruptedException {
        String next = told.poll(10, TimeUnit.SECONDS);
        assertNotNull(next, "nothing was told");
        return next;
    }

    /** What makes a server of no use that HELLO does not say. */
    private enum Unfit {
        HAS_NO_MODULE("-ERR unknown command 'LOCK.SERVER'\r\n"),
        REFUSES("-NOPERM no\r\n"),
        LOADS("-LOADING not yet\r\n"),
        IS_A_REPLICA("%1\r\n+role\r\n+slave\r\n"),
        SENDS_NO_PUSHES("%2\r\n+role\r\n+master\r\n+pushes\r\n:0\r\n"),
        HAS_NO_TIME(FIT.replace("8000", "100")),
        ENDS("");

        final String answer;

        Unfit(String answer) {
            this.answer = answer;
        }
    }

    @ParameterizedTest
    @EnumSource
    void aServerOfNoUseIsNeverConnected(Unfit unfit) throws Exception {
        try (TetherLocks locks =
                TetherLocks.builder(serve(unfit.answer)).observer(observer).build()) {
            ExecutionException failed =
                    assertThrows(
                            ExecutionException.class,
                            () -> locks.lock("k").noWait().acquireAsync().get());
            assertEquals(failed.getCause().getMessage(), next());
        }
        for (String later : told) { // Of one that may be of use soon.
            assertFalse(List.of("connected", "ended").contains(later), told::toString);
        }
    }

    @Test
    void aServerOfUseIsConnectedBeforeItGrants() throws Exception {
        try (TetherLocks locks = TetherLocks.builder(serve(FIT)).observer(observer).build()) {
            locks.lock("k").acquire();
            assertEquals("connected", next());
            assertEquals("granted", next());
        }
        assertEquals("ended", next());
    }

    @Test
    void credentialsAreOfAllServers() throws Exception {
        String closed;
        try (ServerSocket nobody = new ServerSocket(0)) {
            closed = "redis://127.0.0.1:" + nobody.getLocalPort();
        }
        String other = serve(FIT);
        for (TetherLocksBuilder builder :
                List.of(
                        TetherLocks.builder(closed).others(other).credentials("me", "secret"),
                        TetherLocks.builder(closed).credentials("me", "secret").others(other))) {
            try (TetherLocks locks = builder.build()) {
                locks.lock("k").acquire();
                assertEquals(List.of("HELLO", "3", "AUTH", "me", "secret"), hellos.take());
            }
        }
    }

    /** As where a class is missing, or the memory is for a moment. */
    @Test
    void anErrorIsOneAttemptThatFails() throws Exception {
        Address address = Address.of(serve(FIT));
        AtomicInteger attempts = new AtomicInteger();
        assertConnects(
                (within, slot) -> {
                    if (attempts.incrementAndGet() == 1) {
                        throw new NoClassDefFoundError("so the test");
                    }
                    return List.of(address);
                },
                Thread::new);
        assertEquals(2, attempts.get());
    }

    /** Of the threads of a connection, there is no memory for one. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void soIsAThreadThatCannotBegin(int which) throws Exception {
        Address address = Address.of(serve(FIT));
        AtomicInteger begun = new AtomicInteger();
        assertConnects(
                (within, slot) -> List.of(address),
                run ->
                        new Thread(run) {
                            @Override
                            public void start() {
                                if (begun.incrementAndGet() == which) {
                                    throw new OutOfMemoryError("unable to create native thread");
                                }
                                super.start();
                            }
                        });
        assertEquals(which + 2, begun.get());
    }

    private void assertConnects(Node.Addresses addresses, ThreadFactory connections)
            throws Exception {
        ClientContext context = new ClientContext(Clock.SYSTEM, threads, observer);
        Settings settings = new Settings(null, 0, null, false, Settings.BootClock.NONE, () -> 0);
        Greeter greeter = new Greeter("test", null, true);
        Cluster cluster = new Cluster(context, settings, addresses, greeter, connections);
        Ticket ticket = new Ticket(context, cluster, new Ask(List.of("k")));
        ticket.begin();
        ticket.granted.get(10, TimeUnit.SECONDS);
        assertEquals(Problem.UNREACHABLE.text(), next());
        assertEquals("connected", next());
        assertEquals("granted", next());
        cluster.close().get(10, TimeUnit.SECONDS);
    }
}
