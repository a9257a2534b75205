package tether.locks;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/**
 * A real server with the module, in a folder of its own. TETHER_SERVER and TETHER_MODULE say which.
 */
public final class TestServer implements AutoCloseable {
    private static final long PATIENCE_MS = 60_000;

    public final int port;

    /** Of a cluster's node. */
    final int busPort;

    private final String password;
    private final List<String> words;
    private final Path folder;
    private volatile Process process;

    private TestServer(List<String> words, int port, int busPort, Path folder) {
        this.words = words;
        this.port = port;
        this.busPort = busPort;
        this.folder = folder;
        int option = words.indexOf("--requirepass") + 1;
        password = option == 0 ? null : words.get(option);
    }

    public static TestServer start(String... options) throws IOException {
        return start(0, options);
    }

    static TestServer startWithBus(String... options) throws IOException {
        return start(freePort(), options);
    }

    private static TestServer start(int busPort, String... options) throws IOException {
        int port = freePort();
        Path folder = Files.createTempDirectory("tether-java-");
        List<String> words =
                new ArrayList<>(List.of(needed("TETHER_SERVER"), "--port", Integer.toString(port)));
        words.addAll(List.of("--save", "", "--appendonly", "no", "--dir", folder.toString()));
        words.addAll(List.of("--loadmodule", needed("TETHER_MODULE")));
        words.addAll(List.of(options));
        if (busPort != 0) {
            words.addAll(List.of("--cluster-port", Integer.toString(busPort)));
        }
        return launch(words, port, busPort, folder);
    }

    private static TestServer launch(List<String> words, int port, int busPort, Path folder)
            throws IOException {
        TestServer server = new TestServer(words, port, busPort, folder);
        server.startAgain();
        return server;
    }

    /** With the files that it has, after {@link #kill}. */
    void startAgain(String... options) throws IOException {
        Path log = folder.resolve("log");
        List<String> all = new ArrayList<>(words);
        all.addAll(List.of(options));
        process =
                new ProcessBuilder(all)
                        .redirectErrorStream(true)
                        .redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile()))
                        .start();
        eventually("the server starts: " + log, this::answers);
    }

    /** Whether a replica has all that was written before this key. */
    boolean isReplicatedWith(String key) {
        try (Raw raw = new Raw(this)) {
            raw.ask("SET", key, "1");
            return Long.valueOf(1).equals(raw.ask("WAIT", "1", "1000"));
        }
    }

    /** By SIGKILL. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** As {@code kill -STOP} does. */
    void signal(String name) {
        signal(process, name);
    }

    static void signal(Process process, String name) {
        try {
            Process kill =
                    new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start();
            if (kill.waitFor() != 0) {
                throw new IllegalStateException("kill -" + name + " failed");
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Fails over when the master is silent for a second. */
    static TestServer startSentinel(String name, int masterPort) throws IOException {
        int port = freePort();
        Path folder = Files.createTempDirectory("tether-java-");
        Path file = folder.resolve("sentinel.conf");
        Files.writeString(
                file,
                "port "
                        + port
                        + "\ndir "
                        + folder
                        + "\nsentinel monitor "
                        + name
                        + " 127.0.0.1 "
                        + masterPort
                        + " 2\n"
                        + "sentinel down-after-milliseconds "
                        + name
                        + " 1000\n"
                        + "sentinel failover-timeout "
                        + name
                        + " 10000\n");
        return launch(
                List.of(needed("TETHER_SERVER"), file.toString(), "--sentinel"), port, 0, folder);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static String needed(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(name + " is not set: see scripts/java.sh");
        }
        return value;
    }

    private String[] hello() {
        return password == null
                ? new String[] {"HELLO", "3"}
                : new String[] {"HELLO", "3", "AUTH", "default", password};
    }

    private boolean answers() {
        if (!process.isAlive()) {
            throw new IllegalStateException("the server ended: " + folder.resolve("log"));
        }
        try {
            return "PONG".equals(ask("PING"));
        } catch (IllegalStateException notYet) {
            return false;
        }
    }

    public String uri() {
        return "redis://127.0.0.1:" + port;
    }

    /** The reply on a connection of its own. */
    public Object ask(String... words) {
        try (Raw raw = new Raw(this)) {
            return raw.ask(words);
        }
    }

    /** How many hold this lock, and how many wait for it. */
    public List<Integer> crowd(String key) {
        if (!(ask("LOCK.INFO", key) instanceof Map<?, ?> info)) {
            return List.of(0, 0);
        }
        return List.of(
                ((List<?>) info.get("holders")).size(), ((List<?>) info.get("waiters")).size());
    }

    public void awaitCrowd(String key, int holders, int waiters) {
        eventually(
                holders + " hold and " + waiters + " wait",
                () -> crowd(key).equals(List.of(holders, waiters)));
    }

    public static void eventually(String what, BooleanSupplier isSo) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > until) {
                throw new AssertionError("never: " + what);
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
    }

    @Override
    public void close() {
        process.destroyForcibly();
        try {
            process.waitFor();
            if (!Files.exists(folder)) {
                return;
            }
            try (Stream<Path> files = Files.walk(folder)) {
                for (Path each : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(each);
                }
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A connection without a client: other holders, and waiters. */
    static final class Raw implements AutoCloseable {
        private final Wire wire;
        private final Resp resp;

        Raw(TestServer server) {
            try {
                wire = Wire.open(Address.of(server.uri()), (int) PATIENCE_MS, null, false);
                wire.setPatience((int) PATIENCE_MS);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            resp = new Resp(wire::read);
            ask(server.hello());
        }

        void send(String... words) {
            try {
                wire.write(Resp.encode(List.of(List.of(words))));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        Object reply() {
            try {
                return resp.read();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        Object ask(String... words) {
            send(words);
            return reply();
        }

        @Override
        public void close() {
            wire.close();
        }
    }
}
