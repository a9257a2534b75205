package tether.locks;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * {@code tether devserver}, for the tests of programs that use locks: the module's engine in one
 * process, without a Redis. It listens on a free port of 127.0.0.1 and keeps nothing.
 *
 * <pre>{@code
 * try (TetherDevServer server = TetherDevServer.start();
 *         TetherLocks locks = TetherLocks.builder(server.uri()).build();
 *         Hold hold = locks.lock("report").acquire()) {
 *     server.dev("LOSE", "report");
 *     // the hold is lost: what does the program do now?
 * }
 * }</pre>
 *
 * <p>The command {@code tether} is the one that the variable TETHER_PROGRAM names, or that of PATH.
 */
public final class TetherDevServer implements AutoCloseable {
    private static final String READY = "ready on port ";
    private static final Duration READY_WITHIN = Duration.ofSeconds(10);
    private static final int CONNECT_WITHIN_MS = 10_000;

    private final Process process;
    private final Thread atExit;
    private final int port;

    private TetherDevServer(Process process, Thread atExit, int port) {
        this.process = process;
        this.atExit = atExit;
        this.port = port;
    }

    /**
     * Starts one, and waits until it listens.
     *
     * @param options of {@code tether devserver}, such as {@code "--peer-timeout", "2s"}
     * @return close it at the end of the test; otherwise it ends with this JVM
     * @throws IOException the command is not there, or it did not start
     */
    public static TetherDevServer start(String... options) throws IOException {
        String named = System.getenv("TETHER_PROGRAM");
        return start(named == null || named.isEmpty() ? "tether" : named, READY_WITHIN, options);
    }

    static TetherDevServer start(String program, Duration within, String... options)
            throws IOException {
        List<String> words = new ArrayList<>(List.of(program, "devserver", "--port", "0"));
        words.addAll(List.of(options));
        Process process;
        try {
            process =
                    new ProcessBuilder(words)
                            .redirectError(ProcessBuilder.Redirect.INHERIT)
                            .start();
        } catch (IOException error) {
            String text = "; put tether on PATH, or set TETHER_PROGRAM to its path";
            throw new IOException(error.getMessage() + text, error);
        }
        Thread atExit = new Thread(process::destroyForcibly);
        Runtime.getRuntime().addShutdownHook(atExit);
        String line =
                CompletableFuture.supplyAsync(
                                () -> firstLine(process), TetherDevServer::runInADaemon)
                        .completeOnTimeout(
                                "nothing for " + within.toMillis() + " ms",
                                within.toMillis(),
                                TimeUnit.MILLISECONDS)
                        .join();
        if (line == null || !line.startsWith(READY)) {
            end(process, atExit);
            throw new IOException(words + " said " + line);
        }
        int port = Integer.parseInt(line.substring(READY.length()).strip());
        return new TetherDevServer(process, atExit, port);
    }

    /**
     * Where it is.
     *
     * @return for {@link TetherLocks#builder}
     */
    public String uri() {
        return "redis://127.0.0.1:" + port;
    }

    /**
     * Its port on 127.0.0.1.
     *
     * @return a number
     */
    public int port() {
        return port;
    }

    /**
     * Pulls a lever, which brings about what is hard to bring about on a server: {@code "LOSE",
     * key} ({@code DEL} of the key), {@code "SILENT", ms} (no answers for so long), {@code "DROP"}
     * (all connections break), {@code "REFUSE", code}, {@code "ACCEPT"}, {@code "ADVANCE", ms} (its
     * clock goes forward), {@code "DEMOTE"}, {@code "PROMOTE"}.
     *
     * @param words what follows {@code DEV}; {@code "HELP"} names all levers
     * @return the reply: a text, a number, or a list of them
     * @throws IllegalArgumentException it knows no such lever
     * @throws IOException it does not answer
     */
    public Object dev(String... words) throws IOException {
        List<String> command = new ArrayList<>(List.of("DEV"));
        command.addAll(List.of(words));
        try (Wire wire = Wire.open(Address.of(uri()), CONNECT_WITHIN_MS, null, false)) {
            wire.setPatience(CONNECT_WITHIN_MS);
            wire.write(Resp.encode(List.of(command)));
            Object reply = new Resp(wire::read).read();
            if (reply instanceof ServerError error) {
                throw new IllegalArgumentException(error.text());
            }
            return reply;
        }
    }

    /**
     * As {@code dev("ADVANCE", ..)}: leases, waits and graces end that much earlier.
     *
     * @param time by which the server's clock goes forward
     * @throws IOException it does not answer
     */
    public void advance(Duration time) throws IOException {
        dev("ADVANCE", Long.toString(time.toMillis()));
    }

    /** Ends it, and waits until it is over. */
    @Override
    public void close() {
        end(process, atExit);
    }

    private static String firstLine(Process process) {
        try {
            return new BufferedReader(
                            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))
                    .readLine();
        } catch (IOException error) {
            return error.toString();
        }
    }

    private static void runInADaemon(Runnable task) {
        Thread thread = new Thread(task, "tether-devserver");
        thread.setDaemon(true);
        thread.start();
    }

    private static void end(Process process, Thread atExit) {
        process.destroyForcibly();
        try {
            Runtime.getRuntime().removeShutdownHook(atExit);
        } catch (IllegalStateException isEnding) {
            // It is closed by another of the JVM's last threads.
        }
        try {
            process.waitFor();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
